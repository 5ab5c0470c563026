"""Runs a module again with different rounding, or with different choices among equal values.

A module's result is not the only correct one: its operators round, and `topk`, `sort` or `argmax`
pick any of several equal values. A mode of torch's dispatcher records each operator call of a run,
so that another run can replace results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .._base.errors import Error
from .._control_flow import state_kept
from .inputs import Given
from .references import ModuleReference
from .values import Array, Value, is_float

_STEPS = frozenset({"floor", "ceil", "round", "trunc", "sign", "sgn", "frac", "floor_divide"})
"""Operators with discontinuous results; a run with perturbed rounding reuses the results of the
first run."""
_PICKING = {
    "topk": 0, "sort": 0, "argmax": 0, "argmin": 0, "max": 0, "min": 0, "kthvalue": 0, "median": 0,
    "nanmedian": 0, "mode": 0, "cummax": 0, "cummin": 0, "max_pool2d_with_indices": 2,
    "max_pool3d_with_indices": 3, "adaptive_max_pool2d": 2, "adaptive_max_pool3d": 3,
}  # fmt: skip
"""Operators that return the indices of values, and the number of last dimensions over which the
indices count; 0 means the dimension `dim` of the call."""
_DRAWS = 8
"""The number of runs with perturbed rounding that measure its effect."""
_MARGIN = 16.0
"""The factor by which a different computation may exceed the measured effect of rounding."""
_MARGIN_OF_HALVES = 4.0
"""The margin for half types, whose operators round only once."""
_HOPELESS = 1000.0
"""A difference that exceeds that of a perturbed run by this factor cannot be rounding."""


class DivergedError(Exception):
    """Raised if a rerun calls other operators than the first run did."""


@dataclass
class Pick:
    """One call of an operator that returns the indices of values, such as argmax or topk."""

    number: int
    name: str
    values: torch.Tensor
    """The values among which the operator (such as argmax or topk) picked."""
    dim: int | None
    """The dimension along which the operator picked; None for all dimensions."""
    keeps: bool
    """True if the operator's result keeps the dimension, with size 1."""
    falls: bool
    """True if the operator picks the largest values first, False for the smallest."""
    together: int
    places: torch.Tensor

    def picked(self, places: torch.Tensor) -> torch.Tensor | None:
        """Return the values at the given indices; None if an index is out of range."""
        values, dim = self.values, self.dim
        if self.together:
            values = values.flatten(-self.together)
            found = places.flatten(-self.together)
            dim = values.dim() - 1
        elif dim is None or not values.dim():
            values, found, dim = values.reshape(-1), places.reshape(-1), 0
        else:
            found = places if self.keeps else places.unsqueeze(dim)
        if found.numel() and (int(found.min()) < 0 or int(found.max()) >= values.shape[dim]):
            return None
        return values.gather(dim, found)

    def repeats(self, places: torch.Tensor) -> bool:
        """Return whether an index occurs twice although each may occur only once."""
        if self.name not in ("topk", "sort") or self.dim is None or not places.dim():
            return False
        ordered = places.sort(self.dim).values
        return bool((ordered.diff(dim=self.dim) == 0).any())

    @property
    def has_ties(self) -> bool:
        """True if there are equal values among those from which the operator picked."""
        if self.dim is None or not self.values.dim():
            return False
        ordered = self.values.sort(self.dim).values
        return bool((ordered.diff(dim=self.dim) == 0).any())

    def stable(self) -> torch.Tensor | None:
        """Return the indices that ONNX prescribes: of equal values, the first one.

        Return None if ONNX prescribes none.
        """
        if self.name not in ("topk", "sort") or self.dim is None or not self.values.dim():
            return None
        size = self.places.shape[self.dim]
        ordered = self.values.sort(dim=self.dim, descending=self.falls, stable=True).indices
        return ordered.narrow(self.dim, 0, size)


def _argument(func: Any, args: Any, kwargs: Any, name: str, otherwise: Any) -> Any:
    for place, each in enumerate(func._schema.arguments):
        if each.name == name:
            if place < len(args):
                return args[place]
            return kwargs.get(name, each.default_value if each.has_default_value() else otherwise)
    return otherwise


def _is_number(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


class Run(TorchDispatchMode):  # type: ignore[misc]
    """Records which operators are called in a run, and the discrete results of each call."""

    def __init__(self, choices: Mapping[int, torch.Tensor]) -> None:
        super().__init__()
        self._choices = choices
        self.outputs: dict[str, Value] = {}
        self.calls: list[Any] = []
        self.decided: dict[int, list[Any]] = {}
        """The results of each call, with None for tensors that are subject to rounding."""
        self.picks: list[Pick] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call an operator, and record it."""
        result = func(*args, **(kwargs or {}))
        number, name = len(self.calls), func._schema.name.partition("::")[2]
        self.calls.append(func)
        flat = list(result) if isinstance(result, (tuple, list)) else [result]
        if name in _PICKING and isinstance(flat[-1], torch.Tensor):
            pick = _pick(func, args, kwargs or {}, number, name, flat[-1])
            if pick is not None:
                self.picks.append(pick)
                result, flat = self._chosen(pick, result, flat)
        if name in _STEPS:
            self.decided[number] = [_copied(each) for each in flat]
        elif any(not _is_number(each) and not isinstance(each, float) for each in flat):
            kept = [None if _is_number(each) else _copied(each) for each in flat]
            self.decided[number] = kept
        return result

    def _chosen(self, pick: Pick, result: Any, flat: list[Any]) -> tuple[Any, list[Any]]:
        """Return the result of a call, changed to the indices that were chosen for it."""
        places = self._choices.get(pick.number)
        if places is None:
            return result, flat
        pick.places = places.clone()
        flat = _with_places(pick, flat, places.clone())
        return (type(result)(flat) if isinstance(result, (tuple, list)) else flat[0]), flat


def _with_places(pick: Pick, flat: list[Any], places: torch.Tensor) -> list[Any]:
    """Return an operator's results for the given indices, with values if it returns any."""
    if len(flat) == 1:
        return [places]
    picked = pick.picked(places)
    assert picked is not None
    return [picked.reshape(flat[0].shape).to(flat[0].dtype), places]


def _pick(func: Any, args: Any, kwargs: Any, number: int, name: str, places: Any) -> Pick | None:
    if places.is_floating_point() or places.dtype == torch.bool or not args:
        return None
    values = args[0]
    if not isinstance(values, torch.Tensor) or len(func._schema.returns) > 2:
        return None
    if name in ("max", "min", "median", "nanmedian") and func._schema.overload_name != "dim":
        return None
    dim = _argument(func, args, kwargs, "dim", None)
    dim = dim % values.dim() if isinstance(dim, int) and values.dim() else dim
    keeps = name in ("topk", "sort", "cummax", "cummin")
    keeps = keeps or bool(_argument(func, args, kwargs, "keepdim", False))
    falls = bool(
        _argument(func, args, kwargs, "largest" if name == "topk" else "descending", False)
    )
    return Pick(number, name, values.clone(), dim, keeps, falls, _PICKING[name], places.clone())


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


class _Shaken(TorchDispatchMode):  # type: ignore[misc]
    """Perturbs the rounding of each operator, but keeps the decisions of the first run."""

    def __init__(self, before: Run, seed: int) -> None:
        super().__init__()
        self._before, self._number = before, 0
        self._picks = {each.number: each for each in before.picks}
        self._random = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call an operator, and perturb its result."""
        number, calls = self._number, self._before.calls
        self._number += 1
        if number >= len(calls) or calls[number] is not func:
            raise DivergedError
        result = func(*args, **(kwargs or {}))
        many = isinstance(result, (tuple, list))
        flat = list(result) if many else [result]
        forms = [each.alias_info for each in func._schema.returns]
        if many and len(forms) != len(flat):
            forms = forms * len(flat)
        fresh = [form is None for form in forms]
        kept = self._before.decided.get(number)
        if kept is not None and len(kept) != len(flat):
            raise DivergedError
        pick = self._picks.get(number)
        if pick is not None and fresh[0]:
            pick = Pick(**{**vars(pick), "values": args[0]})
            flat = _with_places(pick, flat, pick.places.clone())
        found = [
            self._value(each, one, kept[place] if kept is not None else None)
            for place, (each, one) in enumerate(zip(flat, fresh, strict=True))
        ]
        return type(result)(found) if many else found[0]

    def _value(self, value: Any, fresh: bool, kept: Any) -> Any:
        if not fresh:
            return value
        if kept is not None:
            same = isinstance(kept, torch.Tensor) == isinstance(value, torch.Tensor)
            if not same or (isinstance(kept, torch.Tensor) and kept.shape != value.shape):
                raise DivergedError
            return _copied(kept)
        return self.shaken(value) if isinstance(value, torch.Tensor) else value

    def inputs(self, call: Any) -> Any:
        """Return the arguments of the module with slightly perturbed values."""
        return torch.utils._pytree.tree_map_only(torch.Tensor, self.shaken, call)

    def shaken(self, value: torch.Tensor) -> torch.Tensor:
        """Return a tensor in which each element is unchanged, or about one rounding step away."""
        if not value.is_floating_point() or value.layout != torch.strided:
            return value
        steps = torch.randint(-1, 2, value.shape, generator=self._random, dtype=torch.int8)
        factor = 1 + torch.finfo(value.dtype).eps * steps.to(value.dtype)
        return value * factor.to(value.device)


@dataclass
class Reruns:
    """Runs a module again on the same inputs, and undoes its changes to its own state."""

    reference: ModuleReference
    given: Given
    what: str

    def run(self, choices: Mapping[int, torch.Tensor] | None = None) -> Run | None:
        """Run the module, and return the recorded run; None if the module cannot be run this way.

        Args:
            choices: by number of the call, the indices that the operator has to pick.
        """
        run = Run(choices or {})
        found = self._outputs(run, None)
        if found is None:
            return None
        run.outputs = found
        return run

    def _outputs(
        self, mode: TorchDispatchMode, change: Callable[[Any], Any] | None
    ) -> dict[str, Value] | None:
        reference = self.reference
        with state_kept(reference.module), torch.random.fork_rng(devices=[]):
            try:
                with reference.within(mode, change):
                    return reference.outputs(self.given, self.what)
            except Error:
                return None

    def rounding(self, before: Run, differ: Mapping[str, float | None]) -> dict[str, Array] | None:
        """Return, for each output, how much its elements change if operators round differently.

        Args:
            before: the run whose decisions are repeated.
            differ: the largest difference to explain, by output.

        Returns:
            The differences due to rounding, by output; None if they are unknown, or if the
            difference to explain cannot be rounding.
        """
        found: dict[str, Array] = {}
        for seed in range(_DRAWS):
            shaken = _Shaken(before, seed)
            outputs = self._outputs(shaken, shaken.inputs)
            if outputs is None or outputs.keys() != before.outputs.keys():
                return None
            for name, value in outputs.items():
                base = before.outputs[name]
                if is_float(base) and value.shape == base.shape:
                    with np.errstate(all="ignore"):
                        off = np.abs(value.astype(np.float64) - base.astype(np.float64))
                    off = np.where(np.isfinite(off), off, 0.0)
                    found[name] = np.maximum(found.get(name, 0.0), off)
            if not all(_may_be(found.get(name), most) for name, most in differ.items()):
                return None
        return {name: _margin(before.outputs[name]) * each for name, each in found.items()}


def _margin(output: Array) -> float:
    return _MARGIN_OF_HALVES if output.dtype.itemsize < 4 else _MARGIN


def _may_be(rounding: Array | None, difference: float | None) -> bool:
    if rounding is None or not rounding.size or difference is None:
        return False
    return difference <= _HOPELESS * float(rounding.max())


def choices_of(
    run: Run, outputs: Mapping[str, Value], agree: Callable[[Array, Array], bool]
) -> dict[int, torch.Tensor]:
    """Return the indices that another model picked among equal values.

    Args:
        run: a run of the module.
        outputs: the other model's outputs, by the names of the run's outputs.
        agree: a function that returns whether values agree.
    """
    return {
        pick.number: places
        for name, value in outputs.items()
        for pick, places in _choices(run, run.outputs.get(name), value, agree)
    }


def _choices(
    run: Run, own: Value, value: Value, agree: Callable[[Array, Array], bool]
) -> Iterator[tuple[Pick, torch.Tensor]]:
    if not (isinstance(own, np.ndarray) and isinstance(value, np.ndarray)):
        return
    if own.dtype.kind not in "iu" or own.shape != value.shape or (own == value).all():
        return
    for pick in run.picks:
        if pick.places.numel() != own.size:
            continue
        if not np.array_equal(pick.places.reshape(-1).numpy(), own.reshape(-1)):
            continue
        other = torch.from_numpy(np.ascontiguousarray(value).astype(np.int64))
        other = other.reshape(pick.places.shape)
        picked, wanted = pick.picked(other), pick.picked(pick.places)
        if picked is None or wanted is None or pick.repeats(other):
            continue
        if agree(picked.detach().float().numpy(), wanted.detach().float().numpy()):
            yield pick, other


def stable_choices(run: Run) -> dict[int, torch.Tensor]:
    """Return the indices that ONNX prescribes wherever a run of torch met equal values."""
    found = {each.number: each.stable() for each in run.picks if each.has_ties}
    return {number: places for number, places in found.items() if places is not None}
