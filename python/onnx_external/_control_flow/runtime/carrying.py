"""Represents the state that a loop carries between iterations as tensors of fixed types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch.utils import _pytree as pytree

from onnx_external._base.errors import RewriteError
from onnx_external._control_flow.runtime.collected import Collected, Mark, NotCountedError
from onnx_external._control_flow.runtime.lifting import Lift, Run, probe
from onnx_external._control_flow.runtime.merging import as_tensor
from onnx_external._control_flow.runtime.places import (
    CACHES,
    Place,
    Places,
    at_key,
    put_key,
    starts_with,
)
from onnx_external._control_flow.runtime.sizes import is_free
from onnx_external._control_flow.runtime.state import State, quietly
from onnx_external._control_flow.values import (
    UNDEFINED,
    described,
    element_type,
    is_number,
    promoted,
    same_value,
)

Step: TypeAlias = Callable[..., tuple[Any, ...]]
_TRIES = 12
_UNSETTLED = "the types of the loop's state keep changing from iteration to iteration"


@dataclass
class Growth:
    """The growth of a tensor in each iteration."""

    dim: int
    start: Any
    """The size of the growing dimension before the first iteration."""
    by: int


@dataclass
class Emitted:
    """An item that each iteration adds to a list."""

    place: int
    is_in_front: bool
    """True if the item is inserted before all others; otherwise it is appended."""
    has_kept: bool
    bound: Any = None
    """The maximum length of the items, if their lengths differ."""

    def tensors(self, item: Any) -> Iterator[torch.Tensor]:
        """Yield the tensors of which an item consists."""
        kept = None
        if isinstance(item, Collected):
            item, kept = item.values.squeeze(0), item.kept
        item = as_tensor(item)
        if self.bound is not None:
            length = item.shape[0]
            rest = item.new_zeros((self.bound - length, *item.shape[1:]))
            yield torch.cat([item, rest])
            yield torch.scalar_tensor(length, dtype=torch.int64)
        else:
            yield item.clone(memory_format=torch.contiguous_format)
        if self.has_kept:
            yield torch.ones((), dtype=torch.bool) if kept is None else kept.reshape(()).clone()

    def count(self) -> int:
        """Return the number of tensors for each item."""
        return 1 + (self.bound is not None) + self.has_kept

    def collected(self, rows: Iterator[torch.Tensor]) -> Collected:
        """Return the items of all iterations, given tensors with a row for each iteration."""
        values = next(rows)
        lengths = next(rows) if self.bound is not None else None
        return Collected(values, next(rows) if self.has_kept else None, lengths)


@dataclass
class Carried:
    """The state of a loop, with types that no longer change."""

    state: State
    step: Step
    names: tuple[str, ...]
    key: str
    places: Places
    init: tuple[Any, ...]
    starts: list[Any] = field(default_factory=list)
    """The leaves of the state before the first iteration."""
    leaves: list[Any] = field(default_factory=list)
    """The leaves in `starts`, with a new object for each tensor, because the body may also read the
    original tensors from outside."""
    is_carried: list[bool] = field(default_factory=list)
    growth: dict[int, Growth] = field(default_factory=dict)
    emitted: list[Emitted] = field(default_factory=list)
    marked: list[Place] = field(default_factory=list)
    """The lists that contain a mark for the items of earlier iterations."""
    marks: list[Mark] = field(default_factory=list)
    """The marks for items of earlier iterations, one for each list in `marked`."""
    counts_rounds: bool = False
    """True if the loop knows its number of iterations, and so how many items a mark stands for."""
    slots: list[tuple[int, Any]] = field(default_factory=list)
    """The writes of iterations to Python objects: the number of the place, and the key in it."""

    def __post_init__(self) -> None:
        """Try iterations until the types of the state no longer change."""
        self.done: Run
        self._start((tuple(self.init), []))
        for _ in range(_TRIES):
            self._try_round()
            if not self._adjust():
                self._look_again()
                self._find_emitted()
                return
        raise self.refused(_UNSETTLED)

    def _try_round(self) -> None:
        self.growth = {}
        self.done = probe(self.state, lambda: self.round(self.full(self.leaves)), self.places)

    def _look_again(self) -> None:
        """Try another iteration, with marks in lists for the items of earlier iterations.

        Only such a trial shows whether an iteration reads one of these items, or inserts its own
        items before them.
        """
        self.marked = [self.places.all[number] for number, _, _ in self.done.value[2]]
        if not self.marked:
            return
        for each in self.marked:
            self.marks.append(Mark())
            each.before = [*each.before, self.marks[-1]]
            each.write(each.before)
        if self.counts_rounds:
            quietly(lambda: self.count(lambda _: torch.zeros((), dtype=torch.int64)))
        try:
            self._settle()
        except RewriteError as error:
            self.remove_marks()
            if error.where or isinstance(error, NotCountedError):
                raise
            raise self.refused(str(error)) from error
        except BaseException:
            self.remove_marks()
            raise

    def _settle(self) -> None:
        """Try iterations with marks until types are stable, as a number may depend on a length."""
        for _ in range(_TRIES):
            self._try_round()
            if self._more_slots() or len(self.done.value[2]) != len(self.marked):
                raise self._changed_otherwise(" and ".join(each.label for each in self.marked))
            if not self._adjust():
                return
        raise self.refused(_UNSETTLED)

    def _changed_otherwise(self, label: str) -> RewriteError:
        return self.refused(
            f"{label} is changed in a loop other than by append, which is supported only for a "
            "deque that is full before the loop"
        )

    def remove_marks(self) -> None:
        """Remove the marks for the items of iterations from all lists."""
        for each in self.marked:
            each.write([e for e in each.read() if not any(e is mark for mark in self.marks)])

    def count(self, items: Callable[[int], Any]) -> None:
        """Store in the marks of the lists how many items earlier iterations added."""
        for mark, (number, _, _) in zip(self.marks, self.done.value[2], strict=True):
            mark.count = items(number)

    def _start(self, full: Any) -> None:
        self.starts, self.spec = pytree.tree_flatten(full)
        self.leaves = [_alias(each) for each in self.starts]

    def origin(self, value: Any) -> Any:
        """Return the tensor that a leaf represents; return any other value unchanged."""
        for start, leaf in zip(self.starts, self.leaves, strict=True):
            if leaf is value:
                return start
        return value

    def refused(self, message: str) -> RewriteError:
        """Return an error for a loop that cannot be rewritten; it names the loop."""
        return RewriteError(message, self.key)

    def full(self, leaves: list[Any]) -> tuple[tuple[Any, ...], list[Any]]:
        """Return the state, and the values written to objects, rebuilt from their leaves."""
        found: tuple[tuple[Any, ...], list[Any]] = pytree.tree_unflatten(leaves, self.spec)
        return found

    def enter(self, full: tuple[tuple[Any, ...], list[Any]]) -> tuple[Any, ...]:
        """Write the values of the previous iteration to the objects, and return the state."""
        self.write(full[1])
        return full[0]

    def write(self, values: list[Any]) -> None:
        """Write values to the objects that the loop changes."""
        for (number, key), value in zip(self.slots, values, strict=True):
            content = self.places.all[number].read()
            put_key(content, key, value)
            self.places.all[number].assign(content)

    def round(self, full: tuple[tuple[Any, ...], list[Any]]) -> tuple[Any, list[Any], list[Any]]:
        """Return an iteration's state, its writes to objects, and its additions to lists."""
        after = tuple(self.step(*self.enter(full)))
        written = [at_key(self.places.all[n].read(), key) for n, key in self.slots]
        tails = []
        for number, place in enumerate(self.places.all):
            if place.may_grow and not any(number == n for n, _ in self.slots):
                now = place.read()
                more = len(now) - len(place.before)
                if more > 0 and starts_with(now, place.before):
                    tails.append((number, now[len(place.before) :], False))
                elif more > 0 and starts_with(now[more:], place.before):
                    tails.append((number, now[:more], True))
        return after, written, tails

    def results(self, after: Any, written: list[Any], lift: Lift) -> list[torch.Tensor]:
        """Return the state for the next iteration, cloned, as results must not be operands."""
        leaves = pytree.tree_leaves((after, written))
        found = []
        for leaf, start, carried in zip(leaves, self.leaves, self.is_carried, strict=True):
            if carried:
                made = as_tensor(lift.stand_in(leaf), start.dtype)
                found.append(made.clone(memory_format=torch.contiguous_format))
        return found

    def _adjust(self) -> bool:
        """Adapt the state to an iteration's results; return whether anything changed."""
        after, written, _ = self.done.value
        if self._more_slots():
            return True
        state, extra = self.full(self.leaves)
        pairs = list(zip(state, after, strict=True))
        unset = [_like_unset(one, other, self) for one, other in pairs]
        if any(new is not one for new, (one, _) in zip(unset, pairs, strict=True)):
            starts, more = self.full(self.starts)
            known = [a if a is not UNDEFINED else b for a, b in zip(starts, unset, strict=True)]
            self._start((tuple(known), more))
            return True
        self._check_structure(pairs, extra, written)
        leaves, labels = pytree.tree_leaves((after, written)), self._labels()
        found = [
            self._joined(place, one, other, label)
            for place, (one, other, label) in enumerate(
                zip(self.leaves, leaves, labels, strict=True)
            )
        ]
        changed = any(new is not old for new, old in zip(found, self.leaves, strict=True))
        self.is_carried = [
            isinstance(one, torch.Tensor) and one is not other
            for one, other in zip(self.leaves, leaves, strict=True)
        ]
        if changed:
            three = zip(found, self.leaves, self.starts, strict=True)
            self._start(self.full([old if new is leaf else new for new, leaf, old in three]))
        return changed

    def _more_slots(self) -> bool:
        """Find further writes to objects, except to lists that only grow; return True if any."""
        known, found = set(map(_slot_id, self.slots)), []
        for number, now in self.done.changes.items():
            place = self.places.all[number]
            if isinstance(now, list) and len(now) != len(place.before):
                tail = now[max(0, len(now) - len(place.before)) :]
                starts = any(starts_with(each, place.before) for each in (now, tail))
                if not starts or not place.may_grow:
                    raise self._changed_otherwise(place.label)
                continue
            if isinstance(now, set):
                raise self.refused(f"the set {place.label} is changed in a loop")
            keys = (
                range(len(now)) if isinstance(now, list) else dict.fromkeys([*now, *place.before])
            )
            for key in keys:
                if key in CACHES:
                    continue
                old = at_key(place.before, key)
                if at_key(now, key) is not old and _slot_id((number, key)) not in known:
                    if old is UNDEFINED or at_key(now, key) is UNDEFINED:
                        raise self.refused(
                            f"{place.named(key)} is first set in a loop; set it before the loop"
                        )
                    found.append((number, key))
        if found:
            state, extra = self.full(self.starts)
            more = [at_key(self.places.all[n].before, key) for n, key in found]
            self.slots += found
            self._start((state, [*extra, *more]))
        return bool(found)

    def _check_structure(self, pairs: list[Any], extra: list[Any], written: list[Any]) -> None:
        names = [*self.names, *(self.places.all[n].named(key) for n, key in self.slots)]
        for name, (one, other) in zip(
            names, [*pairs, *zip(extra, written, strict=True)], strict=True
        ):
            if pytree.tree_structure(one) != pytree.tree_structure(other):
                raise self.refused(
                    f"{name} is {described(one)} before an iteration of the loop and "
                    f"{described(other)} with another structure after it"
                )

    def _labels(self) -> list[str]:
        state, extra = self.full(self.leaves)
        names = [*self.names, *(self.places.all[n].named(key) for n, key in self.slots)]
        return [
            name
            for name, value in zip(names, [*state, *extra], strict=True)
            for _ in pytree.tree_leaves(value)
        ]

    def _joined(self, place: int, one: Any, other: Any, name: str) -> Any:
        """Return the initial value of a leaf, converted to its type after each iteration."""
        if one is other or (same_value(one, other) and not isinstance(one, torch.Tensor)):
            return one
        if is_number(one) and (is_number(other) or isinstance(other, torch.Tensor)):
            return as_tensor(one, promoted(element_type(one), element_type(other)))
        if not isinstance(one, torch.Tensor) or not (
            isinstance(other, torch.Tensor) or is_number(other)
        ):
            way = "; set it to a tensor before the loop" if one is None else ""
            if type(one) is type(other) and hasattr(one, "__dict__"):
                way = "; set its attributes instead, as in x.state = y, or use a variable for each"
            raise self.refused(
                f"{name} is {described(one)} before an iteration of the loop and "
                f"{described(other)} "
                f"after it{way}"
            )
        other = other if isinstance(other, torch.Tensor) else as_tensor_type(other)
        if one.dim() != other.dim():
            raise self.refused(
                f"{name} has {one.dim()} dimensions before an iteration of the loop and "
                f"{other.dim()} after it"
            )
        self._compare_shapes(place, one, other, name)
        kind = promoted(other.dtype, one.dtype)
        return one if kind == one.dtype else self.starts[place].to(kind)

    def _compare_shapes(
        self, place: int, one: torch.Tensor, other: torch.Tensor, name: str
    ) -> None:
        for dim, (before, after) in enumerate(zip(one.shape, other.shape, strict=True)):
            by = self._grows(before, after)
            if by == 0:
                continue
            if by is None or by < 0 or place in self.growth:
                raise self.refused(
                    f"{name} has another shape after each iteration of the loop: {_shape(one)}, "
                    f"then {_shape(other)}; its shape must stay the same, or grow by a fixed "
                    "number of items"
                )
            self.growth[place] = Growth(dim, before, by)

    def _grows(self, before: Any, after: Any) -> int | None:
        """Return the maximum growth of a size in one iteration; None if unknown."""
        expr = after.node.expr if isinstance(after, torch.SymInt) else after
        if expr in self.state.choices:
            found = [self._grows(before, each) for each in self.state.choices[expr]]
            known = [each for each in found if each is not None and each >= 0]
            return max(known) if len(known) == len(found) else None
        start = before.node.expr if isinstance(before, torch.SymInt) else before
        difference = expr - start
        return int(difference) if getattr(difference, "is_number", True) else None

    def _find_emitted(self) -> None:
        for number, tail, is_in_front in self.done.value[2]:
            label = self.places.all[number].label
            for item in tail:
                if isinstance(item, Collected):
                    if item.lengths is not None or item.values.shape[0] != 1:
                        raise self.refused(
                            f"{label} gets an item for each iteration of a loop inside a loop"
                        )
                    self.emitted.append(Emitted(number, is_in_front, True))
                elif isinstance(item, torch.Tensor) or is_number(item):
                    self.emitted.append(
                        Emitted(number, is_in_front, False, self._bound(item, label))
                    )
                else:
                    raise self.refused(
                        f"{label}, a list that grows in a loop, gets {described(item)}, not a "
                        "tensor or number"
                    )

    def _bound(self, item: Any, label: str) -> Any:
        """Return the maximum length of an item whose length depends on a tensor."""
        free = [at for at, size in enumerate(getattr(item, "shape", ())) if is_free(size)]
        if not free:
            return None
        bound = self.state.bounds.get(item.shape[0].node.expr) if free == [0] else None
        if bound is None or is_free(bound):
            raise self.refused(
                f"{label} gets rows of different lengths without an upper limit; cut them "
                "from a tensor whose size limits them, or pad them to one length"
            )
        return bound


def _alias(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return quietly(lambda: torch.ops.aten.alias.default(value))


def as_tensor_type(value: Any) -> torch.Tensor:
    """Return an empty tensor with the type of a number."""
    return torch.empty((), dtype=element_type(value), device="meta")


def _slot_id(slot: tuple[int, Any]) -> tuple[int, str, int]:
    number, key = slot
    return number, repr(key) if isinstance(key, (int, str)) else type(key).__name__, hash(key)


def _like_unset(one: Any, other: Any, carried: Carried) -> Any:
    """Return zeros for a name that the loop sets first, as no code reads it before that."""
    if one is not UNDEFINED or other is UNDEFINED:
        return one

    def zeros(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if any(map(is_free, value.shape)):
                raise carried.refused(
                    "a tensor that is first set in a loop has a different size in each iteration"
                )
            return torch.zeros(list(value.shape), dtype=value.dtype)
        return as_tensor(0, element_type(value)) if is_number(value) else value

    return pytree.tree_map(zeros, other)


def _shape(tensor: torch.Tensor) -> str:
    return f"({', '.join(map(str, tensor.shape))})"
