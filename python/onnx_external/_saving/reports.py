"""Reports of save, verify, inspect and cut: the JSON documents of the commands, as dataclasses.

docs/cli.md describes every member. Members that a document leaves out have their defaults.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from .._base.pages import Paged

_T = TypeVar("_T")


def _make(cls: type[_T], document: dict[str, Any], **lists: type) -> _T:
    """Make a dataclass from a document; `lists` gives the classes of lists of objects."""
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


class _Document(Paged):
    """A report that keeps its document."""

    _document: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the document that the command prints with --json."""
        return self._document


@dataclass(frozen=True)
class SavedTensor:
    """One initializer that was saved, or would be."""

    slot: str
    """The initializer's name."""
    length: int
    """Bytes of its data."""
    key: str | None = None
    """The checkpoint's name; None for data that the model already had."""
    rule: str | None = None
    """The rule of docs/mapping.md that chose the key; None without a key."""
    recipe: list[str | dict[str, list[int]]] = field(default_factory=list)
    """The steps that make it from the key, as in a map file."""
    file: str | None = None
    """The data file, relative to the model's folder; None for data inside the model."""
    offset: int = 0
    """The offset of its bytes in `file`."""
    overflowed: int = 0
    """Finite values that became infinite when they were converted (`dtype`, `cast`)."""
    largest_overflowed: float = 0.0
    """The largest magnitude among them."""
    part: str | None = None
    """The part of a quantized matrix: "codes", "scales" or "zero_points"."""


@dataclass(frozen=True)
class SavedModel:
    """One of the models of a save."""

    model: str
    """Path of the model."""
    tensors: list[SavedTensor]
    """The initializers that were saved, or would be."""
    inputs_left: list[str]
    """Inputs of the graph that the caller feeds."""
    initializers_kept: list[str]
    """Initializers that keep the graph's data."""
    kept_by_option: list[str]
    """Data of the graph that `keep` names."""
    slots_left: list[str]
    """Slots without data; only with `partial`. No runtime opens such a model."""
    left_old: list[str]
    """Weights that keep the graph's data because the checkpoint lacks them; only with `partial`."""
    complete: bool
    """True if both lists are empty: every weight has its value."""
    alignment: str
    """The prefix that was added to keys ("+model.") or removed ("-module."); else ""."""
    bytes: int
    """The size of the ranges that the model refers to, including shared ones."""
    remarks: list[dict[str, Any]] = field(default_factory=list)
    """Irregularities of the model's external data: `kind`, `first` and `tensors`, `message`."""
    manifest: str = ""
    """The file with the checksums of its tensors, relative to the model's folder."""
    quantized: list[dict[str, Any]] = field(default_factory=list)
    """With `quantize`: each matrix: `weight`, `key`, `role`, `scheme`, `shape`, `bytes_before`,
    `bytes`, and `error`, the root mean square of what changed over that of the values (in a dry
    run, of a few rows)."""
    floats: list[dict[str, Any]] = field(default_factory=list)
    """The matrices left in floats, with `quantize`: `weight`, `reason`, `bytes`."""

    @property
    def pairs(self) -> list[SavedTensor]:
        """The initializers that are filled from the weights: slot, key, rule and recipe."""
        return [tensor for tensor in self.tensors if tensor.key is not None]


@dataclass
class SaveReport(_Document):
    """The report of a save, done or planned: its models, and what they have in common.

    The report of a single model also has the fields of `models[0]` as attributes.
    """

    dry_run: bool
    """True: nothing was written."""
    unmatched_keys: list[str]
    """Keys of the weights that fill no slot."""
    baked_keys: list[str]
    """Those of `unmatched_keys` that are buffers which exporters bake in, or whose values the graph
    has."""
    unused_modules: list[dict[str, Any]]
    """Modules that no graph uses at all: `name`, and `keys`, how many keys it has."""
    ignored_keys: list[str]
    """Those of `unmatched_keys` that `ignore` excluded."""
    skipped_keys: list[str]
    """Those of `unmatched_keys` that would be errors without `unmatched` or `partial`."""
    overlaid: list[dict[str, Any]]
    """With `overlay`: `key`, its `checkpoint` (from 1), and `by`, the one that replaced it."""
    tied_keys: list[dict[str, str]]
    """Keys that fill no slot but have the bytes of one that does: `key` and `matched_key`."""
    complete: bool
    """True if all models are complete."""
    oversized: list[str]
    """Tensors larger than `max_shard_size`; each has a shard of its own."""
    bytes: int
    """Size of the data files, each byte once, or of the data in the model ("inline")."""
    seconds: float
    """Time of the whole job; 0 in a dry run."""
    verified: bool
    """True if every byte that was written was read back; this does not cover missing data."""
    derived: dict[str, Any] = field(default_factory=dict)
    """Derived tensors that the map defined, as in a map file."""
    notes: list[str] = field(default_factory=list)
    """Remarks on surprises, such as a file of a folder that was not read."""
    linked_bytes: int = 0
    """The size of the ranges that the models refer to, with the layout "link"."""
    data_left_for: list[dict[str, str]] = field(default_factory=list)
    """Data files of replaced models that stay: `file`, and `model`, another that uses it."""
    test_data: list[dict[str, Any]] = field(default_factory=list)
    """With `test_data`, by set: `folder`, `inputs`, and `unused` tensors that feed no input."""
    dimensions: list[dict[str, Any]] = field(default_factory=list)
    """With two or more sets: dimensions that varied or are symbolic, with a `verdict`."""

    def _add_notes(self, notes: list[str]) -> None:
        """Add sentences to the notes, also in the document."""
        if notes:
            self.notes = self._document["notes"] = [*self.notes, *notes]

    @cached_property
    def models(self) -> list[SavedModel]:
        """The models in the order of the graphs, made on first use because they may be large."""
        documents = self._document.get("models", [self._document])
        return [_make(SavedModel, document, tensors=SavedTensor) for document in documents]

    @property
    def folder(self) -> str:
        """The folder of the models."""
        return os.path.dirname(self.models[0].model)

    @property
    def _alone(self) -> SavedModel:
        if len(self.models) > 1:
            raise AttributeError(f"the report is on {len(self.models)} models: see its `models`")
        return self.models[0]

    @property
    def model(self) -> str:
        """The file of the only model."""
        return self._alone.model

    @property
    def manifest(self) -> str:
        """`SavedModel.manifest` of the only model."""
        return self._alone.manifest

    @property
    def tensors(self) -> list[SavedTensor]:
        """`SavedModel.tensors` of the only model."""
        return self._alone.tensors

    @property
    def pairs(self) -> list[SavedTensor]:
        """`SavedModel.pairs` of the only model."""
        return self._alone.pairs

    @property
    def inputs_left(self) -> list[str]:
        """`SavedModel.inputs_left` of the only model."""
        return self._alone.inputs_left

    @property
    def initializers_kept(self) -> list[str]:
        """`SavedModel.initializers_kept` of the only model."""
        return self._alone.initializers_kept

    @property
    def kept_by_option(self) -> list[str]:
        """`SavedModel.kept_by_option` of the only model."""
        return self._alone.kept_by_option

    @property
    def slots_left(self) -> list[str]:
        """`SavedModel.slots_left` of the only model."""
        return self._alone.slots_left

    @property
    def left_old(self) -> list[str]:
        """`SavedModel.left_old` of the only model."""
        return self._alone.left_old

    @property
    def alignment(self) -> str:
        """`SavedModel.alignment` of the only model."""
        return self._alone.alignment

    @property
    def remarks(self) -> list[dict[str, Any]]:
        """`SavedModel.remarks` of the only model."""
        return self._alone.remarks

    @property
    def quantized(self) -> list[dict[str, Any]]:
        """`SavedModel.quantized` of the only model."""
        return self._alone.quantized

    @property
    def floats(self) -> list[dict[str, Any]]:
        """`SavedModel.floats` of the only model."""
        return self._alone.floats

    @property
    def files(self) -> dict[str, int]:
        """The data files of all models, relative to their folder, and their sizes in bytes."""
        sizes: dict[str, int] = {}
        for tensor in (tensor for model in self.models for tensor in model.tensors):
            if tensor.file is not None:
                end = tensor.offset + tensor.length
                sizes[tensor.file] = max(end, sizes.get(tensor.file, 0))
        return sizes

    def __str__(self) -> str:
        """Return a summary in one line; `repr()` returns the whole report."""
        where = self.models[0].model if len(self.models) == 1 else self.folder
        tensors = sum(len(model.tensors) for model in self.models)
        done = "dry run, nothing was written" if self.dry_run else "saved"
        done += ", complete" if self.complete else ", incomplete: not every weight has its value"
        done += ", verified" if self.verified else ""
        files = f"data files: {len(self.files)}"
        return f"{where}: tensors: {tensors}, {files}, bytes: {self.bytes:,}; {done}"


@dataclass(frozen=True)
class Finding:
    """One fault of a model."""

    code: str
    """The violated rule, such as "crc-differs" (docs/cli.md lists all)."""
    tensor: str
    """The name of the initializer; empty for the model as a whole."""
    file: str
    """The data file, relative to the model; may be empty."""
    message: str
    """The fault, as a sentence."""

    def __str__(self) -> str:
        """Return the finding in one line, as verify-external prints it."""
        places = [f"'{place}'" for place in (self.tensor, self.file) if place]
        return ": ".join([self.code, *places, self.message])


@dataclass
class VerifyReport(_Document):
    """The findings of a verification."""

    ok: bool
    """True if there are no findings, and no data is missing."""
    complete: bool
    """True if no data is missing; otherwise `ok` is also False."""
    findings: list[Finding]
    """The faults; at most 1,000, followed by one with the number of further ones."""
    tensors: int
    """The number of external tensors."""
    inline_tensors: int
    """The number of tensors inside the model that are also in the manifest or the weights."""
    inline_uncompared: int
    """The number of float initializers inside the model that were not compared with anything."""
    bytes: int
    """Bytes that were read."""
    compared: int
    """The number of `tensors` that were compared with the weights."""
    compared_by_manifest: int
    """The number of `compared` whose key only the manifest names."""
    converted: int
    """The number of `compared` that were compared after a change of type."""
    linked: int
    """The number of `tensors` that are a checkpoint's own ranges."""
    linked_without_crc: int
    """The number of `linked` without a recorded CRC-32."""
    without_length: int
    """The number of `tensors` whose entry states no length; other readers may reject them."""
    used_manifest: bool
    """True if there was a manifest."""
    overflowed: int = 0
    """Values that became infinite when they were converted for this model, by its manifest."""
    notes: list[str] = field(default_factory=list)
    """Remarks on surprises, such as a file of a folder that was not read."""
    remarks: list[dict[str, Any]] = field(default_factory=list)
    """Irregularities of readable external data: `kind`, `first` and `tensors`, `message`."""
    models: dict[str, VerifyReport] = field(default_factory=dict)
    """The report of each file, for a folder of models that were saved together. The fields above
    then cover all models; bytes that models share count for each."""

    def __bool__(self) -> bool:
        """Return whether nothing is wrong."""
        return self.ok

    def __str__(self) -> str:
        """Return the verdict in a line, and a line for each finding; `repr()` gives everything."""
        verdict = "ok" if self.ok else f"findings: {len(self.findings)}"
        verdict += "" if self.complete else ", not every weight has its value"
        read = f"external tensors: {self.tensors}, bytes: {self.bytes:,}"
        where = "" if self._verified is None else f"{self._verified}: "
        return "\n".join([f"{where}{read}; {verdict}", *map(str, self.findings)])


@dataclass
class CutReport(_Document):
    """The contents of a piece of a model."""

    inputs: list[str]
    """Names, in the order of the piece; those with a default value come last."""
    outputs: list[str]
    """Names, in the order of the piece."""
    fed_back: list[str]
    """Inputs that depend, in the whole model, on an output of the piece."""
    untyped: list[str]
    """Outputs whose element type is not known."""
    nodes: int
    """The number of nodes in its main graph."""
    initializers: int
    """The number of initializers in its main graph."""
    functions: int
    """The number of functions that it calls, directly or through others."""
    weight_bytes: int
    """The size of all its tensors, in data files or in the piece."""
    model_bytes: int
    """The size of the piece itself."""
    data_files: list[str]
    """Locations that it refers to, relative to the folder of the model."""


@dataclass(frozen=True)
class InspectedTensor:
    """One tensor of a checkpoint or a model."""

    name: str
    """The key, or the initializer's name."""
    dtype: str
    """Torch's name of the element type, such as "bfloat16"."""
    shape: list[int]
    """The shape in the file."""
    nbytes: int
    """Bytes of the contiguous tensor."""
    file: str | None = None
    """The file with its bytes; None unless they are one plain range."""
    offset: int | None = None
    """The offset of its bytes in `file`."""
    view: dict[str, Any] | None = None
    """The layout in a file, if it is not a plain range: `file`, `offset`, `strides`, ..."""
    sha256: str | None = None
    """The SHA-256 of the contiguous row-major little-endian bytes, with `sha256`."""
    problem: str | None = None
    """The fault of an initializer whose entry violates the rules."""
    scheme: str | None = None
    """The scheme of a quantized matrix, listed in place of its parts: "int4/64, zero points, 5
    steps"."""
    key: str | None = None
    """The key in the checkpoint that a quantized matrix was made from."""
    parts: list[dict[str, Any]] | None = None
    """The initializers that a quantized matrix consists of."""


@dataclass
class Inspection(_Document):
    """The contents of a checkpoint or a model."""

    format: str
    """Such as "torch-zip", "safetensors", "sharded safetensors", "dcp" or "onnx"."""
    tensors: list[InspectedTensor]
    """The tensors, in the order of the files."""
    bytes: int
    """The sum of their `nbytes`."""
    files: int
    """The number of files."""
    file_bytes: int
    """The size of all files."""
    version: str | None = None
    """Torch's version of the archive, that of GGUF, or IR version and opsets of a model."""
    producer: str | None = None
    """The program that wrote a model, as the model states."""
    byte_order: str | None = None
    """ "little", "big" or "mixed"; None if there are no bytes."""
    pickle_protocol: int | None = None
    """The protocol of the pickle with the names; 0 means 0 or 1."""
    refusal: str | None = None
    """The reason why a save without a `key` would fail on the checkpoint; None if it would not."""
    open_slots: list[dict[str, Any]] = field(default_factory=list)
    """Names in a model that nothing defines."""
    node_tensors: list[dict[str, Any]] = field(default_factory=list)
    """Large values in nodes of a model, such as Constant nodes."""
    tied: list[dict[str, str]] = field(default_factory=list)
    """Tensors that share their bytes, as pairs."""
    tied_names: list[dict[str, str]] = field(default_factory=list)
    """Names that a file records for tensors that it has under another."""
    opaque_objects: list[dict[str, str]] = field(default_factory=list)
    """Objects of classes that are not known, and were not looked into."""
    refused_tensors: list[dict[str, str]] = field(default_factory=list)
    """Tensors that a save would refuse, and why."""
    notes: list[str] = field(default_factory=list)
    """Remarks on surprises, such as a file of a folder that was not read."""
    metadata: dict[str, str] = field(default_factory=dict)
    """The keys of a GGUF file with their values as strings, long ones cut; "GGUF.tensor_types" has
    the types of its tensors with their numbers."""


_D = TypeVar("_D", bound=_Document)


def _report(cls: type[_D], document: dict[str, Any], **lists: type) -> _D:
    report = _make(cls, document, **lists)
    report._document = document
    return report


def save_report(text: str) -> SaveReport:
    """Make the report of a save from its document."""
    return _report(SaveReport, json.loads(text))


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
    """Add up counts and lists; flags are true only if they are true for all."""
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


_IN_EACH = ("unmatched_keys", "baked_keys", "unused_modules", "ignored_keys", "skipped_keys")
"""Lists of unused names: several saves use everything that one of them uses."""


def together(reports: Sequence[SaveReport]) -> SaveReport:
    """Return one report on several saves of one checkpoint, each with its own data."""
    documents = [each.to_dict() for each in reports]
    found = dict(documents[0])
    found["models"] = [one for each in documents for one in each.get("models", [each])]
    for name in _IN_EACH:
        lists = [each.get(name, []) for each in documents]
        found[name] = [one for one in lists[0] if all(one in other for other in lists)]
    for name in ("bytes", "seconds", "linked_bytes"):
        found[name] = sum(each.get(name, 0) for each in documents)
    for name in ("complete", "verified"):
        found[name] = all(each.get(name) for each in documents)
    notes = [note for each in reports for note in each.notes]
    found["notes"] = list(dict.fromkeys(notes))
    report = _make(SaveReport, found)
    object.__setattr__(report, "_document", found)
    return report


def at(report: SaveReport, folder: Path) -> SaveReport:
    """Return the same report for models that are now in another folder."""
    found = dict(report.to_dict())
    found["models"] = [
        {**each, "model": str(folder / Path(each["model"]).name)}
        for each in found.get("models", [found])
    ]
    made = _make(SaveReport, found)
    made._document = found
    return made


def on_models(report: SaveReport, models: Sequence[SavedModel]) -> SaveReport:
    """Return the same report on some of its models."""
    made = _make(SaveReport, report.to_dict())
    made._document, made.models = report.to_dict(), list(models)
    return made
