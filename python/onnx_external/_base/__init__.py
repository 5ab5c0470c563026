"""Errors, options and small tools that all higher floors use."""
