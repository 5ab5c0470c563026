"""Converts the caller's models and tensors to the forms that the extension module takes."""
