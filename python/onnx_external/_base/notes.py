"""Notes in reports that programs have to recognize."""

from __future__ import annotations

UNCHECKED = "not-checked"
"""The kind of the note that says why a graph was not compared with its module."""


class Note(str):
    """A sentence for people, with a `kind` by which programs recognize it.

    Attributes:
        kind: a name such as "not-checked", which stays the same when the sentence changes.
    """

    kind: str

    def __new__(cls, text: str, kind: str = "") -> Note:
        """Make the note.

        Copying or unpickling a note calls this without a kind, and then sets the attribute.
        """
        made = super().__new__(cls, text)
        made.kind = kind
        return made


def kind_of(text: str) -> str:
    """Return the kind of a note, or "" if no program has to recognize the note."""
    return text.kind if isinstance(text, Note) else ""
