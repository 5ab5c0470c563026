"""Turns the values that a branch reads into operands.

torch's control flow operators do not support closures: each tensor that a branch reads must be an
operand. The tensors that a branch reads are found by running the branch once on fake tensors,
without recording it, in a mode that sees every call and replaces each tensor from outside with a
clone. When the branch is traced, the operands replace the same tensors. Therefore a branch may run
any Python code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from onnx_external._base.errors import RewriteError
from onnx_external._control_flow.runtime.collected import Collected, Rows
from onnx_external._control_flow.runtime.places import Changes, Places
from onnx_external._control_flow.runtime.state import State, quietly
from onnx_external._control_flow.runtime.torch_functions import called
from onnx_external._control_flow.values import element_type, promoted, version_of
from onnx_external._tracing.empty_sizes import only_tried

_WRITING = frozenset(
    "__setitem__ __set__ __iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __imod__ __ipow__ "
    "__ior__ __iand__ __ixor__ __ilshift__ __irshift__".split()
)
_READING = frozenset({"requires_grad_"})
_PLAIN = (int, float, bool, str, type(None), type(...), torch.dtype, torch.SymInt)
_MAY_FAIL = frozenset("__getitem__ index_select gather take embedding select narrow".split())
"""Operators that fail for some indices, so that a condition may have to guard them."""


class Lift(TorchFunctionMode):  # type: ignore[misc]
    """Runs a function with stand-ins for tensors that were created outside the context.

    In a trial (`table` is None), the stand-ins are clones, and `lifted` collects the original
    tensors. In a trace, the stand-ins are the operands in `table`.
    """

    def __init__(self, state: State, table: Mapping[int, torch.Tensor] | None = None) -> None:
        super().__init__()
        self.state = state
        self.probing = table is None
        self.table: dict[int, torch.Tensor] = dict(table or {})
        self.lifted: dict[int, torch.Tensor] = {}
        self.indexes = False
        self._written: dict[int, None] = {}
        self._versions: dict[int, int] = {key: version_of(v) for key, v in self.table.items()}
        self._outer = {id(value): key for key, value in self.table.items()}
        self._own: set[int] = {id(value) for value in self.table.values()}
        self._kept: list[Any] = []
        self._busy = False

    @property
    def mutated(self) -> list[int]:
        """The keys of outer tensors that were written to, also through views of them."""
        versions = {key: version_of(self.table[key]) for key in self._versions}
        changed = [key for key, before in self._versions.items() if versions[key] != before]
        return list(dict.fromkeys([*self._written, *changed]))

    def inside(self, value: Any) -> Any:
        """Return the stand-in for an outer tensor; return any other value unchanged."""
        if isinstance(value, slice):
            return slice(*(self.inside(each) for each in (value.start, value.stop, value.step)))
        if isinstance(value, (Collected, Rows)):
            return value.mapped(self.inside)
        if not isinstance(value, torch.Tensor) or id(value) in self._own:
            return value
        key = self.state.key(value)
        if key in self.table:
            return self.table[key]
        if not self.probing:
            return value
        made = value.detach().clone()
        self.lifted[key] = value
        self._kept += [value, made]
        self.table[key] = made
        self._versions[key] = version_of(made)
        self._outer[id(made)] = key
        self._own.add(id(made))
        return made

    def outside(self, value: Any) -> Any:
        """Return the outer tensor that a value represents; return any other value unchanged."""
        return self.lifted.get(self._outer.get(id(value), 0), value)

    def stand_in(self, value: Any) -> Any:
        """Return the operand for an outer tensor; return any other value unchanged."""
        if isinstance(value, (Collected, Rows)):
            return value.mapped(self.stand_in)
        if not isinstance(value, torch.Tensor):
            return value
        return self.table.get(self.state.key(value), value)

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call `func` with stand-ins."""
        given = dict(kwargs or {})
        if self._busy:
            return func(*args, **given)
        self._busy = True
        try:
            found = self._called(func, args, given)
        finally:
            self._busy = False
        for each in (found,) if isinstance(found, torch.Tensor) else pytree.tree_leaves(found):
            if isinstance(each, torch.Tensor):
                self._own.add(id(each))
                self._kept.append(each)
        return found

    def _called(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if func is torch.tensor:
            return self._constant(*args, **kwargs)
        name = getattr(func, "__name__", "")
        self.indexes = self.indexes or name in _MAY_FAIL
        args, kwargs = self._given(tuple(args)), self._given(kwargs)
        if _writes(name):
            for each in (args[:1], kwargs.get("out")):
                for tensor in pytree.tree_leaves(each):
                    key = self._outer.get(id(tensor))
                    if key is not None:
                        self._written[key] = None
        # The mode for numbers is not active while an operator traces its branches.
        return called(self.state, func, args, kwargs)

    def _given(self, value: Any) -> Any:
        """Return the arguments of a call with their stand-ins.

        A call of torch has few arguments. This function takes 1.6 us where pytree takes 10 us, and
        is called once for each level of nested branches and loops.
        """
        kind = type(value)
        if kind is tuple or kind is list:
            return kind([self._given(each) for each in value])
        if kind is dict:
            return {key: self._given(each) for key, each in value.items()}
        if isinstance(value, (torch.Tensor, slice)) or kind in _PLAIN:
            return self.inside(value)
        return pytree.tree_map(self.inside, value)

    def _constant(self, data: Any, dtype: Any = None, device: Any = None, **_: Any) -> Any:
        """Make a tensor from data, which torch.tensor cannot do in a branch.

        In a branch, a constant made by torch.tensor breaks run_decompositions (pytorch #180354).
        """
        if isinstance(data, (list, tuple)):
            if not data:
                return torch.zeros(0, dtype=dtype or torch.get_default_dtype(), device=device)
            made = [self._constant(each, dtype, device) for each in data]
            kind = made[0].dtype
            for each in made[1:]:
                kind = promoted(kind, each.dtype)
            return torch.stack([each.to(kind) for each in made])
        if isinstance(data, torch.Tensor):
            data = self.inside(data).detach()
            return data.clone() if dtype is None else data.to(dtype, copy=True)
        if isinstance(data, (bool, int, float)):
            return torch.full((), data, dtype=dtype or element_type(data), device=device)
        if isinstance(data, (torch.SymInt, torch.SymFloat)):
            return torch.scalar_tensor(data, dtype=dtype or element_type(data), device=device)
        return torch.tensor(data, dtype=dtype, device=device)


def _writes(name: str) -> bool:
    if name in _READING:
        return False
    return name in _WRITING or (name.endswith("_") and not name.endswith("__"))


@contextmanager
def _without_hooks() -> Iterator[None]:
    """Disable the hooks on the buffers of modules inside the context.

    With these hooks, torch.export makes an output of each change to a buffer. The writes of a
    branch, however, are undone, and repeated after the branch.
    """
    hooks = torch.nn.modules.module._global_buffer_registration_hooks
    before = dict(hooks)
    hooks.clear()
    try:
        yield
    finally:
        hooks.update(before)


@dataclass
class Run:
    """The results of one run of a function, and its effects on tensors and objects."""

    value: Any
    changes: Changes
    lifted: dict[int, torch.Tensor]
    """The outer tensors that the function read, by key."""
    mutated: list[int]
    indexes: bool


def run(function: Callable[[], Any], lift: Lift, places: Places) -> Run:
    """Run a function in a mode, and undo its writes to Python objects."""
    changes: Changes = {}
    lift.state.depth += 1
    try:
        with lift, _without_hooks():
            value = function()
    finally:
        lift.state.depth -= 1
        changes = places.changes()
        places.restore(changes)
    if lift.probing:
        # Values that it only passes on are also operands.
        for each in pytree.tree_leaves((value, list(changes.values()))):
            lift.inside(each)
        value = pytree.tree_map(lift.outside, value)
        changes = {n: _mapped(lift.outside, content) for n, content in changes.items()}
    return Run(value, changes, dict(lift.lifted), lift.mutated, lift.indexes)


def _mapped(function: Callable[[Any], Any], content: Any) -> Any:
    """Return the content of a place with its tensors replaced; other objects stay the same."""
    if isinstance(content, list):
        return [function(each) for each in content]
    return {k: function(v) for k, v in content.items()} if isinstance(content, dict) else content


def probe(state: State, function: Callable[[], Any], places: Places) -> Run:
    """Run a function on fake tensors, without adding anything to the graph."""
    with only_tried():
        found = quietly(lambda: run(function, Lift(state), places))
    _check_views(found)
    return found


def _check_views(found: Run) -> None:
    """Raise an error for a write to a tensor that shares memory with another tensor that is read.

    Operands in a graph do not share memory, so the write would not change the other tensor.
    """
    for key in found.mutated:
        written = found.lifted.get(key)
        if written is None:
            continue
        for other, tensor in found.lifted.items():
            if other != key and _storage(tensor) == _storage(written):
                raise RewriteError(
                    "a branch or loop writes to a tensor and reads a view of it, but in a graph "
                    "the write would not change the view; write to a clone instead"
                )


def _storage(tensor: torch.Tensor) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except Exception:  # a subclass without storage shares none
        return id(tensor)


def apart(operands: Iterable[Any]) -> list[Any]:
    """Return operands without shared memory, because torch rejects views of one tensor."""
    seen: set[int] = set()
    found = []
    for each in operands:
        key = _storage(each) if isinstance(each, torch.Tensor) else id(each)
        found.append(each.clone() if key in seen else each)
        seen.add(key)
    return found


def missing_sizes(places: Places, operands: list[Any]) -> list[torch.SymInt]:
    """Return the sizes that a branch uses, but that are not in the shape of any operand."""
    known = {
        symbol
        for each in operands
        if isinstance(each, torch.Tensor)
        for size in each.shape
        if isinstance(size, torch.SymInt) and size.node.expr.is_symbol
        for symbol in size.node.expr.free_symbols
    }
    found: dict[Any, torch.SymInt] = {}
    for each in places.sizes:
        if not each.node.expr.free_symbols <= known:
            found.setdefault(each.node.expr, each)
    return list(found.values())
