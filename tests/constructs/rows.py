"""Collects all rows, in the order of the page."""

import importlib

from row import ROWS

GROUPS = (
    "arguments",
    "outputs",
    "branches",
    "loops",
    "writes",
    "sizes",
    "submodules",
    "operators",
    "values",
)

for group in GROUPS:
    importlib.import_module(group)

__all__ = ["ROWS"]
