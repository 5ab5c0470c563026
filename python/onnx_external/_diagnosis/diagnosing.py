"""Implements oe.diagnose."""

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
from .._comparing.running import Session, exact_providers, remarks_on
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

_REFERENCES = "a torch module or a transformers folder"


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
            f"against: expected {_REFERENCES}, not {against!r}, because the values of its modules "
            f"are recorded; in Python: oe.diagnose({os.fspath(model)!r}, module.eval(), x)"
        )
    return ModuleReference(against), calls_of(inputs), []


def _loaded(model: str, providers: list[Any]) -> tuple[Session, Piece]:
    """Load the whole model, and return it together with the piece of the outermost module."""
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
    """Return the calls that the model accepts: their numbers, the calls, and the model's inputs."""
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
    """Find the modules whose results in an ONNX model differ from those in its reference.

    Each module is cut out of the model and run on the inputs that it has in the reference, so that
    an error in one module does not affect the next. A wrong module is judged once more with the
    wrong modules inside it replaced, so that it is not blamed for their faults.

    Args:
        model: the path of the model, or of a folder with a single model.
        against: the torch module from which it was exported, in eval mode, or the transformers
            folder of the model. For a folder, the file name ("model.onnx") selects the graph.
        inputs: for a module, its arguments: a tensor, a tuple of arguments, a dict of keywords,
            a tuple and a dict, or a list of these. For a folder, as for oe.transformers.export().
        strategy: "always" judges all modules. "failing" looks inside a module only if it is wrong.
            "local" judges each module by its own operations only, with all modules inside it
            replaced, so the model itself is `OK CHILDC` if only modules inside it are wrong.
        opaque: names or classes of modules that are judged as a whole, without those inside them.
        follow: also run each module on the inputs that the model itself computes, which shows
            where differences accumulate.
        atol: as for oe.validate().
        rtol: as for oe.validate().
        providers: as for oe.validate().
        task: the task for a folder, as for oe.transformers.export().
        dtype: likewise.
        progress: a function that is called before each module is judged, with the module's name,
            its number and the number of modules; its exceptions stop the work. True prints lines
            to stderr, False prints nothing, None shows a line if stderr is a terminal.

    Returns:
        A diagnosis: `ok`, `sentence` (the first module that goes wrong), `wrong` (all of them),
        `tree()` (a line for each module), `html()` (a page).

    Raises:
        RunError: ONNX Runtime cannot load the model, or the reference does not run.
        Error: any other fault that prevents the comparison.
    """
    check_choice("strategy", strategy, get_args(Strategy))
    opaque = one_or_several(opaque)
    found, chosen = model_in(model, "oe.diagnose({}, ...)"), exact_providers(providers)
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
    notes += [*filter(None, [unmarked.note]), *remarks_on(chosen)]
    report = Diagnosis(path, modules, notes, numbers)
    results = sum(recorded[0].plain(0, "output"))
    if modules[0].sets and len(modules[0].sets[0]) < results:
        notes.append(
            f"Only {len(modules[0].sets[0])} of {results} results of the model itself were "
            "compared: no output of the graph is close to the others."
        )
    notes += _of_quantized(path, report)
    draws = drawing_nodes(path)
    if report.wrong and not draws and not _is_repeated(reference, taken[0]):
        draws = [f"{reference.name} (two runs of it differ)"]
    if draws:
        notes.append(
            f"The differences may be due to random numbers, which are drawn by {', '.join(draws)}."
        )
    return report


def _of_quantized(model: str, report: Diagnosis) -> list[str]:
    """Return notes on the tolerance for a quantized model, and on its least exact module.

    If only weights are quantized, every quantized module differs, so the notes name the module with
    the largest loss.
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
            f"The quantized module that loses most is {title_of(most)}: up to {share:.2g} times "
            "the scale of its output."
        )
    return told


def _loss(module: ModuleDiagnosis) -> float | None:
    """Return the largest difference of a module's output as a fraction of the output's scale."""
    worst = module.worst
    if worst is None or worst.max_abs is None or not worst.scale:
        return None
    return worst.max_abs / worst.scale


def _is_repeated(reference: ModuleReference, call: Call) -> bool:
    """Return whether two runs of the reference agree."""
    given = Given({}, call=call)
    runs = [reference.outputs(given, "input set 0") for _ in range(2)]
    return agree(*runs)
