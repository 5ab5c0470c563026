"""Errors, options and small tools that all higher layers of the package use."""
