"""Errors, options and small tools that every other floor uses."""
