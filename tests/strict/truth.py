"""Asks torch whether a checkpoint loads, which keys matter, and what the module then computes."""

import math
from dataclasses import dataclass, field

import torch
from torch import nn

from weights import FIXED, ties

# Marks in keys that are not weights of the base model.
ADAPTER_MARKS = ("lora_", "ia3_", "adapter")
# A weight affects the outputs if changing it moves them by this fraction of the largest value. The judge's tolerance is
# much smaller.
MATTERS = 1e-3


def run(module: nn.Module, inputs: tuple) -> tuple:
    with torch.no_grad():
        result = module(*inputs)
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def distance(got, want) -> float:
    """Return the largest difference of two lists of outputs, relative to the largest value of each; inf for NaN."""
    worst = 0.0
    for a, b in zip(got, want):
        if a.shape != b.shape:
            return float("inf")
        scale = max(float(b.abs().max()), 1e-6) if b.numel() else 1.0
        error = float((a - b).abs().max()) / scale if b.numel() else 0.0
        worst = max(worst, float("inf") if math.isnan(error) else error)
    return worst


def complete_ties(module: nn.Module, state: dict) -> dict:
    """Return the state with the missing names of tied weights, if a partner is present."""
    whole = dict(state)
    for names in ties(module):
        given = [name for name in names if name in state]
        for name in names:
            if given and name not in whole:
                whole[name] = state[given[0]]
    return whole


@dataclass
class Verdict:
    """The result of torch's strict loading: missing and unexpected keys, and keys of another shape."""

    module: nn.Module
    missing: list = field(default_factory=list)
    unexpected: list = field(default_factory=list)
    misshaped: list = field(default_factory=list)

    @property
    def accepts(self) -> bool:
        return not (self.missing or self.unexpected or self.misshaped)


def load(module: nn.Module, state: dict) -> Verdict:
    """Load the fitting keys into the module, which equals torch's strict loading if that succeeds."""
    state = complete_ties(module, state)
    try:
        module.load_state_dict(state, strict=True)
        return Verdict(module)
    except RuntimeError:
        pass
    own = module.state_dict()
    misshaped = [key for key in own if key in state and own[key].shape != state[key].shape]
    fitting = {key: value for key, value in state.items() if key not in misshaped}
    result = module.load_state_dict(fitting, strict=False)
    missing = [key for key in result.missing_keys if key not in misshaped]
    return Verdict(module, missing, list(result.unexpected_keys), misshaped)


def without_ones(verdict: Verdict, state: dict) -> dict:
    """Return the state with misshaped keys in the module's own shapes; empty where more than ones was added."""
    own = verdict.module.state_dict()
    fits = [tuple(n for n in state[key].shape if n != 1) == tuple(n for n in own[key].shape if n != 1)
            for key in verdict.misshaped]  # fmt: skip
    if not fits or not all(fits):
        return {}
    return {**state, **{key: state[key].reshape(own[key].shape) for key in verdict.misshaped}}


def positions_missing(verdict: Verdict) -> dict:
    """Return missing integers that models compute from their configuration, with the module's values."""
    own = verdict.module.state_dict()
    found = {key: own[key] for key in verdict.missing if key.rsplit(".", 1)[-1] in FIXED}
    return {key: value for key, value in found.items() if not value.is_floating_point()}


def keys_that_matter(module: nn.Module, other: dict, input_sets: list) -> set:
    """Return the keys on which the outputs depend, so that other values for one key change the outputs."""
    groups = {name: names for names in ties(module) for name in names}
    before = [run(module, inputs) for inputs in input_sets]
    found = set()
    for name, value in module.state_dict().items():
        if name in found:
            continue
        kept = value.clone()
        value.copy_(other[name])
        after = [run(module, inputs) for inputs in input_sets]
        value.copy_(kept)
        if max(distance(a, b) for a, b in zip(after, before)) > MATTERS:
            found.update(groups.get(name, [name]))
    return found


def module_of(key: str) -> str:
    return key.rsplit(".", 1)[0] + "." if "." in key else ""


def must_refuse(verdict: Verdict, state: dict, matter: set) -> str:
    """Return the reason why no save may succeed with any graph, or "" if one may."""
    for key in verdict.missing + verdict.misshaped:
        if key in matter:
            return f"{key} is {'missing' if key in verdict.missing else 'of another shape'}"
    used_modules = {module_of(key) for key in matter}
    for key in verdict.unexpected:
        if not state[key].is_floating_point():
            continue
        if any(mark in key for mark in ADAPTER_MARKS):
            return f"{key} is an adapter"
        if key.rsplit(".", 1)[-1] not in ("inv_freq",) and module_of(key) in used_modules:
            return f"{key} is a key of a module that is used"
    return ""
