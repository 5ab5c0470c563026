"""Turns modules into temporary custom torch operators, so that the code around them exports."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .._base.errors import ExportError
from .._tracing.chosen import is_size
from .capturing import Captured, Stored, exchanged, replaced
from .guessed_shapes import Size, guess_size

ShapeFunction = Callable[..., Any]
"""A function that takes the number of an output and the module's arguments. The function returns
the output's shape, or None if the shape has to be guessed."""

DOMAIN = "onnx_external.custom"
"""The domain of nodes that represent custom operators in an ONNX graph."""

_numbers = itertools.count()


class NoOperatorError(ExportError):
    """Raised if a module cannot be replaced by a custom operator."""


@dataclass
class _Output:
    """The type and sizes of one tensor that a custom operator returns."""

    dtype: torch.dtype
    device: torch.device
    sizes: list[Size] | None
    """The sizes; None if only a shape function of the user can compute them."""


_Place = tuple[int, int]
"""The position of a size: the index of a leaf of the arguments, and the dimension. For a leaf that
is an integer, the dimension is -1."""


def _recorded_sizes(stored: Stored) -> dict[_Place, int]:
    """Return the sizes among a call's inputs: dimensions of tensors, and integer arguments."""
    found: dict[_Place, int] = {}
    forms = iter(stored.forms)
    for leaf, is_tensor in enumerate(stored.is_tensor):
        if is_tensor:
            found |= {(leaf, dim): size for dim, size in enumerate(next(forms)[0])}
        elif is_size(stored.others[leaf]):
            found[leaf, -1] = int(stored.others[leaf] or 0)
    return found


class _Sizes:
    """The sizes of a call, in the form that Size.of() reads."""

    def __init__(self, operator: _Operator, leaves: Sequence[Any]) -> None:
        self._operator, self._leaves = operator, leaves

    def __getitem__(self, place: int) -> Any:
        leaf, dim = self._operator.places[place]
        found = self._leaves[leaf] if leaf < len(self._leaves) else None
        if dim < 0 and is_size(found):
            return found
        if not isinstance(found, torch.Tensor) or not 0 <= dim < found.dim():
            self._operator.refuse("it is called with other arguments than in the recorded calls")
        return found.shape[dim]  # type: ignore[union-attr]


def _same(one: Any, other: Any) -> bool:
    try:
        return one is other or bool(one == other)
    except Exception:  # objects of the user's classes
        return False


class _Operator:
    """The custom operator that replaces one module."""

    def __init__(self, captured: Captured, function: ShapeFunction | None) -> None:
        self.captured, self._function = captured, function
        self.title = f"{captured.name} ({captured.cls})"
        calls = [captured.calls[number] for number in sorted(captured.calls)]
        self._first = calls[0]
        self._results = [self._first.result, *self._first.changed.values()]
        every = [[call.result, *call.changed.values()] for call in calls]
        for other in every[1:]:
            self._refuse_other_form(other)
        inputs = [_recorded_sizes(call.inputs) for call in calls]
        self.places = list(inputs[0])
        if any(list(sizes) != list(inputs[0]) for sizes in inputs):
            self.refuse("its arguments have different structures in different input sets")
        forms = [[form for stored in results for form in stored.forms] for results in every]
        if not forms[0]:
            self.refuse("it returns no tensor")
        self.outputs = [
            self._output(number, [each[number] for each in forms], inputs)
            for number in range(len(forms[0]))
        ]
        others = [[each for stored in results for each in stored.others] for results in every]
        self._others = [self._other(values, inputs) for values in zip(*others, strict=True)]

    def refuse(self, why: str) -> None:
        """Raise an error that says why a module cannot be replaced."""
        raise NoOperatorError(f"no custom operator can replace {self.title}: {why}")

    def _refuse_other_form(self, results: Sequence[Stored]) -> None:
        for one, other in itertools.zip_longest(self._results, results):
            if one is None or other is None or one.is_tensor != other.is_tensor:
                self.refuse("its results have different structures in different input sets")

    def _output(
        self, number: int, forms: Sequence[Any], inputs: Sequence[Mapping[_Place, int]]
    ) -> _Output:
        shapes = [shape for shape, _, _ in forms]
        _, dtype, device = forms[0]
        if len({(len(shape), other) for shape, other, _ in forms}) > 1:
            self.refuse(f"its output {number} differs in type or rank between input sets")
        calls = [list(sizes.values()) for sizes in inputs]
        sizes: list[Size] = []
        for dim in range(len(shapes[0])):
            wanted = [shape[dim] for shape in shapes]
            preferred = [i for i, (_, each) in enumerate(self.places) if each == dim]
            size = guess_size(calls, wanted, preferred)
            if size is None:
                if self._function is not None:
                    return _Output(dtype, device, None)
                self.refuse(
                    f"dimension {dim} of its output {number} is {', '.join(map(str, wanted))} in "
                    "the input sets, which is not a sum, difference or product of its inputs' "
                    "sizes; give a function for the shape: shape_functions={name: function}"
                )
            else:
                sizes.append(size)
        return _Output(dtype, device, sizes)

    def _other(self, values: Sequence[Any], inputs: Sequence[Mapping[_Place, int]]) -> Any:
        """Return a non-tensor result: a value that all sets share, or the size of an input."""
        if all(_same(values[0], each) for each in values):
            return values[0]
        calls = [list(sizes.values()) for sizes in inputs]
        size = guess_size(calls, values) if all(map(is_size, values)) else None
        if size is None:
            told = ", ".join(str(each)[:40] for each in values)
            self.refuse(f"its result contains a value that is {told} in the input sets")
        return size

    def empty(self, leaves: Sequence[Any], spec: Any) -> list[torch.Tensor]:
        """Return outputs without values, for use during a trace."""
        sizes = _Sizes(self, leaves)
        found = []
        for number, output in enumerate(self.outputs):
            shape = None
            if self._function is not None:
                args, kwargs = pytree.tree_unflatten(leaves, spec)
                shape = self._function(number, *args, **kwargs)
                shape = shape.shape if isinstance(shape, torch.Tensor) else shape
            if shape is None and output.sizes is None:
                self.refuse(f"its shape function returns no shape for output {number}")
            if shape is None:
                assert output.sizes is not None
                shape = [size.of(sizes) for size in output.sizes]
            found.append(torch.empty(tuple(shape), dtype=output.dtype, device=output.device))
        return found

    def run(self, method: Any, leaves: Sequence[Any], spec: Any) -> list[torch.Tensor]:
        """Run the module on copies of its arguments, because operators must not return operands."""
        arguments = pytree.tree_unflatten(
            [each.clone() if isinstance(each, torch.Tensor) else each for each in leaves], spec
        )
        args, kwargs = arguments
        with torch.no_grad():
            values = [method(*args, **kwargs)]
        values += [exchanged(arguments)[place] for place in self._first.changed]
        tensors = [each for each in pytree.tree_leaves(values) if isinstance(each, torch.Tensor)]
        return [each.detach().clone(memory_format=torch.contiguous_format) for each in tensors]

    def rebuild(self, tensors: Sequence[Any], leaves: Sequence[Any], arguments: Any) -> Any:
        """Rebuild the module's result from tensors, and repeat its changes to arguments.

        Args:
            tensors: the results of the operator.
            leaves: the leaves of the arguments.
            arguments: the arguments of the call, as (args, kwargs).
        """
        rest, others, values = iter(tensors), iter(self._others), []
        sizes = _Sizes(self, leaves)
        for stored in self._results:
            found = []
            for is_tensor in stored.is_tensor:
                other = next(others)
                other = other.of(sizes) if isinstance(other, Size) else other
                found.append(next(rest) if is_tensor else other)
            values.append(pytree.tree_unflatten(found, stored.spec))
        given = exchanged(arguments)
        for place, value in zip(self._first.changed, values[1:], strict=True):
            if not _put(given[place], value):
                self.refuse(f"it changes an argument of type {type(value).__name__} in place")
        return values[0]


def _put(target: Any, value: Any) -> bool:
    """Copy the content of a value into an argument; return False if this is not possible."""
    if isinstance(target, torch.Tensor):
        target.copy_(value)
    elif isinstance(target, dict):
        target.clear()
        target.update(value)
    elif isinstance(target, list):
        target[:] = value
    elif isinstance(target, tuple):
        return all(_put(*each) for each in zip(target, value, strict=True))
    elif hasattr(target, "__dict__"):
        vars(target).clear()
        vars(target).update(vars(value))
    else:
        return _same(target, value)
    return True


def _is_input(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) or is_size(leaf)


@dataclass
class _Variant:
    """The operator for calls of a module whose arguments have one particular structure."""

    of: _Operator
    name: str
    form: str
    """The kind of each leaf of the arguments: "t" for tensors, "s" for integers, "o" for others."""
    spec: Any
    rest: list[Any]
    """The leaves of the kind "o", and None for all others."""
    operator: Any = None

    def leaves(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the leaves of the arguments, with the given inputs in their positions."""
        given = iter(inputs)
        return [e if k == "o" else next(given) for k, e in zip(self.form, self.rest, strict=True)]


class CustomOperators:
    """A context manager that turns the methods of modules into temporary custom operators."""

    def __init__(
        self,
        modules: Sequence[Captured],
        functions: Mapping[Any, ShapeFunction],
        torchscript: bool = False,
    ) -> None:
        self._torchscript = torchscript
        self._operators = [_Operator(each, _function_of(each, functions)) for each in modules]
        self._variants: list[_Variant] = []
        self.nodes: dict[Any, Callable[..., Any]] = {}
        """For torch.onnx, the function that converts each operator to a node."""

    def __enter__(self) -> CustomOperators:
        """Replace the methods of the modules."""
        self._space = f"onnx_external_{next(_numbers)}"
        with contextlib.ExitStack() as stack:
            if self._operators:
                self._library = torch.library.Library(self._space, "FRAGMENT")
                stack.callback(self._library._destroy)
            for each in self._operators:
                found = each.captured
                by = self._method(each, getattr(found.module, found.method))
                stack.enter_context(replaced(found.module, found.method, by))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: Any) -> None:
        """Restore the methods, and remove the operators."""
        self._stack.close()
        self._variants.clear()
        self.nodes.clear()

    @property
    def opsets(self) -> dict[str, int]:
        """The domain of the operators, in the form that torch.onnx's older exporter takes."""
        return {self._space: 1} if self._operators else {}

    def _method(self, operator: _Operator, method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            leaves, spec = pytree.tree_flatten((args, kwargs))
            variant = self._variant(operator, method, leaves, spec)
            given = variant.operator(*(each for each in leaves if _is_input(each)))
            results = [given] if isinstance(given, torch.Tensor) else list(given)
            return operator.rebuild(results, leaves, (args, kwargs))

        call.__signature__ = inspect.signature(method)  # type: ignore[attr-defined]
        return call

    def _variant(self, operator: _Operator, method: Any, leaves: list[Any], spec: Any) -> _Variant:
        """Return the operator for arguments with this structure and these other leaves."""
        form = "".join(
            "t" if isinstance(e, torch.Tensor) else "s" if is_size(e) else "o" for e in leaves
        )
        rest = [None if _is_input(each) else each for each in leaves]
        for each in self._variants:
            if (
                each.of is operator
                and each.form == form
                and each.spec == spec
                and all(map(_same, each.rest, rest))
            ):
                return each
        name = re.sub(r"\W", "_", operator.captured.name)
        name = f"m{name}" if name[:1].isdigit() else name
        if any(each.name == name for each in self._variants):
            name = f"{name}_{len(self._variants)}"
        variant = _Variant(operator, name, form, spec, rest)
        self._define(variant, method)
        variant.operator = getattr(getattr(torch.ops, self._space), name).default
        self.nodes[variant.operator] = _node(name, len(operator.outputs))
        self._variants.append(variant)
        return variant

    def _define(self, variant: _Variant, method: Any) -> None:
        kinds = {"t": "Tensor", "s": "SymInt"}
        inputs = [f"{kinds[kind]} a{i}" for i, kind in enumerate(variant.form.replace("o", ""))]
        operator, count = variant.of, len(variant.of.outputs)
        given = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
        self._library.define(f"{variant.name}({', '.join(inputs)}) -> {given}")

        def given_back(results: Sequence[Any]) -> Any:
            return results[0] if count == 1 else tuple(results)

        def kernel(*args: Any) -> Any:
            return given_back(operator.run(method, variant.leaves(args), variant.spec))

        def fake(*args: Any) -> Any:
            return given_back(operator.empty(variant.leaves(args), variant.spec))

        self._library.impl(variant.name, kernel, "CompositeExplicitAutograd")
        title = f"{self._space}::{variant.name}"
        torch.library.register_fake(title, fake, lib=self._library)
        if self._torchscript:
            torch.onnx.register_custom_op_symbolic(title, _symbolic(title, count), 9)
            self._stack.callback(torch.onnx.unregister_custom_op_symbolic, title, 9)


def why_not(captured: Captured, functions: Mapping[Any, ShapeFunction]) -> str:
    """Return the reason why a module cannot be a custom operator; empty if it can be."""
    try:
        _Operator(captured, _function_of(captured, functions))
    except NoOperatorError as error:
        return str(error)
    return ""


def _function_of(
    captured: Captured, functions: Mapping[Any, ShapeFunction]
) -> ShapeFunction | None:
    for key in (captured.name, type(captured.module), captured.cls):
        if key in functions:
            return functions[key]
    return None


def _symbolic(title: str, outputs: int) -> Callable[..., Any]:
    """Return a function that creates an ONNX node in torch.onnx's older exporter."""

    def convert(graph: Any, *args: Any) -> Any:
        return graph.op(title, *args, outputs=outputs)

    return convert


def _node(name: str, outputs: int) -> Callable[..., Any]:
    """Return a function that creates an ONNX node for a custom operator."""

    def convert(*args: Any) -> Any:
        import onnx_ir
        import onnxscript
        from torch.onnx._internal.exporter import _tensors

        recorder = onnxscript.evaluator.default()  # type: ignore[attr-defined]
        given = [
            recorder.opset.Constant(value_int=each) if isinstance(each, int) else each
            for each in args
        ]
        made = [_tensors.SymbolicTensor(recorder.opset) for _ in range(outputs)]
        recorder.nodes.append(onnx_ir.Node(DOMAIN, name, given, outputs=made, version=1))
        return made[0] if outputs == 1 else made

    return convert
