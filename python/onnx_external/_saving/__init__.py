"""Saving, planning, verifying, listing and cutting models, and their reports."""
