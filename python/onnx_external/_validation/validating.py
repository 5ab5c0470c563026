"""Implementation of oe.validate."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base.argument_types import checks_types, path_of, wrong_type
from .._base.errors import InvalidArgumentError, ReadWriteError, WrongTypeError
from .._base.meter import Meter, anonymous_memory, versions
from .._base.options import FloatType, LayoutName, StrPath
from .._base.progress import Progress, told
from .._comparing.giving import chosen_sets, is_path
from .._comparing.inputs import Making
from .._comparing.quality import Limits
from .._comparing.recorded import check_free, is_recorded
from .._comparing.references import (
    ModuleReference,
    OnnxReference,
    RecordedReference,
    Reference,
)
from .._comparing.running import Session, provider_names
from .._folders.gguf.folder import as_folder
from .._folders.models import has_models, is_transformers, model_in
from .comparing_sets import Settings, added_memory, compared_on_sets
from .folders import opened
from .mistaken import refuse_mistaken
from .reports import GraphValidation, Validation
from .texts import quality_on_text

if TYPE_CHECKING:
    from ..transformers._compared import Folder

_PACKAGES = ("numpy", "onnx", "onnxruntime", "torch", "transformers", "onnx-external")


def _model_of(model: Any, call: str = "oe.validate({}, ...)") -> tuple[Any, str]:
    """Return a path or bytes for ONNX Runtime, and a name for messages."""
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
    """Load an ExportedProgram from its file."""
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


def _reference(against: Any, model: Any, settings: Settings) -> Reference:
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


def _session(model: Any, name: str, settings: Settings) -> tuple[Session, int | None]:
    before = anonymous_memory()
    with settings.meter.step("load"):
        session = Session(model, settings.providers, name)
    return session, added_memory(settings.meter, before) if settings.memory else None


def _one_model(
    model: Any, against: Any, inputs: Any, making: Making, settings: Settings
) -> GraphValidation:
    """Validate a model that is not one of transformers' graphs."""
    if against is None and inputs is None and hasattr(model, "exported_program"):
        against = model
    source, name = _model_of(model)
    session, added = _session(source, name, settings)
    reference = _reference(against, model, settings)
    sets = chosen_sets(session, source, reference, against, inputs, making)
    stem = Path(name).stem if is_path(model) else "model"
    found = compared_on_sets(session, reference, sets, settings, stem)
    found.load_memory = added
    return found


def _of_folder(folder: Folder, settings: Settings) -> list[GraphValidation]:
    """Validate the graphs of a model of transformers, one after the other."""
    found = []
    with settings.meter.step("load reference"):
        graphs = folder.graphs()
    dump = settings.dump
    for name, path in folder.models.items():
        reference, sets, notes = graphs[name]
        session, added = _session(str(path), str(path), settings)
        if dump is not None and len(folder.models) > 1:
            settings.dump = dump / name
        compared = compared_on_sets(session, reference, sets, settings, name, folder.dtype)
        compared.load_memory = added
        compared.notes += notes
        if settings.text is not None:
            limits = settings.limits if compared.quality is None else compared.quality.limits
            with settings.meter.step(f"run {name} on {settings.text.name}"):
                quality = quality_on_text(session, reference, folder, sets, settings.text, limits)
            compared.quality = quality or compared.quality
        found.append(compared)
    settings.dump = dump
    found[0].notes += folder.notes_on_weights()
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
    settings: Settings,
) -> Validation:
    exported = None
    if is_transformers(model if against is None else against):
        if making.is_asked:
            raise InvalidArgumentError(
                "dims, ranges and sets are for generated inputs; a model of transformers is "
                "compared on examples of its own, or on inputs="
            )
        exporting["overwrite"] = overwrite
        with (
            as_folder(model) as made,
            as_folder(against) as beside,
            opened(made, beside, inputs, exporting, settings.meter) as folder,
        ):
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
    """Run a model on ONNX Runtime, and compare its outputs with expected ones.

    Args:
        model: a model (its path, bytes, or an object of onnx, onnx_ir or torch.onnx), the folder
            of one, a folder of transformers, which is exported first, or a folder of its graphs.
        against: a module of torch or an ExportedProgram (or its .pt2 file); another model;
            recorded sets (a folder of test_data_set_N, an .npz file); expected outputs as a dict
            of arrays; a folder of transformers, or a GGUF model. None: the sets beside the model,
            or the folder itself.
        inputs: as a module takes them (a tensor, a tuple of arguments, a dict of keywords, or a
            tuple and a dict), by the model's names, a list of such, or recorded sets. None: those
            that were recorded or exported with the reference; else they are made.
        dims: sizes for inputs that are made, by name; a list has one for each set.
        ranges: the least and the largest value of inputs that are made; by default floats are
            standard normal and integers 0 or 1.
        seed: the seed for inputs that are made.
        sets: the number of sets to make.
        atol: floats agree if their difference is at most atol + rtol * |expected|; by default
            these depend on the type (docs/python-validate.md).
        rtol: likewise.
        text: a text file that the model was not trained on, for a folder of transformers with its
            tokenizer. The loss of a quantized model is then measured on it.
        max_kl: the largest mean KL divergence from the reference, in nats, of a model that returns
            logits. docs/python-validate.md has the default limits of quantized models.
        min_agreement: the least share of positions with the same largest logit.
        max_error: the largest relative error (root mean square) of a model without logits, or of
            its logits if max_kl is not given.
        providers: the providers of ONNX Runtime, e.g. "cuda"; by default the CPU's.
        latency: the number of runs on the first set to measure their duration.
        memory: report the memory for loading and running it.
        dump: a folder for the inputs, the outputs and the expected outputs.
        overwrite: replace sets in `dump`, and files of the export.
        output: the target of the export of a transformers folder; by default a temporary folder,
            which is removed.
        task: the task for a folder of transformers, as for oe.transformers.export().
        dtype: likewise.
        variant: likewise.
        dynamic: likewise.
        layout: likewise. None: the default of that function.
        progress: as for oe.save(); each step is reported with sizes of 0.

    Returns:
        A validation: `ok`, `sentence` (the outputs that do not agree, and likely reasons), `graphs`
        (the inputs, outputs, differences and quality of each model), `html()` (a page).

    Raises:
        RunError: ONNX Runtime, or the reference, cannot run the model.
        MismatchError: inputs or outputs of the two sides do not match.
        Error: any other fault that prevents the comparison.
    """
    settings = Settings(
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
