"""Reads the assumptions of a trace about sizes, which limit where the graph is valid.

A condition on a size (`if x.shape[0] % 2`) is decided once, while the module is traced.
torch.export records the decision as a guard, but torch.onnx drops guards, and an ONNX graph accepts
any size.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .._tracing.assuming import conditional_guards
from .._tracing.chosen import expanded, guards_on_chosen
from .._tracing.empty_sizes import not_empty
from .._tracing.evaluating import evaluated
from .._tracing.surroundings import Call
from ._tracing import is_library

_LOCAL = re.compile(r"L\['(\w+)'\]")
_FLAT = re.compile(r"flat_args\[(\d+)\]")
_MOST = 4096
"""The maximum number of characters of a guard that are shown."""


@dataclass(frozen=True)
class Guard:
    """One assumption about dynamic sizes."""

    text: str
    """The assumption as a user would write it, such as "x.size()[1] > 6"."""
    expression: Any
    """The assumption as a sympy expression."""
    where: str = ""
    """The location and text of the user's line that caused the assumption; empty if unknown."""
    is_test: bool = False
    """True if the assumption is the outcome of a condition in that line, False if an operator made
    it."""

    def __str__(self) -> str:
        """Return the text, followed by the line of code."""
        return f"{self.text} ({self.where})" if self.where else self.text

    def holds(self, sizes: Mapping[Any, int]) -> bool | None:
        """Return whether the guard is true for these sizes; None if they do not determine it."""
        try:
            return bool(evaluated(self.expression, sizes))
        except Exception:  # a size without value, a function that is not known, a division by zero
            return None

    def rules_out_only(self, sizes: Mapping[Any, int]) -> bool:
        """Return whether the guard excludes exactly these sizes, and no others."""
        symbols = self.expression.free_symbols
        if self.holds(sizes) is not False or len(symbols) != 1:
            return False
        (symbol,) = symbols
        others = (_integer(size) for size in range(_TRIED) if size != sizes[symbol])
        return all(self.holds({symbol: size}) for size in others)


_TRIED = 128
"""The number of sizes to try in order to find out whether a guard excludes only one size."""


@dataclass(frozen=True)
class Input:
    """An input of a torch.export program."""

    name: str
    dims: tuple[Any, ...] | None
    """For each dimension, its size, or an expression if it varies; None for a number."""
    own: tuple[Any, ...] = ()
    """The dimensions before the trace found that some sizes are equal."""


@dataclass
class Sizes:
    """The assumptions of a program about its input sizes."""

    inputs: list[Input] = field(default_factory=list)
    guards: list[Guard] = field(default_factory=list)
    ranges: dict[Any, tuple[Any, Any]] = field(default_factory=dict)
    """The minimum and maximum value of each symbol."""

    @property
    def symbols(self) -> list[Any]:
        """The dynamic sizes that do not depend on each other, in the order of the inputs."""
        every = (dim for each in self.inputs for dim in each.dims or ())
        found = [dim for dim in every if getattr(dim, "is_Symbol", False)]
        return list(dict.fromkeys(found))

    def values(self, call: Call) -> dict[Any, int]:
        """Return the symbols' values in a call; if a symbol has several, the first one."""
        found: dict[Any, int] = {}
        for each, value in zip(self.inputs, _leaves_of(call), strict=False):
            if isinstance(value, torch.Tensor) and each.dims is not None:
                for dims in (each.own, each.dims):
                    for dim, size in zip(dims, value.shape, strict=False):
                        if getattr(dim, "is_Symbol", False):
                            found.setdefault(dim, _integer(size))
        return found

    def broken(self, call: Call) -> list[Guard]:
        """Return the assumptions that a call violates: guards, ranges and fixed sizes."""
        values = self.values(call)
        found = [each for each in self.guards if each.holds(values) is False]
        found += self._outside(values) if not found else []
        return found + list(self._fixed(call, values))

    def disproved(self, call: Call) -> list[Guard]:
        """Return the assumptions that need not be reported if the graph agrees for a call.

        An operator's guard that excludes one size (torch often excludes 1) is disproved if the call
        has that size. Conditions in the user's code are not included, because their branches may
        agree by chance; nor are guards that exclude several sizes. A call whose tensors have no
        elements disproves nothing.
        """
        values = self.values(call)
        if not all(value > 0 for value in values.values()):
            return []
        return [g for g in self.guards if not g.is_test and g.rules_out_only(values)]

    def worded(self, guard: Guard, names: Mapping[str, str]) -> str:
        """Return the text of a guard, with its line, in the user's names for sizes.

        Args:
            guard: a guard of the program.
            names: the user's names for symbols.
        """
        found: dict[str, str] = {}
        for each in self.inputs:
            for place, dim in enumerate(each.dims or ()):
                size = f"{each.name}.size()[{place}]"
                if getattr(dim, "is_Symbol", False) and str(dim) in names and size in guard.text:
                    found[size] = names[str(dim)]
        text = guard.text
        if len(set(found.values())) == len(found):  # else it says that two sizes are one
            for size, name in found.items():
                text = re.sub(rf"(?<![\w.]){re.escape(size)}", name, text)
        return str(replace(guard, text=text))

    def text(self, call: Call) -> str:
        """Return the shapes of the inputs in a call as text."""
        pairs = zip(self.inputs, _leaves_of(call), strict=False)
        shapes = [(each.name, value.shape) for each, value in pairs if hasattr(value, "shape")]
        return ", ".join(f"{name}: {list(shape)}" for name, shape in shapes)

    def _outside(self, values: Mapping[Any, int]) -> Iterator[Guard]:
        for symbol, (least, most) in self.ranges.items():
            if symbol in values and not least <= values[symbol] <= most:
                yield Guard(f"{least} <= {self._name(symbol)} <= {most}", None)

    def _fixed(self, call: Call, values: Mapping[Any, int]) -> Iterator[Guard]:
        """Yield violated assumptions that a size is constant, or equal to another size."""
        for each, value in zip(self.inputs, _leaves_of(call), strict=False):
            if not isinstance(value, torch.Tensor) or each.dims is None:
                continue
            for place, (dim, size) in enumerate(zip(each.dims, value.shape, strict=False)):
                known = dim if isinstance(dim, int) else values.get(dim)
                if known is not None and known != size:
                    name = f"{each.name}.size()[{place}]"
                    other = dim if isinstance(dim, int) else self._name(dim)
                    yield Guard(f"{name} == {other}", None)

    def _name(self, symbol: Any) -> str:
        for each in self.inputs:
            for dims in (each.own, each.dims or ()):
                if symbol in dims:
                    return f"{each.name}.size()[{dims.index(symbol)}]"
        return str(symbol)


def _integer(size: int) -> Any:
    import sympy  # type: ignore[import-untyped]

    return sympy.Integer(size)


def _leaves_of(call: Call) -> list[Any]:
    """Return the program's inputs in a call, in the order of the program."""
    return pytree.tree_leaves((tuple(call[0]), dict(call[1])))  # type: ignore[no-any-return]


def sizes_of(
    program: torch.export.ExportedProgram, tests: Collection[tuple[str, int]] = ()
) -> Sizes:
    """Read a program's assumptions about sizes; this must precede the program's conversion.

    Args:
        program: the program.
        tests: the files and lines that were found to test sizes during the trace.
    """
    found, environment = Sizes(), None
    for node in _placeholders(program):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            found.inputs.append(Input(node.name, None))
            continue
        for size in value.shape:
            if isinstance(size, torch.SymInt):
                environment = size.node.shape_env
        found.inputs.append(
            Input(node.name, _dims(value, "expr"), _dims(value, "_expr")),
        )
    if environment is not None:
        names = [each.name for each in found.inputs]
        found.guards = list(_guards(environment, names, tests))
        for symbol, bounds in program.range_constraints.items():
            found.ranges[symbol] = bounds.lower, bounds.upper
    return found


def _placeholders(program: torch.export.ExportedProgram) -> Iterator[Any]:
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    for spec in program.graph_signature.input_specs:
        if spec.kind.name == "USER_INPUT":
            yield nodes[spec.arg.name]


def _dims(value: torch.Tensor, attribute: str) -> tuple[Any, ...]:
    return tuple(
        getattr(size.node, attribute, size.node.expr) if isinstance(size, torch.SymInt) else size
        for size in value.shape
    )


def _guards(
    environment: Any, names: Sequence[str], tests: Collection[tuple[str, int]]
) -> Iterator[Guard]:
    from torch.fx.experimental import symbolic_shapes

    class Printer(symbolic_shapes.ShapeGuardPythonPrinter):  # type: ignore[misc]
        def _print_Where(self, expression: Any) -> str:
            test, one, other = map(self.doprint, expression.args)
            return f"{one} if {test} else {other}"

    printer = Printer(
        environment.var_to_sources, lambda source: source.name, environment.var_to_sources
    )
    seen = set()
    for guard, conditions in _all_guards(environment):
        expression = _implied(conditions, guard.expr)
        if expression in seen or guard.expr.free_symbols - environment.var_to_sources.keys():
            continue  # of a value that only the graph knows
        seen.add(expression)
        texts = [_words(printer.doprint(each), names) for each in (guard.expr, *conditions)]
        text = f"{texts[0]} where {' and '.join(texts[1:])}" if conditions else texts[0]
        frame = guard.sloc.framework_loc
        place = getattr(frame, "filename", ""), getattr(frame, "lineno", 0)
        yield Guard(text, expression, _place(guard.sloc), place in tests)
    yield from _not_empty(environment, printer, names)


def _not_empty(environment: Any, printer: Any, names: Sequence[str]) -> Iterator[Guard]:
    """Yield guards for decisions that rely on torch's assumption that no size is 0."""
    import sympy

    for symbol, path, line in not_empty(environment):
        expression = sympy.Ne(symbol, 0, evaluate=False)
        text = f"{_words(printer.doprint(symbol), names)} != 0"
        yield Guard(text, expression, _with_line(path, line), True)


def _all_guards(environment: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Yield torch's guards, each with the conditions of its branch."""
    yield from ((each, []) for each in (*environment.guards, *guards_on_chosen(environment)))
    for tests, guard in conditional_guards(environment):
        known = [expanded(environment, each) for each in tests]
        # A test that only the graph knows cannot be left out by: the guard is taken to hold always.
        yield guard, [e for e in known if not e.free_symbols - environment.var_to_sources.keys()]


def _implied(conditions: Sequence[Any], expression: Any) -> Any:
    import sympy

    return sympy.Or(*map(sympy.Not, conditions), expression) if conditions else expression


def _words(text: str, names: Sequence[str]) -> str:
    """Return a guard's text as a user would write it, without torch's names for inputs."""

    def name(match: re.Match[str]) -> str:
        place = int(match[1])
        return names[place] if place < len(names) else match[0]

    text = _FLAT.sub(name, _LOCAL.sub(r"\1", text))
    return text if len(text) <= _MOST else f"{text[:_MOST]}..."


def _place(location: Any) -> str:
    frame = location.framework_loc
    path = getattr(frame, "filename", "")
    if path and not is_library(path):
        return _with_line(path, frame.lineno)
    line, _, place = str(location.maybe_user_loc or "").rpartition("  # ")
    return f"{place.partition(' in ')[0]}: {line}" if place else ""


def _with_line(path: str, number: int) -> str:
    line = linecache.getline(path, number).strip()
    return f"{path}:{number}" + (f": {line}" if line else "")
