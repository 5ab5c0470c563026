"""Saving, planning, verifying, listing and cutting of models, and the reports on them."""
