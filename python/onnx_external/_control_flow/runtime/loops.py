"""Converts loops that end depending on a tensor to while_loop.

Scans also use this module's handling of operands and results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from onnx_external._base.errors import RewriteError
from onnx_external._control_flow.runtime.branches import operator
from onnx_external._control_flow.runtime.carrying import Carried, Growth, Step
from onnx_external._control_flow.runtime.collected import Collected
from onnx_external._control_flow.runtime.conditions import as_bool
from onnx_external._control_flow.runtime.lifting import Lift, Run, apart, probe, run
from onnx_external._control_flow.runtime.places import Places
from onnx_external._control_flow.runtime.sizes import size_of
from onnx_external._control_flow.runtime.state import State

_while_loop = torch.ops.higher_order.while_loop


class Loop:
    """The common part of while_loop and scan: state, operands, and in-place writes in the body."""

    def __init__(self, carried: Carried, runs: list[Run], own: list[torch.Tensor]) -> None:
        self.carried, self.state = carried, carried.state
        lifted: dict[int, torch.Tensor] = {}
        for each in runs:
            lifted.update(each.lifted)
        self.now = [n for n, is_carried in enumerate(carried.is_carried) if is_carried]
        for each in (*(carried.leaves[n] for n in self.now), *own):
            lifted.pop(self.state.key(each), None)
        mutated = dict.fromkeys(key for each in runs for key in each.mutated)
        self.mutated = [key for key in mutated if key in lifted]
        self.written = [carried.origin(lifted.pop(key)) for key in self.mutated]
        self.ids = list(lifted)
        self.operands = [carried.origin(each) for each in lifted.values()]

    def starts(self) -> list[torch.Tensor]:
        """Return the state before the first iteration, and the tensors written in place."""
        first = [*(self.carried.starts[n] for n in self.now), *self.written]
        return [self.state.resolved(each).clone() for each in first]

    def more(self, sizes: list[torch.SymInt]) -> list[Any]:
        """Return the operands of the operator besides the state: outer tensors and sizes."""
        return [*apart(self.state.resolved(each) for each in self.operands), *sizes]

    def split(self, front: list[Any], operands: list[Any]) -> tuple[list[Any], dict[int, Any]]:
        """Return the leaves of the state in an iteration, and the stand-ins for outer tensors."""
        many = len(self.now)
        table = dict(zip(self.ids, operands, strict=False))
        table |= {key: v.clone() for key, v in zip(self.mutated, front[many:], strict=True)}
        leaves = list(self.carried.leaves)
        for place, each in zip(self.now, front[:many], strict=True):
            leaves[place] = each.clone()
        return leaves, table

    def outputs(self, done: Run, lift: Lift, table: dict[int, Any]) -> list[torch.Tensor]:
        """Return the state after an iteration, and the tensors written in place."""
        after, written, _ = done.value
        found = self.carried.results(after, written, lift)
        return [*found, *(table[key].clone() for key in self.mutated)]

    def emissions(self, done: Run, lift: Lift) -> list[torch.Tensor]:
        """Return the items that an iteration adds to lists."""
        items = [lift.stand_in(item) for _, tail, _ in done.value[2] for item in tail]
        pairs = zip(self.carried.emitted, items, strict=True)
        return [each for one, item in pairs for each in one.tensors(item)]

    def emitted(self) -> list[torch.Tensor]:
        """Return the items that an iteration adds, as tensors without data, in no graph."""

        def made() -> list[torch.Tensor]:
            return self.emissions(self.carried.done, Lift(self.state, {}))

        found: list[torch.Tensor] = probe(self.state, made, self.carried.places).value
        return found

    def finished(self, results: list[torch.Tensor]) -> tuple[Any, ...]:
        """Apply the writes of the iterations, and return the final state."""
        leaves, rest = list(self.carried.starts), iter(results)
        for place in self.now:
            leaves[place] = next(rest)
        for each in self.written:
            each.copy_(next(rest))
        state, written = self.carried.full(leaves)
        self.carried.write(written)
        return state

    def append(self, rows: Iterator[torch.Tensor], kept: torch.Tensor | None = None) -> None:
        """Add the items of all iterations to lists, given tensors with a row per iteration."""
        by_place: dict[tuple[int, bool], list[Collected]] = {}
        for each in self.carried.emitted:
            by_place.setdefault((each.place, each.is_in_front), []).append(each.collected(rows))
        self.carried.remove_marks()
        for (place, is_in_front), items in by_place.items():
            content = self.carried.places.all[place].read()
            if is_in_front:
                content.insert(0, _interleaved(items[::-1], kept).backwards())
            else:
                content.append(_interleaved(items, kept))
            self.carried.places.all[place].assign(content)


def _interleaved(items: list[Collected], kept: torch.Tensor | None) -> Collected:
    """Return the items of all iterations in order, also if each iteration adds several."""

    def joined(parts: list[torch.Tensor]) -> torch.Tensor:
        return parts[0] if len(parts) == 1 else torch.stack(parts, 1).flatten(0, 1)

    if len({each.lengths is None for each in items}) > 1:
        raise RewriteError(
            "an iteration of a loop appends items of one length together with items whose length "
            "varies"
        )
    masks = None
    if kept is not None or any(each.kept is not None for each in items):
        ones = [
            torch.ones(e.values.shape[0], dtype=torch.bool) if e.kept is None else e.kept
            for e in items
        ]
        masks = joined([each if kept is None else each & kept for each in ones])
    lengths = (
        None
        if items[0].lengths is None
        else joined([e.lengths for e in items if e.lengths is not None])
    )
    return Collected(joined([each.values for each in items]), masks, lengths)


def while_looped(
    state: State,
    goes_on: Callable[..., Any],
    step: Step,
    names: tuple[str, ...],
    init: tuple[Any, ...],
    key: str,
    bound: Any = None,
    ends_early: bool = True,
) -> tuple[Any, ...]:
    """Return the state after a loop that continues while a condition holds.

    Args:
        state: the state of the runtime.
        goes_on: the condition, as a function of the state.
        step: an iteration, as a function from a state to the next state.
        names: the names of the values in the state.
        init: the state before the first iteration.
        key: the key of the loop.
        bound: the maximum number of iterations, if a size is known to limit it.
        ends_early: True if there may be fewer iterations.
    """
    places = Places([goes_on, step])
    carried = Carried(state, step, names, key, places, init, counts_rounds=True)
    if carried.growth or carried.emitted:
        return _Bounded(carried, goes_on, bound, ends_early).call()
    tests = _tested(carried, goes_on)
    loop = Loop(carried, [carried.done, tests], [])

    def cond_fn(*given: Any) -> Any:
        leaves, table = _given(loop, given)
        return _test(loop, goes_on, leaves, table)

    def body_fn(*given: Any) -> Any:
        leaves, table = _given(loop, given)
        with state.branch(table):
            lift = Lift(state, table)
            done = run(lambda: carried.round(carried.full(leaves)), lift, places)
            return tuple(loop.outputs(done, lift, table))

    def call(sizes: list[torch.SymInt]) -> Any:
        return _while_loop(cond_fn, body_fn, tuple(loop.starts()), tuple(loop.more(sizes)))

    # Results of iterations have the types of their inputs.
    operands = [*loop.operands, *loop.starts()]
    return loop.finished(list(operator(call, loop.starts, places, operands)))


def _tested(carried: Carried, goes_on: Callable[..., Any]) -> Run:
    full = carried.full(carried.leaves)
    return probe(carried.state, lambda: goes_on(*carried.enter(full)), carried.places)


def _given(loop: Loop, given: Any) -> tuple[list[Any], dict[int, Any]]:
    many = len(loop.now) + len(loop.mutated)
    return loop.split(list(given[:many]), list(given[many:]))


def _test(loop: Loop, goes_on: Callable[..., Any], leaves: list[Any], table: dict[int, Any]) -> Any:
    carried = loop.carried
    with loop.state.branch(table):
        lift = Lift(loop.state, table)
        full = carried.full(leaves)
        found = run(lambda: goes_on(*carried.enter(full)), lift, carried.places).value
        return as_bool(lift.stand_in(found)).reshape(()).clone()


class _Bounded:
    """A loop whose state or lists grow, so that it needs buffers and counts its iterations."""

    def __init__(
        self, carried: Carried, goes_on: Callable[..., Any], bound: Any, ends_early: bool
    ) -> None:
        self.carried, self.goes_on, self.state = carried, goes_on, carried.state
        self.ends_early = ends_early or bound is None
        most = bound if bound is not None else self.state.max_iterations
        if most is None:
            raise carried.refused(self._why())
        self.bound: Any = most
        if bound is None:
            self.state.note(f"{carried.key}: the loop ends after at most {self.bound} iterations")
        counts = [mark.count for mark in carried.marks if mark.count is not None]
        self.loop = Loop(carried, [carried.done, _tested(carried, goes_on)], counts)
        self.buffers = self._buffers()

    def _why(self) -> str:
        labels = self.carried._labels()
        grown = [labels[place] for place in self.carried.growth]
        grown += [self.carried.places.all[each.place].label for each in self.carried.emitted]
        what = " and ".join(dict.fromkeys(grown))
        return (
            f"{what} grows in each iteration of a loop whose number of iterations depends on a "
            "tensor; pass max_iterations, the maximum number of iterations in the graph"
        )

    def _buffers(self) -> list[torch.Tensor]:
        emitted = self.loop.emitted()
        return [torch.zeros([self.bound, *each.shape], dtype=each.dtype) for each in emitted]

    def call(self) -> tuple[Any, ...]:
        """Run the operator, and return the final state."""
        first = self.loop.starts()
        witnesses = [first[self._at(place)] for place in self.carried.growth]
        if not isinstance(self.bound, int):
            witnesses.append(torch.zeros(self.bound, dtype=torch.bool))

        def starts() -> tuple[torch.Tensor, ...]:
            rounds = torch.zeros((), dtype=torch.int64)
            padded = [*first]
            for place, growth in self.carried.growth.items():
                most = growth.start + self.bound * growth.by
                padded[self._at(place)] = _filled(first[self._at(place)], growth.dim, most)
            return (rounds, *(each.clone() for each in self.buffers), *padded)

        def call(sizes: list[torch.SymInt]) -> Any:
            more = (*witnesses, *self.loop.more(sizes))
            return _while_loop(self._cond, self._body, starts(), more)

        operands = [*self.loop.operands, *witnesses, *first]
        results = list(operator(call, starts, self.carried.places, operands))
        many = 1 + len(self.buffers)
        return self._finished(results[0], results[1:many], results[many:])

    def _cond(self, *given: Any) -> Any:
        round_ = self._round(given)
        going = _test(self.loop, self.goes_on, round_.leaves, round_.table)
        return (round_.number < round_.bound) & going

    def _body(self, *given: Any) -> Any:
        round_, carried = self._round(given), self.carried
        with self.state.branch(round_.table):
            lift = Lift(self.state, round_.table)
            done = run(lambda: carried.round(carried.full(round_.leaves)), lift, carried.places)
            out = self.loop.outputs(done, lift, round_.table)
            rows = self.loop.emissions(done, lift)
        for place, growth in carried.growth.items():
            most = round_.values[self._at(place)].shape[growth.dim]
            out[self._at(place)] = _filled(out[self._at(place)], growth.dim, most)
        index = round_.number.reshape(1)
        pairs = zip(round_.buffers, rows, strict=True)
        buffers = [buffer.index_copy(0, index, row.unsqueeze(0)) for buffer, row in pairs]
        return (round_.number + 1, *buffers, *out)

    def _round(self, given: Any) -> _Round:
        """Return the operands of an iteration as named values."""
        loop, growth = self.loop, self.carried.growth
        many, front = len(loop.now) + len(loop.mutated), 1 + len(self.buffers)
        values, rest = list(given[front : front + many]), list(given[front + many :])
        starts, rest = rest[: len(growth)], rest[len(growth) :]
        bound = self.bound
        if not isinstance(bound, int):
            bound, rest = rest[0].shape[0], rest[1:]
        inner = list(values)
        for (place, each), start in zip(growth.items(), starts, strict=True):
            size = _grown(given[0], each, start.shape[each.dim], values[self._at(place)])
            inner[self._at(place)] = values[self._at(place)].narrow(each.dim, 0, size)
        leaves, table = loop.split(inner, rest)
        if any(mark.is_counted for mark in self.carried.marks):
            self.carried.count(lambda place: self._items(place, given[0], given[1:front]))
        return _Round(given[0], bound, list(given[1:front]), values, leaves, table)

    def _items(self, place: int, rounds: torch.Tensor, buffers: Sequence[Any]) -> Any:
        """Return the number of items that earlier iterations have added to a list and kept."""
        found, rest = [], iter(buffers)
        for each in self.carried.emitted:
            parts = [next(rest) for _ in range(each.count())]
            if each.place == place:
                found.append(parts[-1].sum() if each.has_kept else rounds)
        return functools.reduce(torch.add, found)

    def _at(self, place: int) -> int:
        return self.loop.now.index(place)

    def _finished(
        self, rounds: torch.Tensor, buffers: list[torch.Tensor], values: list[torch.Tensor]
    ) -> tuple[Any, ...]:
        for place, growth in self.carried.growth.items():
            value = values[self._at(place)]
            size = _grown(rounds, growth, growth.start, value)
            values[self._at(place)] = value.narrow(growth.dim, 0, size)
        state = self.loop.finished(values)
        if buffers:
            kept = torch.arange(self.bound) < rounds if self.ends_early else None
            self.loop.append(iter(buffers), kept)
        return state


@dataclass
class _Round:
    """The values of the operands in one iteration of a bounded loop."""

    number: torch.Tensor
    bound: Any
    buffers: list[torch.Tensor]
    values: list[torch.Tensor]
    """The state, in which growing tensors are padded."""
    leaves: list[Any]
    table: dict[int, Any]


def _grown(rounds: torch.Tensor, growth: Growth, start: Any, filled: torch.Tensor) -> Any:
    """Return the size of a growing dimension after a number of iterations."""
    return size_of(rounds * growth.by + start, most=filled.shape[growth.dim])


def _filled(value: torch.Tensor, dim: int, most: Any) -> torch.Tensor:
    """Return a growing tensor, padded with zeros to its size after the last iteration."""
    sizes = list(value.shape)
    sizes[dim] = most - sizes[dim]
    return torch.cat([value, torch.zeros(sizes, dtype=value.dtype)], dim)
