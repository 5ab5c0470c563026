"""What save, verify, inspect and cut report: the JSON documents of the commands, as dataclasses.

docs/cli.md describes every member. Members that a document leaves out have their defaults.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, TypeVar

__all__ = [
    "CutReport",
    "Finding",
    "InspectedTensor",
    "Inspection",
    "MemberReport",
    "SaveReport",
    "SavedTensor",
    "SetReport",
    "VerifyReport",
]

_T = TypeVar("_T")


def _make(cls: type[_T], document: dict[str, Any], **lists: type) -> _T:
    """Make a dataclass of the members that it has; `lists` name the classes of lists of objects."""
    members = _members(cls, document)
    for name, item in lists.items():
        members[name] = _items(item, document.get(name, []))
    return cls(**members)


def _items(cls: type[_T], documents: list[dict[str, Any]]) -> list[_T]:
    known = frozenset(each.name for each in fields(cls))  # type: ignore[arg-type]
    return [
        # Usually all members are known: a save may have a hundred thousand tensors.
        cls(**each) if each.keys() <= known else cls(**_members(cls, each))
        for each in documents
    ]


def _members(cls: type, document: dict[str, Any]) -> dict[str, Any]:
    known = {each.name for each in fields(cls)}
    return {name: value for name, value in document.items() if name in known}


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
    recipe: list[str | dict[str, list[int]]] = field(default_factory=list)
    """The steps that make it from the key, as in a map file."""
    file: str | None = None
    """Relative to the model's folder; None for what is inside of the model."""
    offset: int = 0
    overflowed: int = 0
    """Finite values that became infinite when they were converted (`dtype`, `cast`)."""
    largest_overflowed: float = 0.0
    """The largest magnitude among them."""


@dataclass
class SaveReport(_Document):
    """What a save did, or would do."""

    model: str
    dry_run: bool
    unmatched_keys: list[str]
    baked_keys: list[str]
    unused_modules: list[dict[str, Any]]
    ignored_keys: list[str]
    """Of `unmatched_keys`: those that `ignore` excluded."""
    skipped_keys: list[str]
    """Of `unmatched_keys`: those that would be refused without `unmatched` or `partial`."""
    overlaid: list[dict[str, Any]]
    tied_keys: list[dict[str, str]]
    inputs_left: list[str]
    initializers_kept: list[str]
    kept_by_option: list[str]
    """Data of the graph that `keep` names."""
    slots_left: list[str]
    """What has no data; only with `partial`. No runtime opens such a model."""
    left_old: list[str]
    """Weights that keep the graph's data because the checkpoint lacks them; only with `partial`."""
    complete: bool
    """Whether both lists are empty: every weight has its value."""
    oversized: list[str]
    alignment: str
    bytes: int
    seconds: float
    verified: bool
    """Whether every byte that was written was read back; says nothing of what is missing."""
    derived: dict[str, Any] = field(default_factory=dict)
    """Derived tensors that the map defined, as in a map file."""
    notes: list[str] = field(default_factory=list)
    """Sentences on what may surprise, such as a file of a folder that was not read."""
    linked_bytes: int = 0
    data_left_for: list[dict[str, str]] = field(default_factory=list)
    test_data: list[dict[str, Any]] = field(default_factory=list)
    dimensions: list[dict[str, Any]] = field(default_factory=list)
    remarks: list[dict[str, Any]] = field(default_factory=list)
    """What is unusual about the external data of the given model: `kind`, `first` and `tensors`,
    `message`."""

    @cached_property
    def tensors(self) -> list[SavedTensor]:
        """The initializers that were saved, made when first asked for: there may be many."""
        return _items(SavedTensor, self._document["tensors"])


@dataclass(frozen=True)
class MemberReport:
    """One of the models of a set."""

    model: str
    tensors: list[SavedTensor]
    inputs_left: list[str]
    initializers_kept: list[str]
    kept_by_option: list[str]
    """Data of the graph that `keep` names."""
    slots_left: list[str]
    """What has no data; only with `partial`. No runtime opens such a model."""
    left_old: list[str]
    """Weights that keep the graph's data because the checkpoint lacks them; only with `partial`."""
    complete: bool
    """Whether both lists are empty: every weight has its value."""
    alignment: str
    bytes: int
    """Of the ranges that the model refers to, whoever else does."""
    remarks: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class SetReport(_Document):
    """What a save of several graphs over one store did, or would do."""

    folder: str
    dry_run: bool
    models: list[MemberReport]
    """In the order of the graphs."""
    unmatched_keys: list[str]
    baked_keys: list[str]
    unused_modules: list[dict[str, Any]]
    ignored_keys: list[str]
    """Of `unmatched_keys`: those that `ignore` excluded."""
    skipped_keys: list[str]
    """Of `unmatched_keys`: those that would be refused without `unmatched` or `partial`."""
    overlaid: list[dict[str, Any]]
    tied_keys: list[dict[str, str]]
    oversized: list[str]
    complete: bool
    """Whether all models are."""
    bytes: int
    """Of the data files, in which each byte is once."""
    seconds: float
    verified: bool
    derived: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    linked_bytes: int = 0
    data_left_for: list[dict[str, str]] = field(default_factory=list)


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
    complete: bool
    """Whether nothing lacks its data; `ok` is False where it does."""
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
    overflowed: int = 0
    """Values that became infinite when they were converted for this model, by its manifest."""
    notes: list[str] = field(default_factory=list)
    remarks: list[dict[str, Any]] = field(default_factory=list)
    """What is unusual about external data that can be read: `kind`, `first` and `tensors`,
    `message`."""
    models: dict[str, VerifyReport] = field(default_factory=dict)
    """Of a folder of models that were saved together: the report of each file. The members above
    are then of all of them; bytes that models share count for each."""

    def __bool__(self) -> bool:
        """Return whether nothing is wrong."""
        return self.ok


@dataclass
class CutReport(_Document):
    """What a piece of a model has."""

    inputs: list[str]
    outputs: list[str]
    fed_back: list[str]
    """Inputs that depend, in the whole model, on an output of the piece."""
    untyped: list[str]
    """Outputs whose element type is not known."""
    nodes: int
    initializers: int
    functions: int
    weight_bytes: int
    model_bytes: int
    data_files: list[str]
    """Locations that it refers to, relative to the folder of the model."""


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
    node_tensors: list[dict[str, Any]] = field(default_factory=list)
    """Of a model: large values that nodes hold, such as Constant nodes."""
    tied: list[dict[str, str]] = field(default_factory=list)
    tied_names: list[dict[str, str]] = field(default_factory=list)
    opaque_objects: list[dict[str, str]] = field(default_factory=list)
    refused_tensors: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


_D = TypeVar("_D", bound=_Document)


def _report(cls: type[_D], document: dict[str, Any], **lists: type) -> _D:
    report = _make(cls, document, **lists)
    report._document = document
    return report


def save_report(text: str) -> SaveReport:
    """Make the report of a save from its document."""
    return _report(SaveReport, json.loads(text))


def set_report(text: str) -> SetReport:
    """Make the report of a save of several graphs from its document."""
    document = json.loads(text)
    if "models" not in document:  # of one model
        folder = os.path.dirname(document["model"])
        document = {"folder": folder, "models": [document], **document}
    report = _report(SetReport, document)
    report.models = members(report)
    return report


def members(report: SaveReport | SetReport) -> list[MemberReport]:
    """Return what a report tells of each model; of a single one the same as of several."""
    document = report.to_dict()
    models = document["models"] if isinstance(report, SetReport) else [document]
    return [_make(MemberReport, model, tensors=SavedTensor) for model in models]


def verify_report(text: str) -> VerifyReport:
    """Make the report of a verification from its document."""
    document = json.loads(text)
    if "models" not in document:
        return _report(VerifyReport, document, findings=Finding)
    models = {
        each["model"]: _report(VerifyReport, each, findings=Finding) for each in document["models"]
    }
    whole = _report(VerifyReport, _sum_of(document["models"]), findings=Finding)
    whole.models = models
    whole._document = document
    return whole


def _sum_of(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """Add up counts and lists; what is true or false must be true of all."""
    whole: dict[str, Any] = {}
    names = (name for each in documents for name in _members(VerifyReport, each))
    for name in dict.fromkeys(names):
        values = [each[name] for each in documents if name in each]
        if isinstance(values[0], bool):
            whole[name] = all(values)
        elif name == "notes":  # on the checkpoint, which is the same one
            whole[name] = values[0]
        else:
            whole[name] = sum(values, [] if isinstance(values[0], list) else 0)
    return whole


def inspection(text: str) -> Inspection:
    """Make an inspection from its document."""
    return _report(Inspection, json.loads(text), tensors=InspectedTensor)


def cut_report(text: str) -> CutReport:
    """Make the report of a cut from its document."""
    return _report(CutReport, json.loads(text))
