"""Stores the state of one runtime while rewritten code is traced."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch._guards import detect_fake_mode
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

_T = TypeVar("_T")


@dataclass
class Decision:
    """A condition in a function that is called once for each outcome of the condition."""

    key: str
    depth: int
    """The number of branches and loops inside which the condition must be reached."""
    outcome: bool = False
    used: bool = False


@dataclass
class State:
    """The state that the parts of a `Runtime` share."""

    notes: list[str] = field(default_factory=list)
    """Remarks on code that the graph does not contain, and on the limits of its loops."""
    max_iterations: int | None = None
    refuses_assertions: bool = False
    absorbed: Collection[str] = ()
    """The keys of conditions whose branches already include the code that follows the condition."""
    empty_sizes: bool = False
    """True if sizes of inputs may be 0."""
    tables: list[dict[int, torch.Tensor]] = field(default_factory=list)
    """The operands of the branches being traced, outermost first, by outer tensor. A tensor is
    identified by the `id` of the tensor outside all branches: see `key`."""
    keys: dict[int, int] = field(default_factory=dict)
    """The keys of all these operands, by their `id`."""
    followed: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)
    """For numbers that equal another number plus one, by `id`: the other number, and the number
    itself, to keep it alive."""
    bounds: dict[Any, Any] = field(default_factory=dict)
    """The maximum values of sizes that depend on tensors, by symbol."""
    choices: dict[Any, tuple[Any, Any]] = field(default_factory=dict)
    """Sizes that a condition decides: their values in the two branches, by symbol."""
    splits: Mapping[str, str] = field(default_factory=dict)
    """For calls that are made for both outcomes of a condition inside them, the key of the
    condition."""
    asked: list[Decision] = field(default_factory=list)
    """The conditions up to which calls are run, the innermost last."""
    given: list[Decision] = field(default_factory=list)
    """The conditions that are decided, the innermost last."""
    kept: dict[str, list[Any]] = field(default_factory=dict)
    """The results of calls without data-dependent control flow."""
    depth: int = 0
    """The nesting depth of the branches and loop iterations being traced."""
    loops: int = 0
    """The number of rewritten loops that are being unrolled or traced."""

    def key(self, value: Any) -> int:
        """Return the key of a tensor or, for an operand, the key of the tensor it represents."""
        return self.keys.get(id(value), id(value))

    def resolved(self, value: Any) -> Any:
        """Return the operand that represents a tensor in the branch being traced."""
        if isinstance(value, torch.Tensor):
            key = self.key(value)
            for table in reversed(self.tables):
                if key in table:
                    return table[key]
        return value

    def note(self, text: str) -> None:
        """Add a line to the notes, unless it is already there from an earlier trace."""
        if text not in self.notes:
            self.notes.append(text)

    def follows(self, number: Any, other: Any) -> bool:
        """Return whether a number is another number plus one."""
        before, _ = self.followed.get(id(number), (None, None))
        return before is not None and before is other

    def bound(self, size: Any, most: Any) -> None:
        """Record the maximum value of a size that depends on a tensor."""
        if isinstance(size, torch.SymInt):
            self.bounds[size.node.expr] = most

    def choose(self, shape: Any, one: Any, other: Any) -> None:
        """Record the sizes of a result in both branches."""
        for size, first, second in zip(shape, one, other, strict=True):
            if isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
                if not all(size.node.expr == _expr(each) for each in (first, second)):
                    self.choices[size.node.expr] = (first, second)

    @contextmanager
    def branch(self, table: dict[int, torch.Tensor]) -> Iterator[None]:
        """Use the operands in `table` for the tensors of its keys inside the context."""
        self.tables.append(table)
        before = self.keys
        self.keys = before | {id(operand): key for key, operand in table.items()}
        try:
            yield
        finally:
            self.tables.pop()
            self.keys = before

    @contextmanager
    def loop(self) -> Iterator[None]:
        """Count a loop as being unrolled or traced inside the context."""
        self.loops += 1
        try:
            yield
        finally:
            self.loops -= 1


def _expr(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def quietly(call: Callable[[], _T]) -> _T:
    """Return the result of `call`, and keep its operations out of the graph being traced."""
    mode = detect_fake_mode(None)
    environment = getattr(mode, "shape_env", None)
    with disable_proxy_modes_tracing():
        if environment is None:
            return call()
        with environment.ignore_fresh_unbacked_symbols():
            return call()
