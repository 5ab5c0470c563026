"""Implementation of oe.diagnose."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any, get_args

from .._base.argument_types import checks_types
from .._base.errors import Error, InvalidArgumentError
from .._base.options import FloatType, StrPath
from .._base.progress import Progress, told
from .._base.temporary import temporary_folder
from .._comparing.comparing import agree
from .._comparing.giving import calls_of
from .._comparing.inputs import Given
from .._comparing.precision import quantized
from .._comparing.quality import quantized_weights
from .._comparing.randomness import drawing_nodes
from .._comparing.references import ModuleReference
from .._comparing.running import Session, provider_names
from .._comparing.values import Value
from .._folders.gguf.folder import as_folder
from .._folders.models import is_transformers, model_in
from .._saving.verify import inspect
from .._tracing.surroundings import Call, register_caches
from .._validation.folders import graph_of
from .._validation.mistaken import refuse_mistaken
from .judging import Judge
from .naming import check_choice, check_names, one_or_several
from .pieces import Boundary, Piece, load
from .recording import record
from .reports import Diagnosis, ModuleDiagnosis, title_of
from .unmarked import find_unmarked
from .walking import Strategy, Walk

_REFERENCES = "a module of torch, or a folder of transformers"


def _reference(
    model: str, against: Any, inputs: Any, task: str | None, dtype: str | None
) -> tuple[ModuleReference, list[Call], list[str]]:
    if is_transformers(against):
        with as_folder(against) as folder:
            reference, sets, notes = graph_of(model, folder, inputs, task, dtype)
            return reference, [each.load().call for each in sets], list(notes)
    import torch

    if not isinstance(against, torch.nn.Module):
        if isinstance(against, (str, os.PathLike)):
            refuse_mistaken(against, model, "oe.diagnose", _REFERENCES)
        raise InvalidArgumentError(
            f"against: expected {_REFERENCES}, not {against!r}; nothing else has modules whose "
            "values can be recorded; in a program: "
            f"oe.diagnose({os.fspath(model)!r}, module.eval(), x)"
        )
    return ModuleReference(against), calls_of(inputs), []


def _loaded(model: str, providers: list[Any]) -> tuple[Session, Piece]:
    """Load the whole model; return it also as the piece of the outermost module."""
    try:
        size = inspect(model).bytes
    except Error:  # ONNX Runtime reports the fault
        size = 0
    piece = Piece(model, [], [], size)
    whole = load(piece, providers, model, "")
    piece.inputs = [form.name for form in whole.inputs]
    piece.outputs = whole.output_names
    return whole, piece


def _fitting(
    reference: ModuleReference, whole: Session, calls: Sequence[Call], notes: list[str]
) -> tuple[list[int], list[Call], list[dict[str, Value]]]:
    """Return the calls that the model accepts, with their numbers and the model's inputs."""
    names = [form.name for form in whole.inputs]
    numbers: list[int] = []
    taken: list[Call] = []
    feeds: list[dict[str, Value]] = []
    for number, call in enumerate(calls):
        feed = reference.feed(call, names)
        misfits = whole.misfits(feed)
        if misfits and feeds:
            notes.append(f"input set {number} is left out: {'; '.join(misfits)}")
            continue
        feeds.append(whole.feed(feed, f"input set {number}"))
        taken.append(call)
        numbers.append(number)
    return numbers, taken, feeds


@checks_types
def diagnose(
    model: StrPath,
    against: Any,
    inputs: Any = None,
    *,
    strategy: Strategy = "always",
    opaque: str | type | Collection[Any] = (),
    follow: bool = False,
    atol: float | None = None,
    rtol: float | None = None,
    providers: str | Sequence[Any] | None = None,
    task: str | None = None,
    dtype: FloatType | None = None,
    progress: Progress = None,
) -> Diagnosis:
    """Find the modules whose part of a model computes something other than they do.

    Each module is cut out of the model and run on its inputs in the reference, so that an error in
    one does not affect the next. A wrong module is judged again around the wrong ones inside it, so
    that it is not blamed for their faults.

    Args:
        model: the path of the model, or of the folder that has it alone.
        against: the torch module that it was exported from, in eval mode, or the folder of
            transformers with the model; the name of the file ("model.onnx") then selects the graph.
        inputs: for a module, as it takes them: a tensor, a tuple of arguments, a dict of keywords,
            a tuple and a dict, or a list of such. For a folder as for oe.transformers.export().
        strategy: "always" judges all modules; "failing" looks into a module only if it goes wrong;
            "local" judges each by its own operations only, around all modules inside it, so that
            the model itself is `OK CHILDC` although its outputs are wrong, if a module inside is.
        opaque: names or classes of modules that are judged and not looked into.
        follow: also run each module on the values that the model computes before it, which shows
            where differences accumulate.
        atol: as for oe.validate().
        rtol: likewise.
        providers: likewise.
        task: the task for a folder, as for oe.transformers.export().
        dtype: likewise.
        progress: a callable (name of a module, its number, their count), called before each is
            judged, whose exceptions stop the work; True for lines on stderr, or False for none.
            None: a line if stderr is a terminal.

    Returns:
        A diagnosis: `ok`, `sentence` (the first module that goes wrong), `wrong` (all of them),
        `tree()` (a line for each module), `html()` (a page).

    Raises:
        RunError: ONNX Runtime cannot load the model, or the reference does not run.
        Error: everything else that keeps the model from being compared.
    """
    check_choice("strategy", strategy, get_args(Strategy))
    opaque = one_or_several(opaque)
    found, chosen = model_in(model, "oe.diagnose({}, ...)"), provider_names(providers)
    path = os.path.abspath(found)
    whole, root = _loaded(path, chosen)
    reference, calls, notes = _reference(found, against, inputs, task, dtype)
    register_caches(reference.module)  # so that the values in them are recorded
    check_names(reference.module, opaque=opaque)
    numbers, taken, feeds = _fitting(reference, whole, calls, notes)
    with temporary_folder() as folder:
        recorded = record(reference.module, taken, folder)
        boundary = Boundary(path, feeds, chosen, folder)
        types = {each for one in recorded for each in one.float_types}
        tolerance = (atol, rtol, types)
        unmarked = find_unmarked(path, root.outputs)
        judge = Judge(path, whole, root, boundary, len(feeds), tolerance, follow, unmarked)
        with told(progress, counted=True) as callback:
            modules = Walk(judge, recorded, strategy, opaque, callback).run()
    notes += filter(None, [unmarked.note])
    report = Diagnosis(path, modules, notes, numbers)
    results = sum(recorded[0].plain(0, "output"))
    if modules[0].sets and len(modules[0].sets[0]) < results:
        notes.append(
            f"Of {results} results of the model itself {len(modules[0].sets[0])} were compared: "
            "near to the others there is no output of the graph."
        )
    notes += _of_quantized(path, report)
    draws = drawing_nodes(path)
    if report.wrong and not draws and not _is_repeated(reference, taken[0]):
        draws = [f"{reference.name}, by two runs that differ"]
    if draws:
        notes.append(f"Random numbers are drawn, and may be what differs: {', '.join(draws)}.")
    return report


def _of_quantized(model: str, report: Diagnosis) -> list[str]:
    """Describe the tolerance of a module of a quantized model, and the usual one.

    If only weights are quantized, every such module differs, so the one that loses most is named.
    """
    worst = None if report.first is None else report.first.worst
    if worst is None or worst.precision is None or (found := quantized(model)) is None:
        return []
    text = found.advice(worst.atol, worst.rtol, worst.precision, worst.scale)
    told = [f"{text[0].upper()}{text[1:]}."]
    losses = [(share, each) for each in report.wrong if (share := _loss(each)) is not None]
    if losses and quantized_weights(model) is not None:
        share, most = max(losses, key=lambda pair: pair[0])
        told.append(
            f"Of the quantized modules, {title_of(most)} loses most: up to {share:.2g} times the "
            "scale of its output."
        )
    return told


def _loss(module: ModuleDiagnosis) -> float | None:
    """Return the largest difference of a module's output as a fraction of the output's scale."""
    worst = module.worst
    if worst is None or worst.max_abs is None or not worst.scale:
        return None
    return worst.max_abs / worst.scale


def _is_repeated(reference: ModuleReference, call: Call) -> bool:
    """Return whether the reference agrees with itself."""
    given = Given({}, call=call)
    runs = [reference.outputs(given, "input set 0") for _ in range(2)]
    return agree(*runs)
