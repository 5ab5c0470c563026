"""Folders of models: their config, their other files, and checks before an export."""
