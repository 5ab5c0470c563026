"""What save, verify and inspect report: the JSON documents of the commands, as dataclasses.

docs/cli.md describes every member. Members that a document leaves out have their defaults.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

__all__ = [
    "Finding",
    "InspectedTensor",
    "Inspection",
    "SaveReport",
    "SavedTensor",
    "VerifyReport",
]

_T = TypeVar("_T")


def _make(cls: type[_T], document: dict[str, Any], **lists: type) -> _T:
    """Make a dataclass of the members that it has; `lists` name the classes of lists of objects."""
    known = {each.name for each in fields(cls)}  # type: ignore[arg-type]
    members = {name: value for name, value in document.items() if name in known}
    for name, item in lists.items():
        members[name] = [_make(item, each) for each in members.get(name, [])]
    return cls(**members)


class _Document:
    """A report that remembers its document."""

    _document: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the document that the command prints with --json."""
        return self._document


@dataclass(frozen=True)
class SavedTensor:
    """One initializer that was saved, or would be."""

    slot: str
    length: int
    key: str | None = None
    """The checkpoint's name; None for data that the model already had."""
    rule: str | None = None
    recipe: list[str] = field(default_factory=list)
    file: str | None = None
    """Relative to the model's folder; None for what is inside of the model."""
    offset: int = 0


@dataclass
class SaveReport(_Document):
    """What a save did, or would do."""

    model: str
    dry_run: bool
    tensors: list[SavedTensor]
    unmatched_keys: list[str]
    baked_keys: list[str]
    unused_modules: list[dict[str, Any]]
    overlaid: list[dict[str, Any]]
    tied_keys: list[dict[str, str]]
    inputs_left: list[str]
    initializers_kept: list[str]
    slots_left: list[str]
    oversized: list[str]
    alignment: str
    bytes: int
    seconds: float
    verified: bool
    linked_bytes: int = 0
    files_reused: int = 0
    bytes_reused: int = 0
    data_left_for: list[dict[str, str]] = field(default_factory=list)
    test_data: list[dict[str, Any]] = field(default_factory=list)
    dimensions: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a model."""

    code: str
    tensor: str
    file: str
    message: str


@dataclass
class VerifyReport(_Document):
    """What a verification found."""

    ok: bool
    findings: list[Finding]
    tensors: int
    inline_tensors: int
    inline_uncompared: int
    bytes: int
    compared: int
    compared_by_manifest: int
    converted: int
    linked: int
    linked_without_crc: int
    without_length: int
    used_manifest: bool

    def __bool__(self) -> bool:
        """Return whether nothing is wrong."""
        return self.ok


@dataclass(frozen=True)
class InspectedTensor:
    """One tensor of a checkpoint or a model."""

    name: str
    dtype: str
    shape: list[int]
    nbytes: int
    file: str | None = None
    offset: int | None = None
    view: dict[str, Any] | None = None
    sha256: str | None = None
    problem: str | None = None


@dataclass
class Inspection(_Document):
    """What is in a checkpoint or a model."""

    format: str
    tensors: list[InspectedTensor]
    bytes: int
    files: int
    file_bytes: int
    version: str | None = None
    producer: str | None = None
    byte_order: str | None = None
    pickle_protocol: int | None = None
    refusal: str | None = None
    open_slots: list[dict[str, Any]] = field(default_factory=list)
    tied: list[dict[str, str]] = field(default_factory=list)
    tied_names: list[dict[str, str]] = field(default_factory=list)
    opaque_objects: list[dict[str, str]] = field(default_factory=list)
    refused_tensors: list[dict[str, str]] = field(default_factory=list)


_D = TypeVar("_D", bound=_Document)


def _report(cls: type[_D], text: str, **lists: type) -> _D:
    document = json.loads(text)
    report = _make(cls, document, **lists)
    report._document = document
    return report


def save_report(text: str) -> SaveReport:
    """Make the report of a save from its document."""
    return _report(SaveReport, text, tensors=SavedTensor)


def verify_report(text: str) -> VerifyReport:
    """Make the report of a verification from its document."""
    return _report(VerifyReport, text, findings=Finding)


def inspection(text: str) -> Inspection:
    """Make an inspection from its document."""
    return _report(Inspection, text, tensors=InspectedTensor)
