"""Implements oe.validate."""

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
from .._comparing.running import Session, exact_providers
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
    """Return a model as a path or bytes for ONNX Runtime, and a name for messages."""
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
                f"the model cannot be serialized ({error}); save it, and pass its path"
            ) from error
    raise wrong_type(argument, "a model (a path, bytes or an object)", model)


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, (torch.nn.Module, torch.export.ExportedProgram))


def _program_of(path: StrPath) -> Any:
    """Load an ExportedProgram from a file."""
    try:
        import torch

        return torch.export.load(os.fspath(path))
    except Exception as error:
        raise InvalidArgumentError(
            f"{os.fspath(path)}: torch.export cannot load it: {error}"
        ) from error


_REFERENCES = (
    "a torch module, an exported program (.pt2), another model (.onnx), recorded sets "
    "(test_data_set_0, .npz), or a transformers folder"
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
            f"against: {against.__name__} is a class; pass a module: "
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
    """Validate a model that is not one of the graphs exported from a transformers model."""
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
    """Validate the graphs of a transformers model, one after another."""
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
        raise InvalidArgumentError("text: no graph returns logits for the tokens of a text")
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
                "dims, ranges and sets are for generated inputs; a transformers model is compared "
                "on its own examples, or on inputs="
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
            raise InvalidArgumentError(f"{', '.join(given)}: only for a transformers folder")
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
    """Run a model on ONNX Runtime, and compare its outputs with expected outputs.

    Args:
        model: a model (its path, bytes, or an object of onnx, onnx_ir or torch.onnx), a folder with
            one model, a transformers folder, which is exported first, or a folder of graphs
            exported from a transformers model.
        against: the reference: a torch module or an ExportedProgram (or its .pt2 file); another
            model; recorded input sets (a folder of test_data_set_N, an .npz file); expected outputs
            as a dict of arrays; a transformers folder, or a GGUF model. None: the input sets next
            to the model, or the transformers folder itself.
        inputs: the arguments of a module (a tensor, a tuple of arguments, a dict of keywords, or a
            tuple and a dict), a dict by the model's input names, a list of such inputs, or recorded
            sets. None: the inputs that were recorded or exported with the reference; otherwise
            inputs are generated.
        dims: sizes of dimensions in generated inputs, by name; a list contains a size for each set.
        ranges: the minimum and the maximum value of generated inputs, by input name; by default,
            floats are drawn from a standard normal distribution, and integers are 0 or 1.
        seed: the seed for generated inputs.
        sets: the number of input sets to generate.
        atol: the absolute tolerance. Floats agree if their difference is at most atol + rtol *
            |expected|; by default, both tolerances depend on the type (docs/python-validate.md).
        rtol: the relative tolerance; see `atol`.
        text: a text file that the model was not trained on, for a transformers folder with a
            tokenizer. The loss caused by quantization is measured on this text.
        max_kl: the maximum mean KL divergence from the reference, in nats, for a model that returns
            logits. docs/python-validate.md states the default limits for quantized models.
        min_agreement: the minimum share of positions at which both models have the same largest
            logit.
        max_error: the maximum relative error (root mean square) of the outputs of a model without
            logits, or of the logits if max_kl is not given.
        providers: the execution providers for ONNX Runtime, e.g. "cuda"; by default "cpu".
        latency: the number of runs on the first set whose duration is measured.
        memory: report the memory for loading and running the model.
        dump: a folder for the inputs, the outputs and the expected outputs.
        overwrite: replace existing sets in `dump`, and existing files of the export.
        output: the folder to which a transformers folder is exported; by default a temporary
            folder, which is removed.
        task: the task for a transformers folder, as in oe.transformers.export().
        dtype: the float type, as in oe.transformers.export().
        variant: the variant of the weights, as in oe.transformers.export().
        dynamic: whether dimensions are dynamic, as in oe.transformers.export().
        layout: the layout of the data, as in oe.transformers.export(), which has the default.
        progress: as in oe.save(); each step is reported with sizes of 0.

    Returns:
        A report with `ok`, `sentence` (the outputs that do not agree, and likely reasons), `graphs`
        (the inputs, outputs, differences and quality of each model) and `html()` (the report as a
        page).

    Raises:
        RunError: ONNX Runtime cannot run the model, or the reference cannot be run.
        MismatchError: the inputs or outputs of the model and of the reference do not match.
        Error: any other problem prevents the comparison.
    """
    settings = Settings(
        exact_providers(providers),
        atol,
        rtol,
        latency,
        memory,
        None if dump is None else Path(dump),
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
