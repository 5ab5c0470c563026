"""Compares the parts of a model that implement modules with the modules themselves."""

from __future__ import annotations

import os
from collections.abc import Sequence, Set
from functools import partial
from typing import Any

import numpy as np

from .._base.errors import Error, RunError
from .._comparing.comparing import Comparison, compare
from .._comparing.running import Session
from .._comparing.values import is_equal
from .outcomes import Outcome
from .pieces import (
    Boundary,
    Piece,
    Tolerance,
    Wanted,
    compare_outputs,
    cut_piece,
    load,
    stand_ins,
    stand_ins_of_sums,
)
from .recording import MOST_CALLS, Recorded
from .reports import ModuleDiagnosis, Status
from .unmarked import Unmarked


def diagnosis_of(recorded: Recorded, outcome: Outcome) -> ModuleDiagnosis:
    """Return the diagnosis of a module, made from its record and the outcome."""
    return ModuleDiagnosis(
        recorded.name,
        recorded.cls,
        outcome.status,
        outcome.step,
        outcome.reason,
        recorded.order,
        recorded.forms("input"),
        recorded.forms("output"),
        outcome.sets,
        followed=outcome.followed,
    )


class Judge:
    """Cuts pieces out of one model, and runs them on recorded values.

    Args:
        model: the path of the model.
        whole: the loaded model.
        root: the whole model as the piece of the outermost module.
        boundary: inner values of the model.
        count: the number of input sets.
        tolerance: the tolerance of all comparisons.
        follow: also run each piece on the inputs that the model itself computes.
        unmarked: nodes that do not belong to the piece of any module.
    """

    def __init__(
        self,
        model: str,
        whole: Session,
        root: Piece,
        boundary: Boundary,
        count: int,
        tolerance: Tolerance,
        follow: bool,
        unmarked: Unmarked,
    ) -> None:
        self._unmarked = unmarked
        self._model, self._whole, self._root, self._boundary = model, whole, root, boundary
        self._count, self._tolerance, self._follow = count, tolerance, follow
        self._pieces: dict[str, Piece | Error | None] = {"": root}
        self.model_is_right = False
        """True if the model's values before a module can be trusted."""

    def piece(self, name: str) -> Piece | Error | None:
        """Return a module's piece, an error if it cannot be cut, or None if it has no nodes."""
        if name not in self._pieces:
            try:
                self._pieces[name] = cut_piece(self._model, name)
            except Error as error:
                self._pieces[name] = error
        return self._pieces[name]

    def fetch(self, modules: Sequence[Recorded]) -> None:
        """Compute the inputs of the modules' pieces, in as few runs of the model as possible."""
        called = sorted((each for each in modules if each.order >= 0), key=lambda each: each.order)
        pieces = [self.piece(each.name) for each in called]
        self._boundary.fetch(
            [name for each in pieces if isinstance(each, Piece) for name in each.inputs]
        )

    def whole(self, recorded: Recorded) -> ModuleDiagnosis:
        """Judge a module, including everything inside it."""
        return diagnosis_of(recorded, self.around(recorded, []))

    def around(self, recorded: Recorded, replaced: Sequence[Recorded]) -> Outcome:
        """Judge the operations of a module without some modules inside it, which are replaced.

        The outputs that the replaced modules have in the reference become inputs of the piece, and
        their inputs become expected outputs of the piece.
        """
        if recorded.order < 0:
            return Outcome(Status.NOINPUT, reason="it was not called")
        if max(recorded.counts.values()) > MOST_CALLS:
            return Outcome(
                Status.NOINPUT, reason=f"it was called more than {MOST_CALLS} times in one run"
            )
        found, step = Outcome(Status.OK), "cut"
        try:
            piece = self._cut(recorded.name, replaced)
            if piece is None:
                return Outcome(Status.NOINPUT, reason=self._without_nodes(recorded.name))
            step = "load"
            session = self._load(recorded.name, piece)
            step = "inputs"
            for number in range(self._count):
                self._boundary.values(piece.inputs, number)
                self._refuse_strange_inputs(recorded, replaced, piece, number)
            step = "run"
            for number in range(self._count):
                self._run(recorded, replaced, piece, session, number, found)
        except Error as error:
            reason = str(error).partition("\n")[0]
            if step == "inputs":
                return Outcome(Status.NOINPUT, reason=reason)
            return Outcome(Status.FAIL, step, reason)
        if not found.compared:
            reason = "no operation of its own" if replaced else self._without_outputs(piece)
            return Outcome(Status.NOINPUT, reason=reason)
        if found.is_empty:
            reason = "nothing to compare: no elements, or only NaN on both sides"
            return Outcome(Status.NOINPUT, reason=reason, sets=found.sets)
        found.judge()
        return found

    def _without_nodes(self, name: str) -> str:
        """Return the reason why no piece of the model implements a module."""
        if name in self._unmarked.inside:
            return "it is inside a branch or a loop, which is judged with the module around it"
        return "no node of the model was made for it"

    def _without_outputs(self, piece: Piece) -> str:
        """Return the reason why no result of a piece is an output of its module."""
        after = [name for name in piece.outputs if name in self._unmarked.reads]
        if after:
            return f"nodes without a module name compute its outputs, starting from {after[0]}"
        return "none of its outputs is a value in the model"

    def _cut(self, name: str, replaced: Sequence[Recorded]) -> Piece | None:
        if replaced:
            return cut_piece(self._model, name, [each.name for each in replaced])
        piece = self.piece(name)
        if isinstance(piece, Error):
            raise piece
        return piece

    def _load(self, name: str, piece: Piece) -> Session:
        if piece is self._root:
            return self._whole
        return load(piece, self._whole.given_providers, name, os.path.dirname(self._model))

    def _refuse_strange_inputs(
        self, recorded: Recorded, replaced: Sequence[Recorded], piece: Piece, number: int
    ) -> None:
        """Raise an error if a piece starts inside its module and the model is wrong there."""
        made = self._unmarked.gives.intersection(piece.inputs)
        made.difference_update(*(inner.outputs for _, inner in self._pieces_of(replaced)))
        if self.model_is_right or not made:
            return
        own = self._boundary.values(sorted(made), number)
        for name in own.keys() - self._stand_ins(recorded, own, number, "input").keys():
            raise RunError(f"nodes without a module name compute {name}, which it takes")

    def _run(
        self,
        recorded: Recorded,
        replaced: Sequence[Recorded],
        piece: Piece,
        session: Session,
        number: int,
        found: Outcome,
    ) -> None:
        own, what = self._boundary.values(piece.inputs, number), f"input set {number}"
        inside = {name for _, inner in self._pieces_of(replaced) for name in inner.gives}
        outside = {name: each for name, each in own.items() if name not in inside}
        given = {**own, **self._taken(recorded, piece, outside, number)}
        for each, inner in self._pieces_of(replaced):
            made = {name: own[name] for name in inner.outputs if name in own}
            given |= self._stand_ins(each, made, number, "output")
        given |= self._side_by_side(replaced, own, number)
        wanted = self._wanted(recorded, replaced, number)
        ends = self._whole.output_names if recorded.name else []
        got = session.run(session.feed(given, what), what)
        taken = recorded.values(number, "input")
        beside = taken, ends, self._tolerance, self._unmarked.reads
        compared = compare_outputs(got, wanted, *beside)
        for each, inner in self._pieces_of(replaced):
            compared += self._compare_inputs(each, inner, number, got)
        found.sets.append(compared)
        if self._follow and not replaced:
            got = session.run(session.feed(own, what), what)
            found.followed.append(compare_outputs(got, wanted, *beside))

    def _side_by_side(
        self, replaced: Sequence[Recorded], own: dict[str, Any], number: int
    ) -> dict[str, Any]:
        """Return joined outputs of several modules, with the recorded outputs filled in."""
        found: dict[str, Any] = {}
        for each, inner in self._pieces_of(replaced):
            recorded = each.values(number, "output")
            if inner.part is None or len(recorded) != 1 or inner.part.of not in own:
                continue
            whole, start, end = inner.part
            value = found.setdefault(whole, np.array(own[whole]))
            if value[..., start:end].shape == recorded[0].shape:
                value[..., start:end] = recorded[0]
        return found

    def _wanted(
        self, recorded: Recorded, replaced: Sequence[Recorded], number: int
    ) -> list[Wanted]:
        """Return a module's recorded outputs, except outputs that replaced modules produce."""
        inside = [array for each in replaced for array in each.values(number, "output")]
        values = zip(
            recorded.values(number, "output"), recorded.plain(number, "output"), strict=True
        )
        return [
            Wanted(array, is_plain, place == 0)
            for place, (array, is_plain) in enumerate(values)
            if not any(is_equal(array, other) for other in inside)
        ]

    def _taken(
        self, recorded: Recorded, piece: Piece, own: dict[str, Any], number: int
    ) -> dict[str, Any]:
        """Return the recorded values for the inputs of a module's piece."""
        find = partial(self._stand_ins, recorded, number=number, side="input")
        return stand_ins_of_sums(own, piece.sums, find)

    def _stand_ins(
        self, recorded: Recorded, own: dict[str, Any], number: int, side: str
    ) -> dict[str, Any]:
        right: Set[str] = own.keys()
        if not self.model_is_right:
            right = self._boundary.given | self._unmarked.gives
        candidates, plain = recorded.values(number, side), recorded.plain(number, side)
        return stand_ins(own, candidates, plain, right)

    def _pieces_of(self, modules: Sequence[Recorded]) -> list[tuple[Recorded, Piece]]:
        pieces = [(each, self.piece(each.name)) for each in modules]
        return [(each, piece) for each, piece in pieces if isinstance(piece, Piece)]

    def _compare_inputs(
        self, replaced: Recorded, inner: Piece, number: int, got: dict[str, Any]
    ) -> list[Comparison]:
        """Compare the inputs of a replaced module, as far as the piece around it computes them."""
        added = {name for pair in inner.sums for name in pair}  # their sum is not a value
        names = [name for name in inner.inputs if name in got and name not in added]
        own = self._boundary.values(names, number)
        wanted = self._stand_ins(replaced, own, number, "input")
        return [compare(name, got[name], want, *self._tolerance) for name, want in wanted.items()]
