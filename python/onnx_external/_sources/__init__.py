"""Models and tensors of callers, converted to the forms that the extension takes."""
