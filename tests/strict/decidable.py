"""Decide whether names and bytes determine the mapping of a graph, in which case a save must succeed."""

import math
from dataclasses import dataclass, field

import torch

from exporters import FLOATS, GraphFacts, count, tensor_bytes  # noqa: F401
from truth import module_of


def refined(name: str) -> str:
    return name.replace(".", "_")


@dataclass
class Graph:
    """The judge's facts on one exported graph, from its twin with weights and from other weights' graph.

    undecidable: why names cannot decide; constants: names of data of no key that no weight changes, to be
    confirmed with --keep; numbers: those of one element; sizes: element counts of data that the graph keeps;
    named: the keys that it names; unshaped: those of them whose shape it does not state; scopes: key -> what the nodes that use it say of modules.
    """

    inputs: list
    undecidable: list = field(default_factory=list)
    constants: list = field(default_factory=list)
    numbers: list = field(default_factory=list)
    sizes: set = field(default_factory=set)
    named: set = field(default_factory=set)
    unshaped: set = field(default_factory=set)  # of these: whose shape the graph does not state
    scopes: dict = field(default_factory=dict)
    transposed: dict = field(default_factory=dict)  # names of transposed weights -> their keys
    dependent: set = field(default_factory=set)  # names of data of no key that weights change
    integer_inputs: bool = False  # some named keys are integers, and inputs: they may be the caller's
    has_data: bool = False  # the graph as the tool gets it holds weights
    learnable: bool = False  # bytes tell all, given the weights that the graph was exported with
    broken: bool = False  # the exporter's graph with all its weights does not compute what torch does

    def tells_tie(self, named: str, given: str) -> bool:
        """Return whether a node that uses the weight `named` is marked with the module of the key `given`."""
        path = module_of(given)[:-1]
        scope = self.scopes.get(named, "")
        return f"/{path.rsplit('.', 1)[-1]}/" in scope or f"'{path}'" in scope


def study(graph, full, other, module, matter: set, groups: list, caller_count: int) -> Graph:
    """graph: as the tool gets it; full: with all weights; other: a function that gives `full` of other weights."""
    bare, whole = GraphFacts(graph), GraphFacts(full)
    callers = bare.inputs[:caller_count]
    result = Graph(callers)
    partners = {name: names for names in groups for name in names}
    state = module.state_dict()
    names = {refined(name): name for name in bare.names - set(callers)}
    result.named = {key for key in state if refined(key) in names}
    result.unshaped = {key for key in result.named if names[refined(key)] not in bare.shaped}
    result.scopes = {key: bare.scopes.get(names[refined(key)], "") for key in result.named}
    result.transposed = _transposed(bare, whole, state)
    result.named |= set(result.transposed.values())
    names.update({refined(key): name for name, key in result.transposed.items()})
    integers = {refined(key) for key in result.named if not state[key].is_floating_point()}
    result.integer_inputs = any(refined(name) in integers for name in bare.inputs)
    reasons = result.undecidable
    keys = {refined(key) for key in state}
    for name in bare.names - set(callers) - set(bare.tensors) - bare.identities - set(result.transposed):
        if refined(name) not in keys:
            reasons.append(f"{name} has no data and no key")

    for name in callers:
        if refined(name) in keys:
            reasons.append(f"input {name} is called like a key")
    used_modules = {module_of(key) for key in result.named}
    for key, value in state.items():
        if not any(name in result.named for name in partners.get(key, [key])):
            if key in matter:
                reasons.append(f"{key} has no name in the graph")
            elif value.is_floating_point() and module_of(key) in used_modules:
                reasons.append(f"{key} is not used, but its module is")
        elif key in result.named:
            held = whole.data.get(names[refined(key)])
            if names[refined(key)] not in result.transposed and held not in (None, raw(value)):
                reasons.append(f"{key} has another value in the graph")
    _study_loose_data(result, whole, other, state)
    result.has_data = bool(bare.tensors)
    result.learnable = result.has_data and _is_learnable(result, whole, state, matter, partners)
    return result


def _transposed(bare: GraphFacts, whole: GraphFacts, state: dict) -> dict:
    """Return, for names of data, the key whose transpose it is according to the exporter's mark and the shape."""
    found = {}
    for name, mark in bare.folded_from.items():
        key, tensor = mark.strip("[]'\""), whole.tensors.get(name)
        if tensor is None or key not in state or state[key].dim() != 2:
            continue
        rows, columns = state[key].shape
        if (
            tuple(tensor.dims) == (columns, rows)
            and rows != columns
            and whole.data[name] == raw(state[key].t())
        ):
            found[name] = key
    return found


def _is_learnable(result: Graph, whole: GraphFacts, state: dict, matter: set, partners: dict) -> bool:
    """Return whether the bytes of each weight occur exactly once, unchanged or transposed, and are used once."""
    by_bytes = {}
    for key, value in state.items():
        for form in (value, value.t()) if value.dim() == 2 else (value,):
            if value.is_floating_point():
                by_bytes.setdefault((tuple(form.shape), raw(form)), set()).add(partners.get(key, [key])[0])
    sizes = {value.numel() for value in state.values() if value.is_floating_point()}
    loose = [math.prod(shape) for _, _, shape in whole.loose]
    if any(size in sizes and size > 1 for size in loose):
        return False
    found = set()
    for name, tensor in whole.tensors.items():
        if tensor.data_type not in FLOATS:
            continue
        keys = by_bytes.get((tuple(tensor.dims), whole.data[name]), set())
        if count(tensor) == 1 and name in result.dependent:
            return False  # by chance, perhaps
        if len(keys) > 1 or whole.uses.get(name, 0) > 1:
            return False
        if not keys and (name in result.dependent or count(tensor) in sizes):
            return False  # computed from weights, or perhaps
        found |= keys
    groups = {partners.get(key, [key])[0] for key in matter}
    spare = any("its module is" in reason or "another value" in reason for reason in result.undecidable)
    return groups <= found and not spare and not whole.provided_weights(result.dependent)


def _study_loose_data(result: Graph, whole: GraphFacts, other, state: dict) -> None:
    """Divide float data without a key into constants and changed copies of weights."""
    keys = {refined(key) for key in state}
    loose = []
    for name, tensor in whole.tensors.items():
        if refined(name) not in keys and tensor.data_type in FLOATS and name not in result.transposed:
            loose.append((name, whole.data[name], tuple(tensor.dims), name in whole.marked))
    loose += [(name, data, shape, False) for name, data, shape in whole.loose]
    if not loose:
        return
    trained = GraphFacts(other())
    # A weight of ones and a constant of ones differ in their shapes at most.
    known = {(tuple(tensor.dims), trained.data[name]) for name, tensor in trained.tensors.items()}
    known |= {(shape, data) for _, data, shape in trained.loose}
    for name, data, shape, marked in loose:
        size = math.prod(shape)
        if (shape, data) not in known:
            result.undecidable.append(f"{name} depends on the weights")
            result.dependent.add(name)
        elif not marked and (size > 1 or name in whole.tensors):
            result.sizes.add(size)
            (result.constants if size > 1 else result.numbers).append(name)


def raw(value) -> bytes:
    """Return the tensor's bytes in row-major order."""
    flat = value.detach().contiguous().reshape(-1)
    return (flat.view(torch.int16) if flat.dtype == torch.bfloat16 else flat).numpy().tobytes()
