"""Reports on save, verify, inspect and cut: dataclasses that hold the JSON output of the commands.

docs/cli.md describes every member. Members that are missing in a document get default values.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from .. import _core
from .._base.pages import Paged

_T = TypeVar("_T")


def _make(cls: type[_T], document: dict[str, Any], **lists: type) -> _T:
    """Create a dataclass instance from a document; `lists` gives the item class of each list."""
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
    """A report that keeps the JSON document from which it was created."""

    _document: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON document that the command prints with --json."""
        return self._document


class _SaveDocument(_Document):
    """A report on a save, whose document is made on first use because it may be large."""

    notes: list[str]
    _result: _core.SaveResult

    @cached_property
    def _document(self) -> dict[str, Any]:  # type: ignore[override]
        document: dict[str, Any] = json.loads(self._result.document())
        if self.notes:
            document["notes"] = self.notes
        return document

    def __getstate__(self) -> dict[str, Any]:
        """Return what is copied or pickled: the document, not the extension's object."""
        state = {**self.__dict__, "_document": self._document}
        state.pop("_result", None)
        return state


@dataclass(frozen=True)
class SavedTensor:
    """One initializer that was saved, or that a dry run would save."""

    slot: str
    """The initializer's name."""
    length: int
    """The size of the initializer's data in bytes."""
    key: str | None = None
    """The tensor's name in the checkpoint; None for data that the model already had."""
    rule: str | None = None
    """The rule of docs/mapping.md that chose the key; None without a key."""
    recipe: list[str | dict[str, list[int]]] = field(default_factory=list)
    """The steps that make the initializer from the key's tensor, as in a map file."""
    file: str | None = None
    """The path of the data file, relative to the model's folder; None for data inside the model."""
    offset: int = 0
    """The offset of the data in `file`."""
    overflowed: int = 0
    """The number of finite values that became infinite in a conversion (`dtype`, `cast`)."""
    largest_overflowed: float = 0.0
    """The largest magnitude among the values that became infinite."""
    part: str | None = None
    """For part of a quantized matrix: "codes", "scales" or "zero_points"."""


@dataclass(frozen=True)
class SavedModel:
    """One of the models that a save has written or planned."""

    model: str
    """The path of the model."""
    tensors: list[SavedTensor]
    """The initializers that were saved, or that a dry run would save."""
    inputs_left: list[str]
    """Graph inputs that the caller has to supply at run time."""
    initializers_kept: list[str]
    """Initializers that keep the graph's data."""
    kept_by_option: list[str]
    """Initializers that keep the graph's data because `keep` names them."""
    slots_left: list[str]
    """Initializers without data, only with `partial`; no runtime can open such a model."""
    left_old: list[str]
    """Weights that keep the graph's data because the checkpoint lacks them; only with `partial`."""
    complete: bool
    """True if `slots_left` and `left_old` are empty: every weight has its value."""
    alignment: str
    """The prefix added to all keys ("+model.") or removed from them ("-module."), or ""."""
    bytes: int
    """The size of all data that the model refers to, including data shared with other models."""
    remarks: list[dict[str, Any]] = field(default_factory=list)
    """Irregularities in the model's external data: `kind`, `first` and `tensors`, `message`."""
    manifest: str = ""
    """The file with the checksums of the model's tensors, relative to the model's folder."""
    quantized: list[dict[str, Any]] = field(default_factory=list)
    """With `quantize`: each quantized matrix: `weight`, `key`, `role`, `scheme`, `shape`,
    `bytes_before`, `bytes`, and `error`: the root mean square of the change, divided by that of
    the values (in a dry run, estimated from a few rows)."""
    floats: list[dict[str, Any]] = field(default_factory=list)
    """With `quantize`: each matrix that was not quantized: `weight`, `reason`, `bytes`."""

    @property
    def pairs(self) -> list[SavedTensor]:
        """The initializers that are filled from the weights, with slot, key, rule and recipe."""
        return [tensor for tensor in self.tensors if tensor.key is not None]


@dataclass
class SaveReport(_SaveDocument):
    """The report on a save that was carried out or planned: its models, and what they share.

    The report of a single model also has the fields of `models[0]` as attributes.
    """

    dry_run: bool
    """True if nothing was written."""
    unmatched_keys: list[str]
    """Keys of the weights that fill no initializer."""
    baked_keys: list[str]
    """The keys in `unmatched_keys` that are buffers baked in by exporters, or whose values the
    graph already has."""
    unused_modules: list[dict[str, Any]]
    """Modules that no graph uses at all: `name`, and `keys`, the number of the module's keys."""
    ignored_keys: list[str]
    """The keys in `unmatched_keys` that `ignore` excluded."""
    skipped_keys: list[str]
    """The keys in `unmatched_keys` that would be errors without `unmatched` or `partial`."""
    overlaid: list[dict[str, Any]]
    """With `overlay`: each replaced `key`, the number of its `checkpoint` (from 1), and `by`, the
    number of the checkpoint that replaced it."""
    tied_keys: list[dict[str, str]]
    """Keys that fill no initializer but have the same bytes as a key that does: `key` and
    `matched_key`."""
    complete: bool
    """True if all models are complete."""
    oversized: list[str]
    """Tensors larger than `max_shard_size`; each is stored in a shard of its own."""
    bytes: int
    """The size of the data files, with shared bytes counted once, or of the data in the model
    (layout "inline")."""
    seconds: float
    """The duration of the whole save; 0 in a dry run."""
    verified: bool
    """True if every written byte was read back and compared; this does not cover missing data."""
    derived: dict[str, Any] = field(default_factory=dict)
    """The derived tensors that the map defines, in the form of a map file."""
    notes: list[str] = field(default_factory=list)
    """Remarks on unexpected facts, such as a file in a folder that was not read."""
    linked_bytes: int = 0
    """With the layout "link": the size of the checkpoint data to which the models refer."""
    data_left_for: list[dict[str, str]] = field(default_factory=list)
    """Data files of replaced models that were kept: `file`, and `model`, another model that uses
    the file."""
    test_data: list[dict[str, Any]] = field(default_factory=list)
    """With `test_data`, for each input set: `folder`, `inputs`, and `unused`, the tensors that feed
    no input."""
    dimensions: list[dict[str, Any]] = field(default_factory=list)
    """With two or more input sets: dimensions that varied or are symbolic, with a `verdict`."""

    def _add_notes(self, notes: list[str]) -> None:
        """Append notes to the report and to its document."""
        if notes:
            self.notes = [*self.notes, *notes]
            if "_document" in self.__dict__:
                self._document["notes"] = self.notes

    @cached_property
    def models(self) -> list[SavedModel]:
        """The models in the order of the graphs, created on first use because they may be large."""
        documents = self._document.get("models", [self._document])
        return [_make(SavedModel, document, tensors=SavedTensor) for document in documents]

    @property
    def folder(self) -> str:
        """The folder that contains the saved models."""
        return os.path.dirname(self.models[0].model)

    @property
    def _alone(self) -> SavedModel:
        if len(self.models) > 1:
            raise AttributeError(f"the report covers {len(self.models)} models: see its `models`")
        return self.models[0]

    @property
    def model(self) -> str:
        """The path of the model, for a save of one model."""
        return self._alone.model

    @property
    def manifest(self) -> str:
        """The same as `models[0].manifest`, for a save of one model."""
        return self._alone.manifest

    @property
    def tensors(self) -> list[SavedTensor]:
        """The same as `models[0].tensors`, for a save of one model."""
        return self._alone.tensors

    @property
    def pairs(self) -> list[SavedTensor]:
        """The same as `models[0].pairs`, for a save of one model."""
        return self._alone.pairs

    @property
    def inputs_left(self) -> list[str]:
        """The same as `models[0].inputs_left`, for a save of one model."""
        return self._alone.inputs_left

    @property
    def initializers_kept(self) -> list[str]:
        """The same as `models[0].initializers_kept`, for a save of one model."""
        return self._alone.initializers_kept

    @property
    def kept_by_option(self) -> list[str]:
        """The same as `models[0].kept_by_option`, for a save of one model."""
        return self._alone.kept_by_option

    @property
    def slots_left(self) -> list[str]:
        """The same as `models[0].slots_left`, for a save of one model."""
        return self._alone.slots_left

    @property
    def left_old(self) -> list[str]:
        """The same as `models[0].left_old`, for a save of one model."""
        return self._alone.left_old

    @property
    def alignment(self) -> str:
        """The same as `models[0].alignment`, for a save of one model."""
        return self._alone.alignment

    @property
    def remarks(self) -> list[dict[str, Any]]:
        """The same as `models[0].remarks`, for a save of one model."""
        return self._alone.remarks

    @property
    def quantized(self) -> list[dict[str, Any]]:
        """The same as `models[0].quantized`, for a save of one model."""
        return self._alone.quantized

    @property
    def floats(self) -> list[dict[str, Any]]:
        """The same as `models[0].floats`, for a save of one model."""
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
        """Return a one-line summary; `repr()` returns the whole report."""
        where = self.models[0].model if len(self.models) == 1 else self.folder
        tensors = sum(len(model.tensors) for model in self.models)
        done = "dry run, nothing was written" if self.dry_run else "saved"
        done += ", complete" if self.complete else ", incomplete: not every weight has its value"
        done += ", verified" if self.verified else ""
        files = f"data files: {len(self.files)}"
        return f"{where}: tensors: {tensors}, {files}, bytes: {self.bytes:,}; {done}"


@dataclass(frozen=True)
class Finding:
    """One fault found in a model."""

    code: str
    """The violated rule, such as "crc-differs" (docs/cli.md lists all rules)."""
    tensor: str
    """The name of the initializer; empty if the fault concerns the whole model."""
    file: str
    """The data file, relative to the model; may be empty."""
    message: str
    """The fault, as a sentence."""

    def __str__(self) -> str:
        """Return the finding as one line, in the form that verify-external prints."""
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
    """The faults: at most 1,000, followed by a finding that gives the number of further faults."""
    tensors: int
    """The number of external tensors."""
    inline_tensors: int
    """The number of tensors stored inside the model that the manifest or the weights also have."""
    inline_uncompared: int
    """The number of float initializers stored inside the model that were not compared."""
    bytes: int
    """The number of bytes that were read."""
    compared: int
    """The number of `tensors` that were compared with the weights."""
    compared_by_manifest: int
    """The number of tensors in `compared` whose key is known only from the manifest."""
    converted: int
    """The number of tensors in `compared` that were converted to another type first."""
    linked: int
    """The number of `tensors` that refer to bytes of a checkpoint file (layout "link")."""
    linked_without_crc: int
    """The number of tensors in `linked` without a recorded CRC-32."""
    without_length: int
    """The number of `tensors` whose entry states no length; other readers may reject them."""
    used_manifest: bool
    """True if the model has a manifest and it was used."""
    overflowed: int = 0
    """The number of values that became infinite when the model was saved, from its manifest."""
    notes: list[str] = field(default_factory=list)
    """Remarks on unexpected facts, such as a file in a folder that was not read."""
    remarks: list[dict[str, Any]] = field(default_factory=list)
    """Irregularities in readable external data: `kind`, `first` and `tensors`, `message`."""
    models: dict[str, VerifyReport] = field(default_factory=dict)
    """The report of each file, for a folder of models that were saved together. The fields above
    then cover all models; bytes that several models share are counted for each model."""

    def __bool__(self) -> bool:
        """Return `ok`: True if the model has no faults and lacks no data."""
        return self.ok

    def __str__(self) -> str:
        """Return the verdict in one line, followed by a line for each finding."""
        verdict = "ok" if self.ok else f"findings: {len(self.findings)}"
        verdict += "" if self.complete else ", not every weight has its value"
        read = f"external tensors: {self.tensors}, bytes: {self.bytes:,}"
        where = "" if self._verified is None else f"{self._verified}: "
        return "\n".join([f"{where}{read}; {verdict}", *map(str, self.findings)])


@dataclass
class CutReport(_Document):
    """The contents of a model that was cut out of a larger one."""

    inputs: list[str]
    """The names of the piece's inputs, in their order; inputs with a default value come last."""
    outputs: list[str]
    """The names of the piece's outputs, in their order."""
    fed_back: list[str]
    """Inputs that, in the whole model, depend on an output of the piece."""
    untyped: list[str]
    """Outputs whose element type is not known."""
    nodes: int
    """The number of nodes in the main graph of the piece."""
    initializers: int
    """The number of initializers in the main graph of the piece."""
    functions: int
    """The number of functions that the piece calls, directly or through other functions."""
    weight_bytes: int
    """The size of all tensors of the piece, in data files or in the piece itself."""
    model_bytes: int
    """The size of the file of the piece."""
    data_files: list[str]
    """The data files that the piece refers to, relative to the folder of the model."""


@dataclass(frozen=True)
class InspectedTensor:
    """One tensor of a checkpoint or a model."""

    name: str
    """The key in a checkpoint, or the name of an initializer."""
    dtype: str
    """Torch's name of the element type, such as "bfloat16"."""
    shape: list[int]
    """The shape of the tensor in the file."""
    nbytes: int
    """The size of the tensor in bytes, if stored contiguously."""
    file: str | None = None
    """The file that contains the data; None unless the data is one contiguous range."""
    offset: int | None = None
    """The offset of the data in `file`."""
    view: dict[str, Any] | None = None
    """The layout of data that is not one contiguous range: `file`, `offset`, `strides`, ..."""
    sha256: str | None = None
    """With `sha256`: the SHA-256 of the tensor's bytes, contiguous, row-major and little-endian."""
    problem: str | None = None
    """The fault of an initializer whose entry violates the rules."""
    scheme: str | None = None
    """The scheme of a quantized matrix, listed in place of its parts: "int4/64, zero points, 5
    steps"."""
    key: str | None = None
    """The key of the checkpoint tensor from which a quantized matrix was made."""
    parts: list[dict[str, Any]] | None = None
    """The initializers that a quantized matrix consists of."""


@dataclass
class Inspection(_Document):
    """The contents of a checkpoint or a model."""

    format: str
    """The format, such as "torch-zip", "safetensors", "sharded safetensors", "dcp" or "onnx"."""
    tensors: list[InspectedTensor]
    """The tensors, in the order of the files."""
    bytes: int
    """The sum of all tensors' `nbytes`."""
    files: int
    """The number of files that were inspected."""
    file_bytes: int
    """The size of all inspected files in bytes."""
    version: str | None = None
    """The version of a torch archive or of GGUF, or the IR version and opsets of a model."""
    producer: str | None = None
    """The program that wrote a model, as stated in the model."""
    byte_order: str | None = None
    """The byte order: "little", "big" or "mixed"; None if the tensors have no bytes."""
    pickle_protocol: int | None = None
    """The protocol of the pickle that contains the names; 0 means protocol 0 or 1."""
    refusal: str | None = None
    """The reason why a save without a `key` would fail on the checkpoint; None if it would not."""
    open_slots: list[dict[str, Any]] = field(default_factory=list)
    """Names that a model uses but does not define."""
    node_tensors: list[dict[str, Any]] = field(default_factory=list)
    """Large tensors inside nodes of a model, such as Constant nodes."""
    tied: list[dict[str, str]] = field(default_factory=list)
    """Pairs of tensors that share their bytes."""
    tied_names: list[dict[str, str]] = field(default_factory=list)
    """Additional names that a file records for tensors stored under another name."""
    opaque_objects: list[dict[str, str]] = field(default_factory=list)
    """Objects of unknown classes, which were not searched for tensors."""
    refused_tensors: list[dict[str, str]] = field(default_factory=list)
    """Tensors that cannot be saved, with the reasons."""
    notes: list[str] = field(default_factory=list)
    """Remarks on unexpected facts, such as a file in a folder that was not read."""
    metadata: dict[str, str] = field(default_factory=dict)
    """The keys of a GGUF file with their values as strings, long ones cut; "GGUF.tensor_types" has
    the types of its tensors with their numbers."""


_D = TypeVar("_D", bound=_Document)


def _report(cls: type[_D], document: dict[str, Any], **lists: type) -> _D:
    report = _make(cls, document, **lists)
    report._document = document
    return report


def save_report(result: _core.SaveResult) -> SaveReport:
    """Create the report on a save."""
    report = _make(SaveReport, json.loads(result.summary()))
    report._result = result
    return report


def save_report_of(document: dict[str, Any]) -> SaveReport:
    """Create the report on a save from its JSON document."""
    return _report(SaveReport, document)


def verify_report(text: str) -> VerifyReport:
    """Create the report on a verification from its JSON document."""
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
    """Add up the counts and lists of several reports; a flag is True only if it is True in each."""
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
    """Create an inspection from its JSON document."""
    return _report(Inspection, json.loads(text), tensors=InspectedTensor)


def cut_report(text: str) -> CutReport:
    """Create the report on a cut from its JSON document."""
    return _report(CutReport, json.loads(text))


_IN_EACH = ("unmatched_keys", "baked_keys", "unused_modules", "ignored_keys", "skipped_keys")
"""Lists of unused names. In a joint report, a name is unused only if no save uses it."""


def together(reports: Sequence[SaveReport]) -> SaveReport:
    """Combine the reports on several saves of one checkpoint, each with its own data files."""
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
    return _report(SaveReport, found)


def at(report: SaveReport, folder: Path) -> SaveReport:
    """Return a copy of a report in which the models are in another folder."""
    found = dict(report.to_dict())
    found["models"] = [
        {**each, "model": str(folder / Path(each["model"]).name)}
        for each in found.get("models", [found])
    ]
    return _report(SaveReport, found)


def on_models(report: SaveReport, models: Sequence[SavedModel]) -> SaveReport:
    """Return a copy of a report that covers only the given models."""
    made = _report(SaveReport, report.to_dict())
    made.models = list(models)
    return made
