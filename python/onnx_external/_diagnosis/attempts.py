"""Exports single modules, and runs the results on recorded inputs."""

from __future__ import annotations

import contextlib
import traceback
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from .._base.errors import RunError
from .._base.temporary import temporary_folder
from .._comparing.checked_runs import on_cpu
from .._comparing.comparing import compare
from .._comparing.randomness import drawing_of_program
from .._comparing.running import Session
from .._comparing.values import Array, from_torch
from .._control_flow import Rewriter, outside_kept
from .._saving.save import save
from .._tracing.dynamic_dimensions import guessed_shapes, with_plain_signature
from .._tracing.exporter_reasons import chain, reason_of
from .._tracing.silence import silent
from .._tracing.surroundings import Surroundings
from ..torch._converting import converted
from ..torch._opsets import OWN, asked, of_torch, with_opset
from ..torch._optimizing import optimized
from ..torch._tracing import trace
from .capturing import Captured, StoredCall, buffers_kept, replaced
from .custom_operators import CustomOperators, NoOperatorError, ShapeFunction
from .outcomes import Outcome
from .reports import Status

EXPORTERS = ("export", "onnx", "torchscript")


@dataclass
class _Job:
    """The arguments and the state of one attempt to export a module."""

    captured: Captured
    calls: list[tuple[int, StoredCall]]
    """The recorded calls with the numbers of their input sets; the first call is exported."""
    operators: CustomOperators
    with_custom: bool
    folder: Path
    found: Outcome
    step: str = "export"
    program: Any = None
    draws: list[str] = field(default_factory=list)
    """The operators of the program that draw random numbers."""

    @property
    def module(self) -> Any:
        return self.captured.module


@dataclass
class Attempts:
    """Exports modules one by one, all with the same options."""

    exporter: str
    run: bool
    dynamic: bool
    tolerance: tuple[float | None, float | None, set[str]]
    surroundings: Surroundings
    functions: Mapping[Any, ShapeFunction]
    onnx_options: Mapping[str, Any] = field(default_factory=dict)
    """The options of torch.onnx.export. The names of inputs and outputs among them are the model's,
    and are not used for single modules."""
    rewrites: bool = False
    """True if data-dependent control flow is rewritten before the trace."""
    max_iterations: int | None = None
    """The maximum number of iterations of rewritten loops whose state grows."""

    def attempt(self, captured: Captured, instead: Sequence[Captured] = ()) -> Outcome:
        """Export a module, and compare the result with the recorded calls.

        Args:
            captured: the module and its calls.
            instead: modules inside it that are temporarily replaced by custom operators.
        """
        found, reason = Outcome(), ""
        job: _Job | None = None
        try:
            operators = CustomOperators(instead, self.functions, self.exporter == "torchscript")
            calls = self._calls(captured, found)
            with (
                temporary_folder() as folder,
                operators,
                self._as_forward(captured, calls[0][1]),
                # The effects of its hooks belong to the module that calls it.
                replaced(captured.module, "_forward_hooks", OrderedDict()),
                replaced(captured.module, "_forward_pre_hooks", OrderedDict()),
                buffers_kept(captured.module),
                silent(everything=self.exporter == "torchscript"),
                torch.no_grad(),
                self.surroundings.tracing(self.exporter == "onnx"),
            ):
                job = _Job(captured, calls, operators, bool(instead), folder, found)
                try:
                    getattr(self, f"_{self.exporter}")(job)
                except Exception as error:
                    # While the custom operators are there: a program that has one is run again.
                    reason = reason_of(error, job.program, job.step == "export")
                    raise
                finally:
                    job.program = None
        except Exception as error:
            step = "export" if job is None else job.step
            reason = reason or reason_of(error, None, step == "export")
            unjudged = any(isinstance(each, NoOperatorError) for each in chain(error))
            return Outcome(Status.FAIL, step, reason, notes=found.notes, unjudged=unjudged)
        found.judge()
        if found.status == Status.DISC:
            if job.draws:
                found.notes.append(f"random numbers are drawn by {', '.join(job.draws)}")
        elif found.sets and found.is_empty:
            found.notes.append("none of its results were compared")
        return found

    def dynamic_shapes(self, captured: Captured) -> dict[str, Any] | None:
        """Return the dynamic shapes for the export of a module by torch.export."""
        if not self.dynamic:
            return None
        calls = [stored.call for _, stored in self._calls(captured, Outcome())]
        method = getattr(captured.module, captured.method)
        return guessed_shapes(with_plain_signature(method, calls[0]), calls)

    def _calls(self, captured: Captured, found: Outcome) -> list[tuple[int, StoredCall]]:
        """Return the calls of one structure; those with the fewest sizes of 0 and 1 come first."""
        calls = sorted(captured.calls.items())
        calls.sort(key=lambda each: sum(s < 2 for f in each[1].inputs.forms for s in f[0]))
        alike = [each for each in calls if _kind(each[1]) == _kind(calls[0][1])]
        if len(alike) < len(calls):
            found.notes.append(
                "input sets in which it is called with other structures or strings are left out"
            )
        if max(captured.counts.values()) > 1:
            found.notes.append("it is called several times; only the first call is judged")
        return alike if self.dynamic else alike[:1]

    @staticmethod
    def _as_forward(captured: Captured, stored: StoredCall) -> Any:
        method = getattr(captured.module, captured.method)
        forward = with_plain_signature(method, stored.call)
        if captured.method == "forward" and forward == method:
            return contextlib.nullcontext()
        return replaced(captured.module, "forward", forward)

    def _exported(self, job: _Job) -> Any:
        shapes = None
        if self.dynamic:
            calls = [stored.call for _, stored in job.calls]
            shapes = guessed_shapes(job.module.forward, calls)
        args, kwargs = job.calls[0][1].call
        job.program = self._traced(job, args, kwargs, shapes)
        job.draws = drawing_of_program(job.program)
        return job.program

    def _traced(self, job: _Job, args: Any, kwargs: Any, shapes: Any) -> Any:
        """Trace a module as the exporter does; add a note if strict=True makes a difference."""
        if self.rewrites:
            return self._rewritten(job, shapes)
        if not self.surroundings.strict_too:
            with outside_kept(job.module):
                return torch.export.export(
                    job.module, args, kwargs, dynamic_shapes=shapes, strict=False
                )
        program, note, refusal, _ = trace(job.module, args, kwargs, shapes)
        if refusal is not None and self.exporter == "export":
            job.found.notes.append(
                "torch's default, strict=False, fails here; strict=True traces it"
            )
            raise refusal
        if refusal is not None:
            job.found.notes.append(
                "torch.export.export can trace it only with strict=True, to which "
                "torch.onnx.export falls back"
            )
        elif note:
            job.found.notes.append(note)
        return program

    def _rewritten(self, job: _Job, shapes: Any) -> Any:
        calls = [stored.call for _, stored in job.calls]
        rewriter = Rewriter(job.module, calls, max_iterations=self.max_iterations)
        rewriter.check()
        args, kwargs = job.calls[0][1].call
        traced, rewriting = rewriter.exported(
            lambda: trace(job.module, args, kwargs, shapes, fall_back=False)
        )
        job.found.notes += [", ".join(rewriting.places), *rewriting.notes]
        return traced.program

    def _export(self, job: _Job) -> None:
        program = self._exported(job)
        if self.run:
            self._run_program(job, program)

    def _onnx(self, job: _Job) -> None:
        program = self._exported(job)
        job.step = "convert"
        self.surroundings.exported(program)
        graph = self._converted(job, program)
        if not self.run:
            return
        if job.with_custom:  # ONNX Runtime has no such operator
            self._run_program(job, program)
            return
        self.surroundings.converted(graph)
        job.step = "load"
        path = job.folder / "model.onnx"
        if graph.model.graph.initializers:
            save(graph, path, fsync=False, verify=False, progress=False)
        else:
            graph.save(path)
        session = on_cpu(path, job.captured.name or "the model")
        job.step = "run"
        signature = program.graph_signature
        user = [each for each in signature.input_specs if each.kind.name == "USER_INPUT"]
        names = [each.arg.name for each in user]
        given = [each for each in signature.output_specs if each.kind.name == "USER_OUTPUT"]
        is_none = [getattr(each.arg, "value", each) is None for each in given]
        for number, stored in job.calls:
            leaves = dict(zip(names, stored.inputs.leaves(), strict=True))
            feed = {n: _array(leaf) for n, leaf in leaves.items() if _has_value(leaf)}
            results = iter(self._outputs(session, feed, number))
            got = [None if none else next(results, None) for none in is_none]
            self._compare(job, stored, got)

    def _converted(self, job: _Job, program: Any) -> torch.onnx.ONNXProgram:
        """Convert a program to a graph of the opset that the caller requests."""
        options = self._options(job)
        graph = converted(program, **of_torch(options))
        version = asked(options)
        if version is not None and version < OWN:  # whose rules need constants, as exports have
            graph = torch.onnx.ONNXProgram(with_opset(optimized(graph.model), version), program)
        return graph

    def _options(self, job: _Job) -> dict[str, Any]:
        given = dict(self.onnx_options)
        for names in ("input_names", "output_names"):
            given.pop(names, None)
        table = {
            **self.surroundings.conversions(),
            **(given.pop("custom_translation_table", None) or {}),
            **job.operators.nodes,
        }
        return given | {"custom_translation_table": table or None}

    def _outputs(self, session: Session, feed: dict[str, Array], number: int) -> list[Any]:
        what = f"input set {number}"
        got = session.run(session.feed(feed, what), what)
        return [got[name] for name in session.output_names]

    def _run_program(self, job: _Job, program: Any) -> None:
        job.step = "run"
        for _, stored in job.calls:
            module = program.module()
            leaves = stored.inputs.leaves()
            args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
            with buffers_kept(job.module), buffers_kept(module):
                got = [_array(each) for each in pytree.tree_leaves(module(*args, **kwargs))]
            self._compare(job, stored, got)

    def _compare(self, job: _Job, stored: StoredCall, got: Sequence[Any]) -> None:
        """Compare the tensors and scalars of a result with the recorded ones."""
        want = stored.result.leaves()
        if len(got) != len(want):
            raise RunError(f"the exported module returns {len(got)} values, the module {len(want)}")
        compared = []
        for number, (one, other) in enumerate(zip(got, want, strict=True)):
            if one is None or not _has_value(other):
                continue
            title = "output" if len(want) == 1 else f"output {number}"
            compared.append(compare(title, one, _array(other), *self.tolerance))
        job.found.sets.append(compared)

    def _torchscript(self, job: _Job) -> None:
        stored = job.calls[0][1]
        flat = _Flat(job.module, stored).eval()  # else the exporter leaves all in training mode
        names = [f"input_{i}" for i in range(len(stored.inputs.forms))]
        results = [f"output_{i}" for i in range(len(stored.result.forms))]
        path = job.folder / "model.onnx"
        try:
            torch.onnx.export(
                flat,
                tuple(each for each in stored.inputs.leaves() if isinstance(each, torch.Tensor)),
                str(path),
                input_names=names,
                output_names=results,
                dynamic_axes=self._axes(job, names) or None,
                custom_opsets=job.operators.opsets or None,
                dynamo=False,
            )
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            if any(each.name.startswith("_run_symbolic") for each in frames):
                job.step = "convert"
            raise
        if not self.run:
            return
        if job.with_custom:
            job.found.notes.append("with custom operators, it can be converted but not run")
            return
        job.step = "load"
        session = on_cpu(path, job.captured.name or "the model")
        job.step = "run"
        for number, each in job.calls:
            leaves = [leaf for leaf in each.inputs.leaves() if isinstance(leaf, torch.Tensor)]
            feed = dict(zip(names, map(_array, leaves), strict=True))
            outputs = iter(self._outputs(session, feed, number))
            got = [next(outputs, None) if tensor else None for tensor in each.result.is_tensor]
            self._compare(job, each, got)

    def _axes(self, job: _Job, names: Sequence[str]) -> dict[str, list[int]]:
        """Return the dynamic dimensions of each input, by name."""
        found = {}
        for place, name in enumerate(names):
            shapes = [stored.inputs.forms[place][0] for _, stored in job.calls]
            vary = [
                dim for dim, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) > 1
            ]
            if vary:
                found[name] = vary
        return found


def _kind(stored: StoredCall) -> tuple[Any, list[str]]:
    """Return those properties of a call (tensor flags and strings) that need a separate graph."""
    given = stored.inputs
    return given.is_tensor, [each for each in given.others if isinstance(each, str)]


def _has_value(leaf: Any) -> bool:
    return isinstance(leaf, (torch.Tensor, bool, int, float))


def _array(leaf: Any) -> Any:
    """Convert a tensor or scalar to an array; return None for anything else."""
    if isinstance(leaf, torch.Tensor):
        return from_torch(leaf)
    return np.asarray(leaf) if _has_value(leaf) else None


class _Flat(torch.nn.Module):  # type: ignore[misc]
    """Wraps a module so that arguments and results are only tensors, as torch.jit.trace expects."""

    def __init__(self, module: Any, stored: StoredCall) -> None:
        super().__init__()
        self.module = module
        self._stored = stored.inputs

    def forward(self, *tensors: Any) -> Any:
        args, kwargs = pytree.tree_unflatten(self._stored.around(tensors), self._stored.spec)
        results = pytree.tree_leaves(self.module(*args, **kwargs))
        return tuple(each for each in results if isinstance(each, torch.Tensor))
