"""oe.torch.skeleton and oe.torch.export."""

from __future__ import annotations

import os
import re
from collections import abc
from collections.abc import Collection, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from .._base.argument_types import checks_types, of_class, path_of
from .._base.errors import ExportError, InvalidArgumentError, NotFoundError, RewriteError, chain
from .._base.meter import Meter, Step, Stepwise, screen, versions
from .._base.notes import UNCHECKED, Note, kind_of
from .._base.options import FloatType, Layout, LayoutName, Mapping, StrPath, Weights, contents_of
from .._base.packages import CONVERSION, require
from .._base.progress import Progress, shown
from .._comparing.randomness import drawing_of_program
from .._control_flow import Rewriting
from .._folders.preconditions import note_of_state, refuse_existing, warn
from .._saving.reports import SavedModel, SaveReport
from .._saving.save import save
from .._saving.transposing import refuse_linked, with_pairs
from .._sources.checkpoint import open_checkpoint
from .._tracing.classes import known_classes
from .._tracing.surroundings import Call
from ._arguments import check_onnx_options, check_weights, extra_of
from ._checking import (
    Checked,
    Checking,
    UnloadableGraphError,
    WrongGraphError,
    half_types,
    refuse_broken,
    refuse_unloadable,
    why_not,
)
from ._complex_numbers import paired
from ._dimension_names import name_sizes
from ._dynamic_shapes import check_shapes
from ._input_sets import calls_of, fixed_sizes, refuse_no_inputs, shapes_of
from ._opsets import with_opset
from ._output_names import name_outputs
from ._plain_saving import save_alone
from ._programs import Captured, captured, check_initialized
from ._repeated import NotRepeatedError
from ._rewritten import ModuleWays, Rewrite, may_repeat
from ._skeleton import Skeleton, left_of, make_skeleton
from ._targets import Program, Target, checked_target, made_of
from ._tracing import Tracer
from ._untouched import has_no_data

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir

PACKAGES = ("torch", "onnx", "onnx-ir", "onnxscript", "transformers", "onnx-external")
"""What takes part in an export."""


@dataclass(frozen=True)
class Source:
    """Where the values of an initializer came from."""

    origin: str
    """ "checkpoint", "module" (its own weights), "init" (the module computed it) or "constant" (of
    the trace)."""
    key: str | None = None
    """The key that filled it; None if none did."""
    recipe: list[Any] = field(default_factory=list)
    """The steps that made it from the key, as in a map file."""


_GUARDS_SHOWN = 3
"""In the text of a report."""
_SHOWN = (UNCHECKED, "other-opset", "fixed-sizes", "changed-state")
"""The kinds of the notes in it."""


@dataclass
class ExportReport(Stepwise):
    """What an export did."""

    path: str
    """The model's file."""
    sources: dict[str, Source]
    """By initializer: where its values came from."""
    steps: list[Step]
    """What was done, with its time and memory."""
    versions: dict[str, str]
    """Of the packages that took part."""
    patches: list[str]
    """What was changed in torch and transformers while the model was traced."""
    checked: int
    """Input sets, the example among them, on which the graph gave what the module gives."""
    guards: list[str]
    """What the trace assumed about sizes, such as "x.size()[1] > 6", or "words > 6" if
    `dynamic_shapes` calls it so, with the line of the code. One that rules out a single size is
    left out if the graph was right for a set of that size."""
    rewriting: Rewriting
    """What was rewritten so that the module could be exported: diffs, and what no set reached."""
    notes: list[str]
    """How it was traced, if not in the usual way, that all sizes are fixed if nobody said which
    vary, and why it was not checked."""
    left: dict[str, int]
    """What an optimizer that has the weights would have done, and the save did not."""
    save: SaveReport
    """What was saved, and where each tensor lies."""
    made_sets: int = 0
    """The sets among `checked` that nobody gave: the example, made with other sizes."""

    @property
    def complete(self) -> bool:
        """Whether every weight has its value, as `save.complete`."""
        return self.save.complete

    @property
    def verified(self) -> bool:
        """Whether every byte that was written was read back, as `save.verified`."""
        return self.save.verified

    def __str__(self) -> str:
        """Return what was exported in a line, and what was not compared; `repr()` has all of it."""
        told = f"{self.save}; input sets on which it was compared: {self.checked}"
        if self.made_sets:
            told += f" ({self.made_sets} of them made with other sizes)"
        told += "".join(f"; {note}" for note in self.notes if kind_of(note) in _SHOWN)
        told += "".join(f"; {note}" for note in self.rewriting.notes)
        if self.rewriting.changes:
            told += f"; rewritten functions: {len(self.rewriting.changes)}"
        if self.rewriting.unreached:
            told += f"; ways that no input set takes: {len(self.rewriting.unreached)}"
            told += "".join(f"\n  {each}" for each in self.rewriting.unreached)
        return screen((told + self._limits()).split("\n"), width=1_000)

    def _limits(self) -> str:
        """The sizes for which the graph holds, as far as the trace has limited them."""
        shown = [f"\n  it holds for sizes with {each}" for each in self.guards[:_GUARDS_SHOWN]]
        more = len(self.guards) - len(shown)
        return "".join(shown) + (f"\n  and {more} more in report.guards" if more else "")

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists."""
        parts = {
            name: value
            for name, value in vars(self).items()
            if name not in ("save", "sources", "steps", "rewriting")
        }
        parts["rewriting"] = self.rewriting.to_dict()
        sources = {name: asdict(source) for name, source in self.sources.items()}
        steps = [asdict(step) for step in self.steps]
        return {**parts, "sources": sources, "steps": steps, "save": self.save.to_dict()}


class OptimizerError(ExportError):
    """torch's optimizer fails; the graph without it may be right."""


def optimized(model: onnx_ir.Model) -> onnx_ir.Model:
    """As torch.onnx.export(optimize=True) does it."""
    program = torch.onnx.ONNXProgram(model, None)
    try:
        program.optimize()
    except Exception as error:
        told = [str(each).strip().partition("\n")[0] for each in list(chain(error))[-2:]]
        words = ": ".join(dict.fromkeys(filter(None, told))) or type(error).__name__
        raise OptimizerError(
            f"torch's optimizer fails: {words}; optimize=False leaves it out"
        ) from error
    return program.model


def skeleton_of(
    found: Captured,
    meter: Meter,
    *,
    optimize: bool,
    extra: abc.Mapping[str, Any] | None = None,
    keep: Collection[str] = (),
) -> Skeleton:
    """Make the skeleton of a captured graph."""
    with meter.step("optimize"):

        def change(model: onnx_ir.Model) -> onnx_ir.Model:
            repetition = found.repetition
            starts = repetition.starts(model) if repetition is not None else {}
            model = optimized(model) if optimize else model
            if repetition is not None:
                repetition.repeat(model, found.program.exported_program, starts)
            model, found.opset_kept = with_opset(model, found.opset)
            return model

        made = make_skeleton(found.program.model, extra or {}, keep, change)
        name_outputs(made.model, found.outputs_named)
        if found.sizes_named is not None:
            name_sizes(made.model, found.sizes_named)
    made.ties = {name: found.ties[name] for name in made.slots if name in found.ties}
    named = found.sizes_named or {}
    made.guards = [found.sizes.worded(each, named) for each in found.sizes.guards]
    return made


@checks_types
@known_classes((), None)  # those of oe.register_class()
def skeleton(
    target: Target,
    args: Any = (),
    kwargs: abc.Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    *,
    optimize: bool = True,
    extra: abc.Mapping[str, Any] | None = None,
    keep: Collection[str] = (),
    transpose_weights: bool = False,
    input_sets: Sequence[Any] = (),
    rewrite: Rewrite = "auto",
    asserts: Literal["omit", "refuse"] = "omit",
    max_iterations: int | None = None,
    onnx_options: abc.Mapping[str, Any] | None = None,
) -> Skeleton:
    """Return the graph of a module without weights: typed slots, and values that no file has.

    Args:
        target: a module in eval mode (its parameters may be real, mapped, or on meta), a function
            that makes one, which is called so that no parameter takes memory, or what
            torch.export.export or torch.onnx.export(optimize=False) returned.
        args: what the module is called with: a tensor, a tuple of positional inputs, or a dict of
            inputs by name. Arrays of numpy become tensors.
        kwargs: inputs by name, beside positional ones.
        dynamic_shapes: as for export().
        optimize: run torch's optimizer on the skeleton. Names and shapes of weights stay.
        extra: values for buffers and constants that have none, by name.
        keep: parameters and persistent buffers whose values are the module's and stay in the graph.
        transpose_weights: instead of a weight and a Transpose node the graph has a transposed
            weight, as torch's optimizer would leave it. The slot of `fc.weight` is then called
            `fc.weight.transposed`. `Skeleton.save()` and `oe.save()` do so by default.
        input_sets: as for export(). The graph is not run; `Skeleton.guards` lists what the trace
            assumed, and a set for which it does not hold is refused.
        rewrite: as for export(); so are `asserts` and `max_iterations`.
        asserts: as for export().
        max_iterations: as for export().
        onnx_options: of torch.onnx.export: `input_names`, `output_names`, `opset_version`,
            `custom_translation_table`.

    Raises:
        ExportError: torch cannot trace or convert the module.
        InvalidArgumentError: the module is in training mode, buffers or constants have no values,
            or weights were folded already.
    """
    meter = Meter()
    require("torch.onnx", *CONVERSION)
    extra = extra_of(extra)
    check_onnx_options(onnx_options)
    traced, is_made = made_of(checked_target(target), meter)
    calls = calls_of(traced, args, kwargs, input_sets)
    check_shapes(traced, calls, dynamic_shapes)
    shapes = dynamic_shapes or shapes_of(traced, calls)

    def capture(tracer: Tracer) -> Skeleton:
        given = (*ways.example, shapes, onnx_options or {}, meter, tracer, False, is_made)
        with captured(traced, *given) as found:
            refuse_broken(found.sizes, calls)
            made = skeleton_of(found, meter, optimize=optimize, extra=extra, keep=keep)
            if found.opset_kept:
                raise InvalidArgumentError(found.opset_kept)
            return made.transposed() if transpose_weights else made

    ways = ModuleWays(traced, calls, rewrite, asserts, max_iterations, changes_example=True)
    return ways.first(capture, lambda _: None)[0]


def ties_for(made: Skeleton, keys: Set[str]) -> dict[str, str]:
    """For slots whose name no key has: the key with another name of the same tensor."""
    return {
        slot: next(name for name in names if name in keys)
        for slot, names in made.ties.items()
        if slot not in keys and not keys.isdisjoint(names)
    }


def _names(weights: Weights) -> set[str]:
    """The keys of a checkpoint in any form that oe.save() takes."""
    if isinstance(weights, abc.Mapping):
        return set(weights)
    if isinstance(weights, nn.Module):
        return set(weights.state_dict())
    if not isinstance(weights, (str, os.PathLike)):
        return {name for one in weights for name in _names(one)}
    with open_checkpoint(weights) as checkpoint:
        return set(checkpoint)


def _weights_of(target: nn.Module | Program, made: Skeleton) -> dict[str, torch.Tensor] | None:
    """The weights of the target that the graph needs. None if it has none with values."""
    needed = made.named()
    return {
        name: paired(tensor.detach())
        for name, tensor in _state_of(target).items()
        if name in needed and not has_no_data(tensor)
    } or None


def _state_of(target: nn.Module | Program) -> dict[str, torch.Tensor]:
    """The tensors of the state dict of a target; extra state may be anything else."""
    program = target.exported_program if isinstance(target, torch.onnx.ONNXProgram) else target
    state: abc.Mapping[str, Any] = {}
    if isinstance(program, nn.Module):
        state = program.state_dict()
    elif program is not None:
        state = program.state_dict
    return {name: each for name, each in state.items() if isinstance(each, torch.Tensor)}


def sources_of(
    made: Skeleton, report: SaveReport | SavedModel, origin: str = "checkpoint"
) -> dict[str, Source]:
    """Where each initializer's values came from; `origin`: of those that were filled."""
    found = {name: Source(kind) for name, kind in made.constants.items()}
    for tensor in report.tensors:
        if tensor.key is not None:
            found[tensor.slot] = Source(origin, tensor.key, tensor.recipe)
    return found


def left_in(made: Skeleton, report: SaveReport | SavedModel) -> dict[str, int]:
    """As `Skeleton.left`, of the model that was saved."""
    return left_of(made.model, made.slots.keys() & {tensor.slot for tensor in report.tensors})


def _save(made: Skeleton, path: StrPath, weights: Weights | None, **options: Any) -> SaveReport:
    graph = made.SerializeToString() if options.get("layout") == "link" else made
    try:
        return save(graph, path, weights, **options)
    except NotFoundError:
        if weights is not None or made.slots:
            raise
    return save_alone(made, path, options)  # there is nothing to store beside the graph


def _run_by(target: nn.Module | Program, weights: Any, is_made: bool) -> Any:
    """What computes with the weights of the graph; None if nothing here does."""
    if weights is None:
        return getattr(target, "exported_program", target)
    if isinstance(weights, nn.Module) and (is_made or type(weights) is type(target)):
        return weights
    return None


@dataclass
class _Attempt:
    """One graph, and what is to be stored with it."""

    found: Captured
    made: Skeleton
    weights: Weights | nn.Module | None
    options: dict[str, Any]
    tracer: Tracer
    checked: Checked = field(default_factory=Checked)
    note: str = ""

    def take(self, other: _Attempt) -> None:
        """Become another attempt."""
        vars(self).update(vars(other))

    def take_weights(self, target: nn.Module | Program, keep: Collection[str]) -> None:
        """Take the weights of a module, and say which are kept, without use, or tied."""
        own = self.weights is None
        if self.weights is None or isinstance(self.weights, nn.Module):
            self.weights = _weights_of(target if own else self.weights, self.made)
        mapping: Mapping = self.options["mapping"]
        if not own:
            given = mapping.ignore or []
            spare = {*keep, *(_state_of(target).keys() - self.made.named())}
            ignored = [f"^{re.escape(name)}$" for name in sorted(spare)]
            mapping = replace(
                mapping, ignore=[*([given] if isinstance(given, str) else given), *ignored]
            )
        if self.made.ties and self.weights is not None:
            ties = ties_for(self.made, _names(self.weights))
            mapping = replace(mapping, map=with_pairs(ties, mapping.map))
        self.options["mapping"] = mapping

    def save_into(self, path: Path) -> None:
        """Save it for a while, to run it."""
        given = {"mapping": self.options["mapping"], "files": contents_of(self.options["files"])}
        _save(self.made, path, self.weights, progress=False, fsync=False, verify=False, **given)

    def compared(
        self, runs: Any, calls: Sequence[Call], check: bool | None, meter: Meter, **tolerance: Any
    ) -> Checked:
        """Compare the graph with the module, or refuse sets for which it may be wrong."""
        found, converts = self.found, self.options["dtype"] or self.options["mapping"].cast
        reason = "the weights are converted" if converts else why_not(runs, check)
        if check is False or reason or self.options["dry_run"]:
            refuse_broken(found.sizes, calls)
            if check and reason:
                raise ExportError(f"check=True: the graph cannot be checked: {reason}")
            note = Note(f"not checked: {reason}", UNCHECKED)
            return Checked(0, [note] if reason and check is None else [])
        draws = [] if found.traced is None else drawing_of_program(found.traced)
        types = [] if found.traced is None else half_types(found.traced)
        with meter.step("check"):
            makes_sets = isinstance(runs, nn.Module)
            checking = Checking(runs, found.sizes, calls, draws, types, makes_sets, **tolerance)
            checking.changed, checking.state_named = found.changed, found.state_named
            return checking.run(self.save_into)


@checks_types
@known_classes((), None)  # those of oe.register_class()
def export(
    target: Target,
    args: Any,
    path: StrPath,
    kwargs: abc.Mapping[str, Any] | None = None,
    *,
    weights: Weights | nn.Module | None = None,
    input_sets: Sequence[Any] = (),
    dynamic_shapes: Any = None,
    layout: LayoutName = "single",
    dtype: FloatType | torch.dtype | np.dtype[Any] | None = None,
    overwrite: bool = False,
    verify: bool = True,
    fsync: bool = True,
    dry_run: bool = False,
    threads: int = 0,
    progress: Progress = None,
    extra: abc.Mapping[str, Any] | None = None,
    mapping: Mapping | None = None,
    files: Layout | None = None,
    optimize: bool = True,
    keep: Collection[str] = (),
    onnx_options: abc.Mapping[str, Any] | None = None,
    check: bool | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    repeat: bool = True,
    rewrite: Rewrite = "auto",
    asserts: Literal["omit", "refuse"] = "omit",
    max_iterations: int | None = None,
    unreached: Literal["note", "refuse"] = "note",
    state: Literal["note", "outputs"] = "note",
) -> ExportReport:
    """Export a module with its weights, or with those of files, which are not read into memory.

    ```python
    oe.torch.export(module.eval(), (ids,), "out/model.onnx")
    ```

    Args:
        target: a module in eval mode (its parameters may be real, mapped, or on meta), a function
            that makes one, which is called so that no parameter takes memory, or what
            torch.export.export or torch.onnx.export(optimize=False) returned.
        args: what the module is called with, an example that is traced: a tensor, a tuple of
            positional inputs, or a dict of inputs by name. Arrays of numpy become tensors.
        path: the model's file ("out/model.onnx"), or the folder of a "model.onnx".
        kwargs: inputs by name, beside positional ones.
        weights: the checkpoint, as for oe.save(), or a module that has them. None: the target's
            own; what it has none for (on meta) must be given, or is refused. Weights of the target
            that the graph does not use may be there, other keys not.
        input_sets: further inputs, which take other branches or have other sizes: each a tuple of
            arguments, a dict of keywords, or a pair of both. Without `dynamic_shapes`, the sizes
            vary that differ among the sets.
        dynamic_shapes: as torch.export.export takes them; a dimension may also be a string, which
            lets it vary under that name. None: all sizes are those of `args`, unless `input_sets`
            has others.
        layout: as for oe.save(): "single", "per-tensor", "shards", "inline" or "link".
        dtype: as for oe.save(): the float type to which the weights are converted.
        overwrite: replace a model that is there.
        verify: read everything back and compare every byte before the model appears.
        fsync: wait until the disk has it all.
        dry_run: trace and plan, but write nothing.
        threads: the most threads that a save uses; 0 means one per CPU.
        progress: as for oe.save(); the steps before a save are told with sizes of 0.
        extra: values for buffers and constants that have none, by name.
        mapping: as for oe.save(): which key fills which weight.
        files: as for oe.save(): what the files are called and how they are made.
        optimize: run torch's optimizer on the graph. Names and shapes of weights stay.
        keep: parameters and persistent buffers whose values are the module's and stay in the graph.
        onnx_options: of torch.onnx.export: `input_names`, `output_names`, `opset_version`,
            `custom_translation_table`.
        check: run the graph on ONNX Runtime before it is saved, and compare it with the module on
            the example and all input sets, or on sizes that are made if there are none. None: if
            onnxruntime is installed, the weights are the module's own, and have no more than
            1 GiB. False: never; sets for which a test on a size was decided otherwise are refused.
        atol: the difference from the module that the check takes for rounding, as for
            oe.validate(). None: by the types and the sizes of the results.
        rtol: likewise, for each unit of a result.
        repeat: trace a module whose lists of layers are alike with few of them, and repeat these in
            the graph, where it is proved that this gives the same. False: trace all layers.
        rewrite: what is done with tests and loops on tensors, see docs/python-rewriting.md. "auto":
            they are rewritten where the plain export fails or is wrong for a set; True: at once;
            False: never. The module is put back as it was.
        asserts: "omit" leaves assertions and exceptions on the values of tensors out of the graph,
            and says so in the report; "refuse" refuses them.
        max_iterations: the most rounds of a loop whose state grows, for which a graph needs a
            bound.
        unreached: what becomes of a branch, or of loops without or with one round, that no set
            reaches, so that nothing has compared them: "note" lists them in
            `report.rewriting.unreached`; "refuse" refuses them.
        state: what becomes of buffers that forward updates, and of inputs that it writes in place:
            "note" names them in `report.notes`, and the graph leaves them as they are; "outputs"
            makes their new values outputs behind all others, called after them ("output.NAME"
            where a weight or an input has the name).

    Returns:
        A report: `complete` (every weight has its value), `verified` (every byte was read back),
        `checked` (input sets on which ONNX Runtime gave what the module gives), `rewriting` (what
        was changed: `changes`, each with its diff, and `unreached`), `save` (the files).

    Raises:
        RewriteError: a test or a loop has no graph, or (`unreached="refuse"`) no set reaches a
            branch; the message names its line.
        ExportError: torch cannot trace or convert the module, or the graph is wrong for a set.
        MappingError: the module and the weights do not fit, or a weight has no value.
        Error: everything else, as oe.save() raises it. Nothing half-written stays.
    """
    options: dict[str, Any] = {
        "layout": layout,
        "dtype": dtype,
        "overwrite": overwrite,
        "verify": verify,
        "fsync": fsync,
        "dry_run": dry_run,
        "threads": threads,
        "mapping": of_class("mapping", Mapping, mapping),
        "files": of_class("files", Layout, files),
    }
    refuse_linked(options["files"].transpose_weights, layout)
    require("torch.onnx", *CONVERSION)
    target = checked_target(target)
    refuse_no_inputs(args)  # which says so if `path` stands there
    path_of("path", path)
    extra = extra_of(extra)
    check_onnx_options(onnx_options)
    check_weights(weights, options["files"].max_expand)
    if not overwrite and not dry_run:
        refuse_existing(path)
    with shown(progress) as callback:
        meter = Meter(callback)
        traced, is_made = made_of(target, meter)
        gives_state = state == "outputs"
        if gives_state and not isinstance(traced, nn.Module):
            raise InvalidArgumentError(
                'state="outputs" is for a module; of a program, let what was exported return it'
            )
        calls = calls_of(traced, args, kwargs, input_sets)
        check_shapes(traced, calls, dynamic_shapes)
        if isinstance(traced, nn.Module):
            check_initialized(traced)
        early = note_of_state(_state_of(traced))
        warn(early)
        settings = onnx_options or {}
        shapes = dynamic_shapes or shapes_of(traced, calls)

        def attempted(tracer: Tracer, optimize: bool, few: bool) -> _Attempt:
            given = (*ways.example, shapes, settings, meter, tracer, few, is_made, gives_state)
            with captured(traced, *given) as found:
                made = skeleton_of(found, meter, optimize=optimize, extra=extra, keep=keep)
            return _Attempt(found, made, weights, dict(options), tracer)

        def made_once(tracer: Tracer, optimize: bool) -> _Attempt:
            if gives_state or not (repeat and may_repeat(tracer) and not extra and not keep):
                return attempted(tracer, optimize, False)
            try:
                return attempted(tracer, optimize, True)
            except OptimizerError:  # of which the full trace would be no cure
                raise
            except ExportError as error:
                note = str(error) if isinstance(error, NotRepeatedError) else ""
            attempt = attempted(tracer, optimize, False)
            attempt.note = note
            return attempt

        def capture(tracer: Tracer) -> _Attempt:
            try:
                return made_once(tracer, optimize)
            except OptimizerError as error:  # which leaves a graph that is half-changed
                attempt = made_once(tracer, False)
                attempt.note = f"the graph is not optimized: {error}"
                return attempt

        def judge(attempt: _Attempt) -> None:
            try:
                judge_once(attempt)
            except (WrongGraphError, UnloadableGraphError):
                if attempt.found.repetition is None:
                    raise
                attempt.take(attempted(attempt.tracer, optimize, False))
                attempt.note = "traced in full, since the graph with repeated layers was wrong"
                judge_once(attempt)

        def judge_once(attempt: _Attempt) -> None:
            attempt.take_weights(traced, keep)
            runs = None
            if not extra and not options["mapping"].partial:
                runs = _run_by(traced, weights, is_made)
            attempt.checked = attempt.compared(runs, calls, check, meter, atol=atol, rtol=rtol)

        ways = ModuleWays(traced, calls, rewrite, asserts, max_iterations, changes_example=True)
        attempt, rewriting = ways.first(capture, judge)
        if unreached == "refuse" and rewriting.unreached:
            raise RewriteError(
                "; ".join(rewriting.unreached) + "; give an input set for each in input_sets="
            )
        made, checked = attempt.made, attempt.checked
        refuse_unloadable(checked.unloadable)
        with meter.step("save"):
            report = _save(
                made, path, attempt.weights, progress=callback or False, **attempt.options
            )
    return ExportReport(
        path=report.model,
        sources=sources_of(made, report, "module" if weights is None else "checkpoint"),
        steps=meter.steps,
        versions=versions(PACKAGES),
        patches=[],
        checked=checked.sets,
        guards=[
            text
            for text, guard in zip(made.guards, attempt.found.sizes.guards, strict=True)
            if str(guard) not in checked.disproved
        ],
        rewriting=rewriting,
        notes=[
            *early,
            *filter(None, [attempt.found.note, attempt.note]),
            *filter(None, [Note(attempt.found.opset_kept, "other-opset")]),
            *fixed_sizes(traced, calls, dynamic_shapes),
            *([] if gives_state else [each.note for each in attempt.found.changed]),
            *checked.notes,
            *rewriting.notes,
        ],
        left=left_in(made, report),
        save=report,
        made_sets=checked.made,
    )
