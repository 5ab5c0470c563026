"""Saves, plans, verifies, lists and cuts models, and reports on the results."""
