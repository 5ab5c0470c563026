"""Compares a graph on ONNX Runtime with its module in torch, before anything is saved."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from .._base.errors import NO_KERNEL, Error, ExportError, MismatchError, RunError
from .._base.notes import UNCHECKED, Note
from .._base.packages import missing_text
from .._base.temporary import temporary_folder
from .._comparing.checked_runs import Tolerance, add_new, checked_run, on_cpu
from .._comparing.inputs import Given
from .._comparing.references import ModuleReference, training_mode_of
from .._comparing.second_calls import first_call
from .._comparing.values import Value, from_torch
from .._saving.programs import nodes_of
from .._tracing.surroundings import Call
from ._guards import Guard, Sizes
from ._other_sizes import other_sizes, resized
from ._state import Changed
from ._untouched import has_no_data

LARGEST = 1 << 30
"""The maximum size in bytes of the weights of a graph that is checked by default."""


class WrongGraphError(ExportError):
    """Raised if a graph's outputs differ from the module's, or would differ for some sizes."""

    def __init__(self, message: str, guards: Sequence[Guard] = ()) -> None:
        super().__init__(message)
        self.guards = list(guards)
        """The assumptions of the graph that the inputs violate."""


class UnloadableGraphError(ExportError):
    """Raised if ONNX Runtime cannot load a graph."""


@dataclass
class Checked:
    """The result of comparing a graph with its module."""

    sets: int = 0
    """The number of input sets on which the graph agrees with the module."""
    notes: list[str] = field(default_factory=list)
    made: int = 0
    """The number of compared sets that were generated from the example, with other sizes."""
    disproved: set[str] = field(default_factory=set)
    """Guards that do not limit the graph: it agrees with the module for sets that violate them."""
    unloadable: str = ""
    """The reason why ONNX Runtime cannot load the graph, if it lacks an operator for a type."""


def why_not(module: Any, asked: bool | None) -> str:
    """Return the reason why a graph cannot be compared with a module; "" if it can be.

    Args:
        module: a torch module or torch.export program; None if none has the weights' values.
        asked: True if the caller requested the check regardless of its cost.
    """
    if missing := missing_text("onnxruntime"):
        return missing
    if module is None:
        return (
            "no module has the values that weights=, extra= or mapping= provides; a module "
            "passed as weights= is run with its own values"
        )
    if not isinstance(module, nn.Module):
        return ""
    tensors = [*module.parameters(), *module.buffers()]
    if any(has_no_data(each) for each in tensors):
        return "the module has no weights of its own with which it could run"
    size = sum(each.numel() * each.itemsize for each in tensors)
    if size > LARGEST and not asked:
        return f"the weights have {size / 1e9:.1f} GB; check=True runs the graph nevertheless"
    return ""


@dataclass
class Checking:
    """Compares a graph with the module from which it was exported."""

    module: Any
    """The module, or a torch.export program."""
    sizes: Sizes
    calls: Sequence[Call]
    """The calls to compare: the example, and all further input sets."""
    draws: Sequence[str] = ()
    """The operators of the program that draw random numbers."""
    types: Collection[str] = ()
    """The 16-bit float types in which the program computes; they limit the precision of results."""
    makes_sets: bool = True
    """True if inputs of other sizes are generated when there is only an example."""
    atol: float | None = None
    """The absolute tolerance; None to choose it by the types and magnitudes of the results."""
    rtol: float | None = None
    changed: Sequence[Changed] = ()
    """Buffers and inputs that the module changes."""
    state_named: Sequence[str] = ()
    """The names of the outputs for `changed`; empty if the graph does not have these outputs."""
    _reference: Any = None

    def run(self, save_into: Callable[[Path], None]) -> Checked:
        """Save the graph to a temporary folder, and run it on all input sets.

        Args:
            save_into: a function that saves the graph to a given path.

        Raises:
            ExportError: the outputs of the graph differ from the module's.
        """
        found = Checked()
        if self.draws:
            found.notes.append(
                Note(f"not checked: random numbers are drawn by {', '.join(self.draws)}", UNCHECKED)
            )
            return found
        changed = self.changed if self.state_named else ()
        self._reference = StateReference(self.module, changed, self.state_named)
        with temporary_folder() as folder:
            path = folder / "model.onnx"
            save_into(path)
            try:
                session = on_cpu(path, "the graph")
            except RunError as error:
                if error.kind not in NO_KERNEL:
                    raise UnloadableGraphError(f"{error}; {_DIAGNOSE}") from error
                found.unloadable = f"{error}{self._of_halves(error)}"
                return found
            self._judge(session, found)
        return found

    def _of_halves(self, error: RunError) -> str:
        """Return advice on how a 16-bit module can compute in float32, as the end of an error."""
        if not self.types and error.kind != NO_KERNEL[1]:
            return ""
        kinds = " and ".join(sorted(self.types)) or "bfloat16"
        return (
            f"; it computes in {kinds}: module.float() computes in float32, as does code "
            "within torch.autocast(..., enabled=False)"
        )

    def _judge(self, session: Any, found: Checked) -> None:
        for number, call in enumerate(self.calls):
            name = f"input set {number}" if number else "the example"
            try:
                problem = self._problem(session, call, self._wanted(call, name, found), name, found)
                problem = problem or self._with_other_values(session, call, name, found)
            except MismatchError as error:
                if number or self.sizes.broken(call):
                    raise self._refused(name, call, str(error)) from error
                found.notes.append(Note(f"not checked: {error}", UNCHECKED))
                return
            if problem:
                raise self._refused(name, call, problem)
            self._count(call, found)
        if len(self.calls) == 1 and self.makes_sets:
            for name, call, wanted in self._made(found):
                try:
                    problem = self._problem(session, call, wanted, name, found)
                except MismatchError as error:
                    problem = str(error)
                if problem:
                    raise self._refused(name, call, problem)
                self._count(call, found)
                found.made += 1

    def _count(self, call: Call, found: Checked) -> None:
        """Count an input set for which the graph agrees with the module."""
        found.sets += 1
        found.disproved.update(str(each) for each in self.sizes.disproved(call))

    def _with_other_values(self, session: Any, call: Call, name: str, found: Checked) -> str:
        """Try other values if a condition has another outcome for this input set.

        With the given values, two branches may agree by chance.
        """
        tests = [each for each in self.sizes.broken(call) if each.is_test]
        if not tests:
            return ""
        other = resized(self.sizes, call, self.sizes.values(call))
        try:
            wanted = self._wanted(other, name, found)
        except Error:  # only these values may be given
            return "it takes another branch"
        problem = self._problem(session, other, wanted, name, found)
        if not problem:
            text = f"{name} violates {broken_text(tests)}, but the graph agrees with the module"
            found.notes.append(text)
        return problem

    def _made(self, found: Checked) -> Iterator[tuple[str, Call, Any]]:
        """Yield input sets of other sizes that the module accepts, with the module's outputs."""
        for group in other_sizes(self.sizes, self.calls[0]):
            for call in group:
                name = f"inputs of other sizes ({self.sizes.text(call)})"
                try:
                    wanted = self._wanted(call, name, found)
                except Error:  # the module does not accept these sizes
                    continue
                yield name, call, wanted
                break

    def _wanted(self, call: Call, name: str, found: Checked) -> dict[str, Any]:
        """Return the module's outputs, and add a note if it keeps state for the next call."""
        known = [each.name for each in self.changed if each.is_buffer]
        given, notes = first_call(self._reference, Given({}, call=call), name, known)
        add_new(found.notes, notes)
        return given

    def _problem(
        self, session: Any, call: Call, wanted: dict[str, Any], name: str, found: Checked
    ) -> str:
        """Describe how the graph differs from the module; return "" if it does not."""
        names = [form.name for form in session.inputs]
        given = dict(self._reference.feed(call, names))
        misfits = session.misfits(given)
        if misfits:
            return "; ".join(f"input {each}" for each in misfits)
        inputs, tolerance = Given({}, call=call), Tolerance(self.atol, self.rtol, self.types)
        run = checked_run(session, given, self._reference, inputs, wanted, name, tolerance)
        add_new(found.notes, run.notes)
        return run.problem

    def _refused(self, name: str, call: Call, problem: str) -> ExportError:
        broken = self.sizes.broken(call)
        cause = _cause(broken, _numbers(self.calls[0], call))
        if isinstance(self.module, nn.Module):
            fault = training_mode_of(self.module, self._reference.name)
            cause = f"{fault}. If this is intended, {cause}" if fault else cause
        return WrongGraphError(f"the graph is wrong for {name}: {problem}; {cause}", broken)


class StateReference(ModuleReference):
    """A reference that also returns what its module changes, after the module's own outputs."""

    def __init__(self, module: Any, changed: Sequence[Changed], names: Sequence[str]) -> None:
        """Create the reference; the module may be in any mode.

        Args:
            module: the module.
            changed: the buffers and inputs that the module changes.
            names: the names by which these outputs are paired.
        """
        super().__init__(module, any_mode=True)
        self._changed, self._names = changed, names

    def outputs(self, given: Given, what: str) -> dict[str, Value]:
        """Call the module, and read what it has changed; the caller restores the module."""
        called: list[Any] = []
        change = self._change

        def keep(call: Any) -> Any:
            called.append(change(call) if change is not None else call)
            return called[-1]

        with self.within(self._mode, keep):
            found = super().outputs(given, what)
        leaves = pytree.tree_leaves(called[-1])
        for each, name in zip(self._changed, self._names, strict=True):
            tensor = self.module.get_buffer(each.name) if each.is_buffer else leaves[each.place]
            found[name] = from_torch(tensor)
        return found


def refuse_unloadable(reason: str) -> None:
    """Raise an error if ONNX Runtime cannot load a graph, so that it could not be compared.

    Args:
        reason: the reason why it cannot; empty if it can.

    Raises:
        ExportError: the reason is not empty.
    """
    if reason:
        raise ExportError(
            f"{reason}; nothing is saved, because the graph could not be compared; "
            "check=False saves it for a runtime that can load it"
        )


def half_types(program: Any) -> list[str]:
    """Return the 16-bit float types in which operators of an ExportedProgram compute."""
    found: dict[str, None] = {}
    for node in nodes_of(program):
        kind = getattr(node.meta.get("val"), "dtype", None)
        if node.op == "call_function" and kind in (torch.float16, torch.bfloat16):
            found[str(kind).removeprefix("torch.")] = None
    return list(found)


_DIAGNOSE = "oe.diagnose_export(module, inputs) finds the modules that prevent the export"
_WAY_OUT = (
    "write the line so that it holds for all sizes (torch.where, torch.cond), or leave the size "
    "out of dynamic_shapes; with input_sets=[...], only the sizes that you need are tried"
)


def _cause(broken: Sequence[Guard], numbers: Sequence[str] = ()) -> str:
    if broken:
        return f"it holds for {broken_text(broken)} only; {_WAY_OUT}"
    if numbers:
        return (
            f"{', '.join(numbers)}: a Python number is not an input of a graph, which uses the "
            "example's number; give a tensor, or export a model for each number"
        )
    return f"{_DIAGNOSE}; check=False omits the comparison"


def _numbers(example: Call, call: Call) -> list[str]:
    """Describe the Python floats and bools in an input set that differ from the example's."""
    leaves = (pytree.tree_flatten_with_path(each)[0] for each in (example, call))
    return [
        f"{pytree.keystr(tuple(path)[1:])} is {other} here and {one} in the example"
        for (path, one), (_, other) in zip(*leaves, strict=False)
        if isinstance(one, (bool, float)) and type(one) is type(other) and one != other
    ]


def refuse_broken(sizes: Sizes, calls: Sequence[Call]) -> None:
    """Raise an error if an input set violates assumptions of the trace.

    For graphs that cannot be run, this is the only check.

    Args:
        sizes: the assumptions of the program.
        calls: the example, and further sets.

    Raises:
        ExportError: a set violates a guard; the error names the first such set.
    """
    for number, call in enumerate(calls):
        broken = sizes.broken(call)
        if broken:
            name = f"input set {number}" if number else "the example"
            raise WrongGraphError(
                f"the graph may be wrong for {name} ({sizes.text(call)}): {_cause(broken)}", broken
            )


def broken_text(broken: Sequence[Guard]) -> str:
    """Describe a few of the violated assumptions, those of the user's own lines first."""
    ordered = sorted(broken, key=lambda each: (not each.where, len(each.text)))
    more = f" and {len(broken) - 3} more" if len(broken) > 3 else ""
    return ", ".join(map(str, ordered[:3])) + more
