"""Notes of reports that programs have to recognize."""

from __future__ import annotations

UNCHECKED = "not-checked"
"""The kind of the note that says why a graph was not compared with its module."""


class Note(str):
    """A sentence for people, with a `kind` that programs recognize.

    Attributes:
        kind: such as "not-checked"; it stays the same when the sentence changes.
    """

    kind: str

    def __new__(cls, text: str, kind: str = "") -> Note:
        """Make the note; a copy or a pickle of one makes it without its kind, and sets that."""
        made = super().__new__(cls, text)
        made.kind = kind
        return made


def kind_of(text: str) -> str:
    """Return the kind of a note; empty for a note that no program has to recognize."""
    return text.kind if isinstance(text, Note) else ""
