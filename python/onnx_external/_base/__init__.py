"""Provides errors, options and small tools for the rest of the package."""
