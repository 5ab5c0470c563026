"""oe.validate."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._base.argument_types import checks_types, path_of, wrong_type
from .._base.errors import InvalidArgumentError, ReadWriteError, WrongTypeError
from .._base.meter import Meter, anonymous_memory, versions
from .._base.options import FloatType, LayoutName, StrPath
from .._base.progress import Progress, told
from .._comparing.comparing import agree
from .._comparing.giving import chosen_sets, is_path
from .._comparing.inputs import Given, InputSet, Making
from .._comparing.precision import quantized, weight_type
from .._comparing.quality import Limits, QualitySums, default_limits, quantized_weights
from .._comparing.randomness import drawing_nodes
from .._comparing.reconsidering import Outputs
from .._comparing.recorded import check_free, is_recorded, write_set
from .._comparing.references import (
    ModuleReference,
    OnnxReference,
    RecordedReference,
    Reference,
    paired,
    pairs_of,
)
from .._comparing.running import Session, provider_names
from .._comparing.values import Value, type_name
from .._folders.models import has_models, is_transformers, model_in
from .folders import opened
from .mistaken import refuse_mistaken
from .reports import ComparedOutput, GraphValidation, ValidatedInput, Validation, latency_of
from .texts import quality_on_text

if TYPE_CHECKING:
    from ..transformers._compared import Folder

_PACKAGES = ("numpy", "onnx", "onnxruntime", "torch", "transformers", "onnx-external")


@dataclass
class _Settings:
    """What the comparison of every graph needs."""

    providers: list[Any]
    atol: float | None
    rtol: float | None
    latency: int
    memory: bool
    dump: Path | None
    meter: Meter = field(default_factory=Meter)
    limits: Limits = field(default_factory=Limits)
    text: Path | None = None

    @property
    def has_tolerance(self) -> bool:
        """Whether floats are held to a tolerance that was given."""
        return self.atol is not None or self.rtol is not None


def _model_of(model: Any, call: str = "oe.validate({}, ...)") -> tuple[Any, str]:
    """A path or bytes, as ONNX Runtime takes them, and what to call it."""
    argument = "model" if "({}" in call else "against"
    if is_path(model):
        path = model_in(path_of(argument, model), call)
        return path, path
    if isinstance(model, bytes):
        return model, "the model"
    proto = getattr(model, "model_proto", model)  # torch.onnx.ONNXProgram has it
    if hasattr(proto, "SerializeToString"):
        try:
            return proto.SerializeToString(), "the model"
        except Exception as error:
            raise InvalidArgumentError(
                f"the model cannot be serialized ({error}); save it, and give its path"
            ) from error
    raise wrong_type(argument, "a model (a path, bytes or an object)", model)


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, (torch.nn.Module, torch.export.ExportedProgram))


def _program_of(path: StrPath) -> Any:
    """An ExportedProgram from its file."""
    try:
        import torch

        return torch.export.load(os.fspath(path))
    except Exception as error:
        raise InvalidArgumentError(
            f"{os.fspath(path)}: torch.export cannot load it: {error}"
        ) from error


_REFERENCES = (
    "a module of torch, an exported program (.pt2), another model (.onnx), recorded sets "
    "(test_data_set_0, .npz), or a folder of transformers"
)


def _reference(against: Any, model: Any, settings: _Settings) -> Reference:
    if against is None or isinstance(against, (Mapping, list, tuple)):
        return RecordedReference()
    against = getattr(against, "exported_program", against)
    if _is_torch(against):
        return ModuleReference(against)
    if is_path(against):
        path = Path(against)
        if path.suffix == ".pt2":
            return ModuleReference(_program_of(path), str(path))
        if is_recorded(path) or (path.is_dir() and not has_models(path)) or path.suffix == ".npz":
            return RecordedReference()
        if path.suffix != ".onnx":
            known = model if is_path(model) else None
            refuse_mistaken(path, known, "oe.validate", _REFERENCES)
    elif isinstance(against, type):
        raise WrongTypeError(
            f"against: {against.__name__} is a class; give a module of it: "
            f"oe.validate(model, {against.__name__}().eval())"
        )
    source, name = _model_of(against, "oe.validate(..., {})")
    name = name if is_path(against) else "the other model"
    with settings.meter.step("load reference"):
        return OnnxReference(Session(source, settings.providers, name))


@dataclass
class _Comparing:
    """Runs a model and its reference on input sets, one after the other."""

    session: Session
    reference: Reference
    settings: _Settings
    found: GraphValidation
    sums: QualitySums | None = None
    """What is lost, if that is measured."""

    def run(self, sets: Sequence[InputSet], asked: str | None) -> None:
        """Run all sets; `asked`: the type that a reference was converted to."""
        found, session, reference = self.found, self.session, self.reference
        found.computes = _computes(session, reference, asked)
        found.draws += drawing_nodes(session.source)
        found.draws += [f"{each} of the reference" for each in reference.draws()]
        self._prepare_quality()
        names = [form.name for form in session.inputs]
        for number, each in enumerate(sets):
            given = each.load()
            if given.call is not None and isinstance(reference, ModuleReference):
                given.feed = dict(reference.feed(given.call, names))
                found.lacks = reference.lacking(given.call, names)
            misfits = session.misfits(given.feed) if each.may_misfit else []
            if misfits:
                found.notes.append(f"{each.name} is left out: {'; '.join(misfits)}")
                continue
            self._run_set(each.name, given, number)
        if self.sums is not None:
            found.quality = self.sums.found()
        elif found.wrong:
            found.quantized = quantized(session.source)

    def _prepare_quality(self) -> None:
        """Measure what a model loses whose weights are quantized, and those of its reference not.

        Its floats are then judged by that, unless a tolerance was given.
        """
        how, limits = quantized_weights(self.session.source), self.settings.limits
        if isinstance(self.reference, OnnxReference):
            how = None if quantized_weights(self.reference.session.source) else how
        if how is not None:
            self.found.quantized = how
            if not limits and not self.settings.has_tolerance:
                limits = default_limits(how)
        if how is not None or limits:
            self.sums = QualitySums("the input sets", limits)

    def _run_set(self, name: str, given: Given, number: int) -> None:
        found, session, settings = self.found, self.session, self.settings
        feed = session.feed(given.feed, name)
        given.feed = {name: given.feed[name] for name in feed}
        found.inputs += [
            ValidatedInput(name, key, *_form(value), given.how.get(key, given.origin))
            for key, value in feed.items()
        ]
        before, first = anonymous_memory(), not found.outputs
        with settings.meter.step(f"run {found.name} on {name}"):
            got = session.run(feed, name)
        if first and settings.memory:
            found.run_memory = _added(settings.meter, before)
        with settings.meter.step(f"reference of {found.name} on {name}"):
            want = self._wanted(given, name)
        names, types = session.output_names, found.computes
        outputs = Outputs(names, got, settings.atol, settings.rtol, types)
        if self._by_quality:
            compared = outputs.compared(self.reference, want)
        else:
            compared = outputs.judged(self.reference, given, name, want)
        for each in compared:
            mark = self._by_quality and each.precision is not None
            found.outputs.append(ComparedOutput(**{**vars(each), "set": name, "by_quality": mark}))
        if self.sums is not None:
            for output, left, right in pairs_of(names, got, want):
                self.sums.add(output, left, right)
        notes = [f"{each.output}: {each.note}" for each in compared if each.note]
        found.notes += [note for note in notes if note not in found.notes]
        if found.wrong and first and not found.draws:
            if not agree(got, session.run(feed, name)):
                found.draws.append("the model, by two runs that differ")
            if not agree(want, self.reference.outputs(given, name)):
                found.draws.append(f"{found.against}, by two runs that differ")
        if settings.dump is not None:
            pairs = paired(session.output_names, want)
            expected = {one: want[other] for _, one, other in pairs if one and other}
            write_set(settings.dump, number, feed, got, expected)
        if first and settings.latency:
            self._measure(name, feed, given)

    @property
    def _by_quality(self) -> bool:
        known = self.found.quantized is not None and self.sums is not None
        return known and not self.settings.has_tolerance

    def _wanted(self, given: Given, name: str) -> dict[str, Value]:
        """What the reference gives; what a module keeps for the next call is put back."""
        if not isinstance(self.reference, ModuleReference):
            return self.reference.outputs(given, name)
        from .._comparing.second_calls import first_call

        want, notes = first_call(self.reference, given, name)
        self.found.notes += [note for note in notes if note not in self.found.notes]
        return want

    def _measure(self, name: str, feed: Mapping[str, Value], given: Given) -> None:
        times = self.settings.latency
        self.found.latency = latency_of(self.session.seconds(feed, name, times))
        if isinstance(self.reference, OnnxReference):
            other = self.reference.session
            seconds = other.seconds(other.feed(given.feed, name), name, times)
            self.found.reference_latency = latency_of(seconds)


def _compared(
    session: Session,
    reference: Reference,
    sets: Sequence[InputSet],
    settings: _Settings,
    name: str,
    asked: str | None = None,
) -> GraphValidation:
    """Run all sets; `asked`: the type that a reference was converted to."""
    found = GraphValidation(name, session.name, reference.name, session.providers)
    _Comparing(session, reference, settings, found).run(sets, asked)
    return found


def _computes(session: Session, reference: Reference, asked: str | None) -> dict[str, str]:
    """The types of floats that values are computed in, which those of the outputs may hide."""
    types = {asked: "what was asked for"}
    if isinstance(reference, OnnxReference):
        types[weight_type(reference.session.source)] = "weights of the reference"
    types[weight_type(session.source)] = "weights"
    return {name: why for name, why in types.items() if name is not None}


def _form(value: Value) -> tuple[str, list[int]]:
    if isinstance(value, np.ndarray):
        return type_name(value), list(value.shape)
    return f"sequence of {len(value)}" if isinstance(value, list) else "none", []


def _added(meter: Meter, before: int | None) -> int | None:
    """What the last step added to the memory at most."""
    peak = meter.steps[-1].peak_memory
    return None if peak is None or before is None else max(0, peak - before)


def _session(model: Any, name: str, settings: _Settings) -> tuple[Session, int | None]:
    before = anonymous_memory()
    with settings.meter.step("load"):
        session = Session(model, settings.providers, name)
    return session, _added(settings.meter, before) if settings.memory else None


def _one_model(
    model: Any, against: Any, inputs: Any, making: Making, settings: _Settings
) -> GraphValidation:
    """A model that is not one of transformers' graphs."""
    if against is None and inputs is None and hasattr(model, "exported_program"):
        against = model
    source, name = _model_of(model)
    session, added = _session(source, name, settings)
    reference = _reference(against, model, settings)
    sets = chosen_sets(session, source, reference, against, inputs, making)
    stem = Path(name).stem if is_path(model) else "model"
    found = _compared(session, reference, sets, settings, stem)
    found.load_memory = added
    return found


def _of_folder(folder: Folder, settings: _Settings) -> list[GraphValidation]:
    """The graphs of a model of transformers, one after the other."""
    found = []
    with settings.meter.step("load reference"):
        graphs = folder.graphs()
    dump = settings.dump
    for name, path in folder.models.items():
        reference, sets, notes = graphs[name]
        session, added = _session(str(path), str(path), settings)
        if dump is not None and len(folder.models) > 1:
            settings.dump = dump / name
        compared = _compared(session, reference, sets, settings, name, folder.dtype)
        compared.load_memory = added
        compared.notes += notes
        if settings.text is not None:
            limits = settings.limits if compared.quality is None else compared.quality.limits
            with settings.meter.step(f"run {name} on {settings.text.name}"):
                quality = quality_on_text(session, reference, folder, sets, settings.text, limits)
            compared.quality = quality or compared.quality
        found.append(compared)
    settings.dump = dump
    if settings.text is not None and not any(one.quality and one.quality.tokens for one in found):
        raise InvalidArgumentError("text: no graph gives logits for the tokens of a text")
    return found


def _write_report(report: Validation, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(report.to_dict(), indent=2)
        (folder / "report.json").write_text(text, encoding="utf-8")
    except OSError as error:
        raise ReadWriteError(f"{folder}: cannot be written: {error.strerror}") from error


def _validated(
    model: Any,
    against: Any,
    inputs: Any,
    making: Making,
    exporting: dict[str, Any],
    overwrite: bool,
    settings: _Settings,
) -> Validation:
    exported = None
    if is_transformers(model if against is None else against):
        if making.is_asked:
            raise InvalidArgumentError(
                "dims, ranges and sets are for inputs that are made; a model of transformers is "
                "compared on examples of its own, or on inputs="
            )
        exporting["overwrite"] = overwrite
        with opened(model, against, inputs, exporting, settings.meter) as folder:
            exported = folder.exported
            graphs = _of_folder(folder, settings)
    else:
        exporting = exporting | {"text": settings.text}
        given = [name for name, value in exporting.items() if value is not None]
        if given:
            raise InvalidArgumentError(f"{', '.join(given)}: this is for a folder of transformers")
        graphs = [_one_model(model, against, inputs, making, settings)]
    dump = None if settings.dump is None else str(settings.dump)
    return Validation(graphs, dump, exported, settings.meter.steps, versions(_PACKAGES))


@checks_types
def validate(
    model: Any,
    against: Any = None,
    inputs: Any = None,
    *,
    dims: Mapping[str, int | Sequence[int]] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    seed: int = 0,
    sets: int | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    text: StrPath | None = None,
    max_kl: float | None = None,
    min_agreement: float | None = None,
    max_error: float | None = None,
    providers: str | Sequence[Any] | None = None,
    latency: int = 0,
    memory: bool = False,
    dump: StrPath | None = None,
    overwrite: bool = False,
    output: StrPath | None = None,
    task: str | None = None,
    dtype: FloatType | None = None,
    variant: str | None = None,
    dynamic: bool = True,
    layout: LayoutName | None = None,
    progress: Progress = None,
) -> Validation:
    """Run a model on ONNX Runtime, and compare what it gives with what is expected.

    Args:
        model: a model (its path, bytes, or an object of onnx, onnx_ir or torch.onnx), the folder
            of one, a folder of transformers, which is exported first, or a folder of its graphs.
        against: a module of torch or an ExportedProgram (or its .pt2 file); another model;
            recorded sets (a folder of test_data_set_N, an .npz file); expected outputs as a dict
            of arrays; a folder of transformers. None: the sets beside the model, or the folder
            itself.
        inputs: as a module takes them (a tensor, a tuple of arguments, a dict of keywords, or a
            tuple and a dict), by the model's names, a list of such, or recorded sets. None: those
            that were recorded or exported with the reference; else they are made.
        dims: sizes for inputs that are made, by name; a list has one for each set.
        ranges: the least and the largest value of inputs that are made; by default floats are
            standard normal and integers 0 or 1.
        seed: of inputs that are made.
        sets: how many are made.
        atol: floats agree if their difference is at most atol + rtol * |expected|; by default
            these depend on the type (docs/python-validate.md).
        rtol: likewise.
        text: a file of text that the model was not trained on, for a folder of transformers with
            its tokenizer. What a quantized model loses is then measured on it.
        max_kl: the largest mean KL divergence from the reference, in nats, of a model that gives
            logits. For these limits, docs/python-validate.md has the defaults of quantized models.
        min_agreement: the least share of positions with the same largest logit.
        max_error: the largest relative error (root mean square) of a model without logits, or of
            its logits if there is no max_kl.
        providers: of ONNX Runtime, e.g. "cuda"; by default the CPU's.
        latency: run the model so often on the first set, and report how long it took.
        memory: report how much memory loading and running it takes.
        dump: a folder for the inputs, the outputs and what was expected.
        overwrite: replace sets in `dump`, and files of the export.
        output: for a folder of transformers, where it is exported to; by default a temporary
            folder, which is removed.
        task: of a folder of transformers, as for oe.transformers.export().
        dtype: likewise.
        variant: likewise.
        dynamic: likewise.
        layout: likewise. None: the default of that function.
        progress: as for oe.save(); each step is told with sizes of 0.

    Returns:
        A validation: `ok`, `sentence` (what does not agree, and why that may be), `graphs` (the
        inputs, outputs, differences and quality of each model), `html()` (a page).

    Raises:
        RunError: ONNX Runtime, or the reference, cannot run the model.
        MismatchError: inputs or outputs of the two sides do not go together.
        Error: everything else that keeps the model from being compared.
    """
    settings = _Settings(
        provider_names(providers), atol, rtol, latency, memory, None if dump is None else Path(dump)
    )
    settings.limits = Limits(max_kl, min_agreement, max_error)
    settings.text = None if text is None else Path(path_of("text", text))
    making = Making(dims or {}, ranges or {}, seed, sets)
    if settings.dump is not None:
        check_free(settings.dump, overwrite)
    exporting = {
        "output": output,
        "task": task,
        "dtype": dtype,
        "variant": variant,
        "dynamic": None if dynamic else False,
        "layout": layout,
    }
    with told(progress) as callback:
        settings.meter = Meter(callback)
        report = _validated(model, against, inputs, making, exporting, overwrite, settings)
    if settings.dump is not None:
        _write_report(report, settings.dump)
    return report
