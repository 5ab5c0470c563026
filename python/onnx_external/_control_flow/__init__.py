"""Rewrites data-dependent control flow, so that torch can export it.

Other packages use only the names below. README.md describes how the parts work together.
"""

from .applying import one_thread
from .dumping import room_for_diffs
from .finding.functions import Missing
from .rewriter import Rewriter, Rewriting
from .runtime.outer import outside_kept, state_kept
from .runtime.places import Places, at_key, memory_kept

__all__ = [
    "Missing",
    "Places",
    "Rewriter",
    "Rewriting",
    "at_key",
    "memory_kept",
    "one_thread",
    "outside_kept",
    "room_for_diffs",
    "state_kept",
]
