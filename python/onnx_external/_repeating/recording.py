"""Records a model's operators, without tensor values.

torch.export runs a model on fake tensors and records a graph, which takes a long time. In this
module, the model is run in the same way, for the sizes of the example, but only a list is recorded:
each operator with the origins of its operands, and each condition on a size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .._base.errors import ExportError
from .._base.swapping import exchanged
from .kinds import Stack, digest
from .seen_floats import floats_seen
from .seen_sizes import SizesSeen, telling_float


class Unprovable(ExportError):
    """The shallow model does not prove the deep model; the message states why, in one line."""


class Segment(NamedTuple):
    """A layer of a stack, or the part of the model between layers (`stack` is -1)."""

    stack: int
    layer: int


class Place(NamedTuple):
    """The origin of a tensor: an operator of a segment, and one of its results.

    A result that a layer returns has the number -1, and its position among the layer's results.
    """

    visit: int
    """The number of the segment, in the order in which segments ran."""
    number: int
    result: int


class Leaf(NamedTuple):
    """A weight with all of its names, an input with its number, or a constant."""

    kind: str
    key: Any


class Op(NamedTuple):
    """An operator, or a condition on a size."""

    name: str
    given: Any
    """The operands: numbers, places and leaves."""
    made: Any
    """The types and shapes of the results."""
    scope: str
    """The name of the module that ran the operator."""


@dataclass
class Record:
    """The recorded operators, inputs and outputs of a model."""

    segments: list[Segment] = field(default_factory=list)
    ops: list[list[Op]] = field(default_factory=list)
    """The operators of each segment."""
    inputs: list[Any] = field(default_factory=list)
    """The types and shapes of the inputs that are tensors."""
    given: list[bool] = field(default_factory=list)
    """True for each input that is a tensor."""
    outputs: list[Any] = field(default_factory=list)
    """The origin of each output that is a tensor, and the other outputs themselves."""


Export: TypeAlias = Callable[[], Any]
"""A function that calls torch.export.export(strict=False) on a module."""


class _Done(BaseException):
    """Ends an export as soon as the model has been run."""


def recorded(module: nn.Module, stacks: Sequence[Stack], export: Export) -> Record:
    """Return the record of a module that is run as torch.export would run it.

    Args:
        module: the module to export.
        stacks: the lists of layers; the module may have fewer layers than stated there.
        export: a function that exports the module; it is interrupted when the module has been run.

    Raises:
        Unprovable: the module does not run, or not all of its operations can be recorded.
    """
    from torch.export import _trace

    found: list[Record] = []

    def make_fx(function: Any, **_: Any) -> Any:
        def run(*given: Any) -> Any:
            found.append(_run(module, stacks, function, given))
            raise _Done

        return run

    if not hasattr(_trace, "make_fx"):
        raise Unprovable("this version of torch traces in an unknown way")
    try:
        with exchanged(_trace, "make_fx", make_fx):
            export()
    except _Done:
        return found[0]
    except Exception as error:
        for each in (error, error.__cause__, error.__context__):
            if isinstance(each, Unprovable):
                raise each from error
        line = str(error).strip().partition("\n")[0]
        raise Unprovable(f"it does not run outside a trace: {line[:200]}") from error
    raise Unprovable("it was exported without being traced")


def _run(module: nn.Module, stacks: Sequence[Stack], function: Any, given: Sequence[Any]) -> Record:
    recorder = _Recorder(module, stacks, given)
    with recorder.running():
        results = function(*given)
    recorder.finish(results)
    return recorder.record


def _form(tensor: torch.Tensor) -> Any:
    return str(tensor.dtype), tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride()))


class _Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Records operators; `_known` stores the origin of each tensor, by its id."""

    def __init__(self, module: nn.Module, stacks: Sequence[Stack], given: Sequence[Any]) -> None:
        super().__init__()
        self.record = Record()
        self._module = module
        self._held: list[torch.Tensor] = []
        self._known: dict[int, Place | Leaf] = {}
        self._names, self._layers = _places(module, stacks)
        self._scopes: list[str] = [""]
        self._around: list[Segment] = [Segment(-1, 0)]
        self._sizes = SizesSeen(self._compared, self._asked)
        self._enter()
        self._take(module, given)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Record the run of the model in the context."""
        calling = self._calling(nn.Module.__call__)
        seen = floats_seen(self._module, telling_float)
        with exchanged(nn.Module, "__call__", calling), self, self._sizes, seen:
            yield

    def finish(self, results: Any) -> None:
        """Record the origins of the model's results, and release the tensors that were kept."""
        self.record.outputs = [self._token(each) for each in pytree.tree_leaves(results)]
        self._held.clear()

    def _take(self, module: nn.Module, given: Sequence[Any]) -> None:
        names = [name for name, _ in module.named_parameters(remove_duplicate=False)]
        names += [name for name, _ in module.named_buffers(remove_duplicate=False)]
        tied: dict[int, list[str]] = {}
        for name, tensor in zip(names, given, strict=False):
            tied.setdefault(id(tensor), []).append(name)
            self._hold(tensor, Leaf("weight", ()))
        for tensor in given[: len(names)]:
            self._known[id(tensor)] = Leaf("weight", tuple(sorted(tied[id(tensor)])))
        for tensor in pytree.tree_leaves(list(given[len(names) :])):
            self.record.given.append(isinstance(tensor, torch.Tensor))
            if isinstance(tensor, torch.Tensor):
                self._hold(tensor, Leaf("input", len(self.record.inputs)))
                self.record.inputs.append(_form(tensor))

    def _hold(self, tensor: torch.Tensor, origin: Place | Leaf) -> None:
        """Record the origin of a tensor, and keep the tensor so that its id is not reused."""
        self._held.append(tensor)
        self._known[id(tensor)] = origin

    # --- segments

    def _enter(self) -> None:
        segment = self._around[-1]
        if not self.record.segments or self.record.segments[-1] != segment:
            self.record.segments.append(segment)
            self.record.ops.append([])

    def _calling(self, plain: Any) -> Any:
        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            name = self._names.get(id(module))
            if name is None:
                return plain(module, *args, **kwargs)
            layer = self._layers.get(id(module))
            self._scopes.append(name)
            self._around.append(layer[0] if layer else self._around[-1])
            try:
                results = plain(module, *args, **kwargs)
            finally:
                self._scopes.pop()
                self._around.pop()
            if layer and layer[1]:
                self._returned(layer[0], results)
            return results

        return call

    def _returned(self, segment: Segment, results: Any) -> None:
        """Identify a layer's results by position, which also works across kinds of layers."""
        for place, each in enumerate(pytree.tree_leaves(results)):
            origin = self._known.get(id(each))
            if isinstance(origin, Place) and self.record.segments[origin.visit] == segment:
                self._known[id(each)] = Place(origin.visit, -1, place)

    # --- operators

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator and record it."""
        kwargs = kwargs or {}
        given = self._token((args, kwargs))
        with self._sizes.without():
            results = func(*args, **kwargs)
            leaves = pytree.tree_leaves(results)
            made = tuple(_form(e) if isinstance(e, torch.Tensor) else repr(e) for e in leaves)
        place = self._write(str(func), given, made)
        for number, each in enumerate(leaves):
            if isinstance(each, torch.Tensor):
                self._hold(each, place._replace(result=number))
            elif isinstance(each, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                raise Unprovable(f"{func} returns a size that depends on tensor values")
        return results

    def _write(self, name: str, given: Any, made: Any) -> Place:
        self._enter()
        ops = self.record.ops[-1]
        ops.append(Op(name, given, made, self._scopes[-1]))
        return Place(len(self.record.segments) - 1, len(ops) - 1, 0)

    def _compared(self, name: str, values: Any) -> None:
        self._write(f"test {name}", values, ())

    def _asked(self, tensor: torch.Tensor) -> None:
        self._write("size", self._token(tensor), ())

    def _token(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._known.get(id(value)) or self._constant(value)
        if isinstance(value, (list, tuple)):
            return tuple(map(self._token, value))
        if isinstance(value, Mapping):
            return tuple((key, self._token(each)) for key, each in value.items())
        if isinstance(value, bool) or value is None:
            return str(value)
        if isinstance(value, int):
            return int(value)
        return repr(float(value)) if isinstance(value, float) else repr(value)

    def _constant(self, tensor: torch.Tensor) -> Leaf:
        """Return the identity of a tensor that was made from numbers, or is a plain attribute."""
        with self._sizes.without():
            value = getattr(tensor, "constant", None)
            value = value if isinstance(value, torch.Tensor) else tensor
            if type(value).__name__ == "FakeTensor":
                raise Unprovable("it uses a tensor whose origin is not known")
            from torch._subclasses.fake_tensor import unset_fake_temporarily
            from torch.utils._python_dispatch import _disable_current_modes

            with unset_fake_temporarily(), _disable_current_modes():
                leaf = Leaf("constant", (_form(value), digest(value)))
        self._hold(tensor, leaf)
        return leaf


def _places(
    module: nn.Module, stacks: Sequence[Stack]
) -> tuple[dict[int, str], dict[int, tuple[Segment, bool]]]:
    """Return the names of modules, the layers that contain them, and whether they are layers."""
    names = {id(each): name for name, each in reversed(list(module.named_modules()))}
    layers: dict[int, tuple[Segment, bool]] = {}
    for number, stack in enumerate(stacks):
        try:
            found = module.get_submodule(stack.name)
        except AttributeError:  # a part of the model that has no such list
            continue
        for index, layer in enumerate(found.children()):
            for each in layer.modules():
                layers[id(each)] = Segment(number, index), each is layer
    return names, layers
