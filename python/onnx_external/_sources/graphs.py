"""Splits the caller's models into a graph without data and tensors, for the extension module.

The caller's object is never changed, not even temporarily. The graph is serialized with
placeholders for the tensors, whose bytes are not copied until they are written.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from .. import _core
from .._base.argument_types import path_of
from .._base.errors import FormatError, NotFoundError, ReadWriteError, WrongTypeError
from .._base.options import StrPath
from .._base.progress import only_errors
from .tensors import (
    FileRange,
    Loose,
    Made,
    Memory,
    NoDataError,
    bytes_of,
    describe,
    onnx_type,
    refused,
)


class SerializesToBytes(Protocol):
    """A protobuf message, such as onnx.ModelProto."""

    def SerializeToString(self) -> bytes:
        """Return the bytes of the message."""


class HoldsModel(Protocol):
    """An ONNXProgram of torch, or another object that has an onnx_ir model."""

    @property
    def model(self) -> Any:
        """The onnx_ir model."""


Graph = StrPath | bytes | SerializesToBytes | HoldsModel | Any
"""A model: a file, the bytes of a ModelProto, a ModelProto, an onnx_ir.Model, an ONNXProgram."""


class Given(NamedTuple):
    """Models in the form that the extension module takes."""

    graphs: list[tuple[str, bytes | StrPath, StrPath | None]]
    """For each model: the name, the ModelProto or file, and the folder of its external data.
    External data with the location `_core.loose_location` and the offset N is tensor number N."""
    tensors: list[Loose]
    """The tensors that were moved out of all models."""


class _Taken(NamedTuple):
    """A model after splitting; its tensors are in `_Loose`."""

    model: bytes | StrPath
    base_dir: StrPath | None


# Smaller tensors stay inside the graph, where onnx_ir leaves them, too.
_LEAST_BYTES = 256


def graph_without(model: Graph, names: Collection[str]) -> bytes:
    """Return a ModelProto without the data of the named initializers."""
    if isinstance(model, (str, os.PathLike)):
        return _bytes_of(Path(path_of("model", model)))
    given = _take(model, None, _Loose(True, set(names)))
    assert isinstance(given.model, bytes)
    return given.model


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise NotFoundError(f"{path}: not found") from None
    except OSError as error:
        raise ReadWriteError(f"{path}: {error.strerror}") from error


def given_models(
    models: Mapping[str, Graph], base_dir: StrPath | None, may_lack_data: bool
) -> Given:
    """Split the models of the caller into graphs and tensors.

    Several models with weights have no checkpoint keys by which equal weights are recognized, so
    the bytes are compared. Data in the same file range, or at the same address, is known to be
    equal.

    Args:
        models: the models by name: files, bytes, or objects of onnx, onnx_ir or torch.
        base_dir: the folder of the external data, if the caller names one.
        may_lack_data: True if initializers without data become slots to fill; otherwise they are an
            error.
    """
    tensors = _Loose(may_lack_data, compares=len(models) > 1 and not may_lack_data)
    graphs = []
    for name, model in models.items():
        if not isinstance(name, str):
            raise WrongTypeError(f"model: the name {name!r} is not a str")
        graphs.append((name, *_take(model, base_dir, tensors)))
    return Given(graphs, tensors.all)


def _take(model: Graph, base_dir: StrPath | None, tensors: _Loose) -> _Taken:
    if isinstance(model, (str, os.PathLike)):
        model = path_of("model", model)
    if isinstance(model, (bytes, str, os.PathLike)):
        return _Taken(model, base_dir)
    ir = sys.modules.get("onnx_ir")
    inner = getattr(model, "model", model)  # of an ONNXProgram
    if ir is not None and isinstance(inner, ir.Model):
        return _IrModel(ir, base_dir, tensors).take(inner)
    onnx = sys.modules.get("onnx")
    if onnx is not None and isinstance(model, onnx.ModelProto):
        if _has_no_tensors(model.graph):
            return _Taken(_serialized(model), base_dir)
        skeleton = type(model)()
        _copy(model, skeleton, {"graph": partial(_copy_graph, tensors=tensors)})
        return _Taken(_serialized(skeleton), base_dir)
    if hasattr(model, "SerializeToString"):
        return _Taken(bytes(model.SerializeToString()), base_dir)
    export = "; to export a module with its weights, use oe.torch.export(module, args, path)"
    raise WrongTypeError(
        "model: expected a path, bytes, an onnx.ModelProto, an onnx_ir.Model or an ONNXProgram, "
        f"not {type(model).__name__}{export if _is_module(model) else ''}"
    )


def _is_module(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def _serialized(skeleton: Any) -> bytes:
    try:
        return bytes(skeleton.SerializeToString())
    except Exception as cause:  # each version of protobuf has another class
        error = FormatError(
            "the model cannot be serialized even without the data of its initializers: "
            f"{cause}; large tensors must be initializers with raw data"
        )
        error.code = "unsupported"
        raise error from cause


class _Loose:
    """Collects the large tensors that are moved out of models.

    If names are given, the tensors with these names are dropped instead, and all others stay in the
    models.
    """

    def __init__(
        self, may_lack_data: bool, names: Collection[str] | None = None, compares: bool = False
    ) -> None:
        self.all: list[Loose] = []
        self.compares = compares
        self.dropped = names or ()
        self._least = _LEAST_BYTES if names is None else sys.maxsize
        self._may_lack_data = may_lack_data
        # By id; the objects are kept, so that no other object gets the id of one that is gone.
        self._places: dict[int, tuple[int, object]] = {}

    def stays(self, loose: Loose) -> bool:
        """Return whether a tensor stays inside the graph."""
        return bytes_of(loose) < self._least

    def describe(self, name: str, tensor: Any) -> Loose | None:
        """Describe a tensor; return None if it has no data, and may lack data."""
        try:
            return describe(name, tensor)
        except NoDataError:
            if self._may_lack_data:
                return None
            raise

    def place(self, tensor: object, loose: Loose) -> int:
        """Return the number of a tensor; initializers that share one object share the number."""
        number, _ = self._places.setdefault(id(tensor), (len(self.all), tensor))
        if number == len(self.all):
            self.all.append(loose)
        return number


# --- onnx_ir ---
#
# onnx_ir's serializers take any objects with the attributes of its own classes. So they are given
# views of the model in which placeholders replace the data of initializers.


class _View:
    """An onnx_ir object with some attributes replaced."""

    def __init__(self, of: Any, **replaced: Any) -> None:
        self._of = of
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)


class _GraphView(_View):
    """A graph or function in which nodes with subgraphs are replaced with views."""

    def __init__(self, of: Any, view_node: Callable[[Any], Any], **replaced: Any) -> None:
        super().__init__(of, **replaced)
        self._view_node = view_node

    def __iter__(self) -> Iterator[Any]:
        return map(self._view_node, self._of)

    def __len__(self) -> int:
        return len(self._of)


class _IrModel:
    """Splits an onnx_ir model."""

    def __init__(self, ir: Any, base_dir: StrPath | None, tensors: _Loose) -> None:
        self._ir = ir
        self._tensors = tensors
        self._base_dir = base_dir
        self._graph_types = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)

    def take(self, model: Any) -> _Taken:
        functions = {
            key: _GraphView(function, self._node) for key, function in model.functions.items()
        }
        view = _View(model, graph=self._graph(model.graph), functions=functions)
        with only_errors("onnx_ir.serde"):  # which warns of each initializer without data
            graph = self._ir.serde.serialize_model(view)
        return _Taken(_serialized(graph), self._base_dir)

    def _graph(self, graph: Any) -> _GraphView:
        values = {name: self._value(value) for name, value in graph.initializers.items()}
        return _GraphView(graph, self._node, initializers=values)

    def _node(self, node: Any) -> Any:
        graphs = {
            name: self._attribute(attribute)
            for name, attribute in node.attributes.items()
            if attribute.type in self._graph_types and not attribute.is_ref()
        }
        if not graphs:
            return node
        return _View(node, attributes={**node.attributes, **graphs})

    def _attribute(self, attribute: Any) -> _View:
        if attribute.type == self._ir.AttributeType.GRAPH:
            return _View(attribute, value=self._graph(attribute.value))
        return _View(attribute, value=[self._graph(graph) for graph in attribute.value])

    def _value(self, value: Any) -> Any:
        tensor = value.const_value
        if tensor is None:
            return value
        if value.name in self._tensors.dropped:
            return _View(value, const_value=None)
        if isinstance(tensor, self._ir.ExternalTensor) and self._has_usual_place(tensor):
            return value
        if not onnx_type(tensor.dtype)[1]:  # strings, and types that the library does not know
            return value
        loose = self._tensors.describe(value.name, tensor)
        if loose is None:
            return _View(value, const_value=None)
        if self._tensors.stays(loose) and not isinstance(loose.place, FileRange):
            return value
        number = self._tensors.place(tensor, loose)
        return _View(value, const_value=self._placeholder(value.name, tensor, number))

    def _has_usual_place(self, tensor: Any) -> bool:
        """Return whether external data is in the model's folder, where the library looks for it."""
        if os.path.isabs(tensor.location) or str(tensor.location) == _core.loose_location:
            return False
        folder = tensor.base_dir or self._base_dir or "."
        if self._base_dir is None:
            self._base_dir = folder
        return os.path.abspath(folder) == os.path.abspath(self._base_dir)

    def _placeholder(self, name: str, tensor: Any, number: int) -> Any:
        return self._ir.ExternalTensor(
            _core.loose_location,
            number,
            None,
            tensor.dtype,
            shape=self._ir.Shape(tuple(tensor.shape)),
            name=name,
            doc_string=tensor.doc_string,
            metadata_props=dict(getattr(tensor, "metadata_props", None) or {}),
        )


# --- onnx ---
#
# A message is copied field by field, except for the raw data of initializers.


def _copy(message: Any, out: Any, special: dict[str, Callable[[Any, Any], None]]) -> None:
    """Copy a message into an empty message; the functions in `special` copy certain fields."""
    for field, value in message.ListFields():
        if field.name in special:
            special[field.name](value, getattr(out, field.name))
        else:
            _copy_field(field.name, value, out)
    _copy_unknown_fields(message, out)


def _copy_field(name: str, value: Any, out: Any) -> None:
    if hasattr(value, "MergeFrom"):  # a message, or a repeated field
        target = getattr(out, name)
        if hasattr(target, "SetInParent"):
            target.SetInParent()
        target.MergeFrom(value)
    else:
        setattr(out, name, value)


def _copy_graph(graph: Any, out: Any, tensors: _Loose) -> None:
    out.SetInParent()
    subgraph = partial(_copy_graph, tensors=tensors)

    def initializers(given: Any, target: Any) -> None:
        for tensor in given:
            _copy_tensor(tensor, target.add(), tensors)

    def nodes(given: Any, target: Any) -> None:
        start = 0
        for index, node in enumerate(given):
            if any(attribute.type in _GRAPHS for attribute in node.attribute):
                target.MergeFrom(given[start:index])  # at once: one by one takes five times as long
                _copy(node, target.add(), {"attribute": attributes})
                start = index + 1
        target.MergeFrom(given[start:])

    def attributes(given: Any, target: Any) -> None:
        for attribute in given:
            _copy(attribute, target.add(), {"g": subgraph, "graphs": subgraphs})

    def subgraphs(given: Any, target: Any) -> None:
        for one in given:
            subgraph(one, target.add())

    _copy(graph, out, {"initializer": initializers, "node": nodes})


_GRAPHS = (5, 10)  # AttributeProto.GRAPH, GRAPHS


def _has_no_tensors(graph: Any) -> bool:
    """Return whether no graph of a message has initializers, so that nothing needs to be copied.

    To copy 20,000 nodes takes 75 ms, to look at them 8 to 15 ms.
    """
    attributes = (each for node in graph.node if node.attribute for each in node.attribute)
    return not graph.initializer and all(each.type not in _GRAPHS for each in attributes)


def _copy_tensor(tensor: Any, out: Any, tensors: _Loose) -> None:
    if any(entry.value == _core.loose_location for entry in tensor.external_data):
        raise refused(tensor.name, "its location is a reserved name of this package", "correct it")
    if tensor.name in tensors.dropped:
        _copy_form(tensor, out)
        return
    if not onnx_type(tensor.data_type)[1] or not tensor.HasField("raw_data"):
        out.MergeFrom(tensor)
        return
    # A message may have its data and say where to put it: onnx.save() then writes it there.
    loose = describe(tensor.name, tensor)
    if tensors.stays(loose):
        _copy_form(tensor, out)
        out.raw_data = tensor.raw_data
        return
    _copy_form(tensor, out)
    out.data_location = 1  # EXTERNAL
    if tensors.compares:  # a message makes a copy of its data whenever it is asked
        loose = _in_memory(loose)
    number = tensors.place(tensor, loose)
    for key, value in ("location", _core.loose_location), ("offset", str(number)):
        out.external_data.add(key=key, value=value)


def _in_memory(loose: Loose) -> Loose:
    place = loose.place
    if not isinstance(place, Made):
        return loose
    data: Any = np.empty(place.size, np.uint8)
    place.fill(memoryview(data))
    return loose._replace(place=Memory(data.__array_interface__["data"][0], place.size, data))


def _copy_form(tensor: Any, out: Any) -> None:
    """Copy all fields except the data, which ListFields() would also copy."""
    for name in _fields_beside_data(tensor.DESCRIPTOR):
        value = getattr(tensor, name)
        if hasattr(value, "__len__") and not isinstance(value, str):
            getattr(out, name).MergeFrom(value)
        elif tensor.HasField(name):
            _copy_field(name, value, out)
    _copy_unknown_fields(tensor, out)


@lru_cache(maxsize=8)
def _fields_beside_data(descriptor: Any) -> tuple[str, ...]:
    data = ("data_location", "external_data")
    names = (field.name for field in descriptor.fields)
    return tuple(name for name in names if not name.endswith("_data") and name not in data)


def _copy_unknown_fields(message: Any, out: Any) -> None:
    """Copy fields that the caller's version of onnx does not know."""
    try:
        from google.protobuf.unknown_fields import UnknownFieldSet

        fields = UnknownFieldSet(message)
    except ImportError:  # protobuf before 4.22
        fields = message.UnknownFields()
    if len(fields):
        out.MergeFromString(_wire_of(fields))


def _wire_of(fields: Any) -> bytes:
    out = bytearray()
    for field in fields:
        out += _varint(field.field_number << 3 | field.wire_type)
        if field.wire_type == 0:
            out += _varint(field.data)
        elif field.wire_type == 1:
            out += field.data.to_bytes(8, "little")
        elif field.wire_type == 2:
            out += _varint(len(field.data)) + field.data
        elif field.wire_type == 3:  # a group, which ends with a tag of its own
            out += _wire_of(field.data) + _varint(field.field_number << 3 | 4)
        else:
            out += field.data.to_bytes(4, "little")
    return bytes(out)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
