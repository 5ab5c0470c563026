"""Models and tensors as callers hold them, in the forms that the extension takes."""
