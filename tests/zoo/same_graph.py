"""Compares two graphs of one model, regardless of the names of inner values and nodes."""

import hashlib
import re
from collections import Counter
from pathlib import Path

import onnx

INNER = re.compile(r"(_\d+)?$")  # torch numbers what it makes
ASKED = re.compile(r"(sym_size\.int\]\()args = \(%\w+, \d+\)")
LIFTED = re.compile(r"(\.lifted_tensor)_\d+$")  # a constant of the code
TOKEN = re.compile(r"[A-Za-z_][\w.]*")


def differences(one: Path, other: Path) -> list:
    """Return lines that describe differences in inputs, outputs, initializers, nodes, shapes or metadata."""
    mine, its = Graph(one), Graph(other)
    found = []
    for what in ("inputs", "outputs", "weights", "constants", "nodes", "metadata"):
        a, b = getattr(mine, what), getattr(its, what)
        if a != b:
            only = [x for x in a if x not in b][:2], [x for x in b if x not in a][:2]
            found.append(f"{what}: {len(a)} and {len(b)}; {only[0]} instead of {only[1]}")
    return found


class Graph:
    """A graph in which each value is identified by its computation."""

    def __init__(self, path: Path):
        model = onnx.load(path, load_external_data=False)
        graph = model.graph
        self._dims: dict = {}
        self._names = {value.name: f"input {value.name}" for value in graph.input}
        self.inputs = [self._form(value) for value in graph.input]
        self._varying = {value.name: self._shape(value)[1] for value in graph.input}
        self._values = {each.name: self._shape(each) for each in (*graph.value_info, *graph.output)}
        self.weights, self.constants = Counter(), Counter()
        for tensor in graph.initializer:
            self._initializer(tensor, graph)
        told = list(map(self._node, graph.node))
        self.nodes = Counter(name for name, _ in told)
        self.outputs = [(*self._form(value), self._names[value.name]) for value in graph.output]
        renamed = {**self._names, **self._fx_names}
        self.metadata = Counter(
            (name, key, self._text(text, renamed))
            for name, texts in told
            for key, text in texts.items()
        )

    _fx_names: dict = {}

    def _form(self, value) -> tuple:
        texts = tuple(sorted((each.key, each.value) for each in value.metadata_props))
        return value.name, self._shape(value), texts

    def _shape(self, value) -> tuple:
        """Return the shape, with dynamic sizes numbered in the order in which they first occur."""
        kind = value.type.tensor_type
        return kind.elem_type, tuple(self._dim(d.dim_param) or d.dim_value for d in kind.shape.dim)

    def _dim(self, name: str) -> str:
        if not name:
            return ""
        return re.sub(r"s\d+", lambda m: self._dims.setdefault(m[0], f"d{len(self._dims)}"), name)

    def _initializer(self, tensor, graph) -> None:
        form = tensor.data_type, tuple(tensor.dims)
        if tensor.data_location == 1 or "." in tensor.name:
            texts = {v.name: v.metadata_props for v in graph.value_info}.get(tensor.name, ())
            told = tuple(sorted((each.key, each.value) for each in texts))
            self.weights[tensor.name, form, told] += 1
            self._names[tensor.name] = f"weight {tensor.name}"
            return
        digest = hashlib.md5(tensor.raw_data or tensor.SerializeToString()).hexdigest()
        self.constants[form, digest] = 1  # how often the optimizer keeps one is its affair
        self._names[tensor.name] = f"constant {form} {digest}"

    def _node(self, node) -> tuple:
        given = [self._names[name] if name else "" for name in node.input]
        given = self._size(node) or given
        settings = sorted(each.SerializeToString() for each in node.attribute)
        made = [self._values.get(name) for name in node.output]
        text = repr((node.domain, node.op_type, given, settings, made))
        name = f"{node.op_type} {hashlib.md5(text.encode()).hexdigest()}"
        self._names.update({output: f"{name} {place}" for place, output in enumerate(node.output)})
        return name, {each.key: each.value for each in node.metadata_props}

    def _size(self, node) -> list:
        """For the size of an input that varies its name: torch reads one size of any input that has it."""
        bounds = {each.name: each.i for each in node.attribute}
        dims = self._varying.get(node.input[0], ()) if node.op_type == "Shape" else ()
        if (
            "start" not in bounds
            or bounds.get("end") != bounds["start"] + 1
            or bounds["start"] >= len(dims)
        ):
            return []
        dim = dims[bounds["start"]]
        return [f"size {dim}"] if isinstance(dim, str) else []

    def _text(self, text: str, names: dict) -> str:
        """Metadata in which values are called by what they are, and what the graph has not by its kind."""
        text = ASKED.sub(r"\1", text)
        return TOKEN.sub(lambda match: self._token(match[0], names), text)

    def _token(self, token: str, names: dict) -> str:
        if token in names and "." not in token:
            return names[token]
        if "." in token:
            return LIFTED.sub(r"\1", token)
        return INNER.sub("_", re.sub(r"(_layer_\d+)_*$", "", token), count=1)
