"""Reads model folders: their configs and other files, with checks that precede an export."""
