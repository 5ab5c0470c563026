"""Traces modules with dynamic sizes as torch.onnx does, and reports every fallback."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import nn
from torch.fx.experimental import _config
from torch.fx.experimental.symbolic_shapes import ShapeEnv, uninteresting_files
from torch.utils import _pytree as pytree

from .._base.swapping import exchanged
from .._control_flow import outside_kept
from .._tracing.empty_sizes import empty_sizes_noted
from .._tracing.frames import LIBRARIES, Place, outside, place_of, tests_value
from ._corrections import torch_corrected
from ._gradients import gradients_noted, traced_behind_autograd


def is_library(path: str) -> bool:
    """Return whether a path is in torch or this package, or is not the path of a file."""
    return path.startswith(("<", *LIBRARIES))


class Traced(NamedTuple):
    """A program, and how it was traced."""

    program: torch.export.ExportedProgram
    note: str = ""
    """A remark for the caller on how the module was traced; empty for the usual way."""
    refusal: Exception | None = None
    """The error because of which dynamo (`strict=True`) was used; None if it was not used."""
    tests: frozenset[tuple[str, int]] = frozenset()
    """Files and lines of the user's conditions on a size; each such decision is now a guard."""


Tracer: TypeAlias = Callable[[nn.Module, tuple[Any, ...], Mapping[str, Any] | None, Any], Traced]
"""A function that traces a module, given its positional inputs, its inputs by name, and
dynamic_shapes."""


@contextlib.contextmanager
def as_torch_onnx() -> Iterator[set[tuple[str, int]]]:
    """Make traces work as in torch.onnx.export, and restore everything when the context ends.

    Sizes of 0 and 1 in an example may be dynamic like all others, and LSTM and GRU become loops, so
    that the length of their sequences may vary. Guards record the user's line that caused them.
    The context yields the files and lines that test sizes.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(transforms_ended())
        stack.enter_context(_config.patch(backed_size_oblivious=True))
        stack.enter_context(loops_of_recurrent_layers())
        stack.enter_context(exchanged(nn.Module, "to", _to(nn.Module.to)))
        stack.enter_context(torch_corrected())
        yield stack.enter_context(lines_of_guards())


@contextlib.contextmanager
def transforms_ended() -> Iterator[None]:
    """End functorch transforms that an error inside the context has left on their stack."""
    functorch = torch._C._functorch
    depth = functorch.get_dynamic_layer_stack_depth()
    try:
        yield
    finally:
        if functorch.get_dynamic_layer_stack_depth() > depth:
            functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)


@contextlib.contextmanager
def lines_of_guards() -> Iterator[set[tuple[str, int]]]:
    """Record inside the context the user's lines that cause guards, and tests for 0.

    The context yields the files and lines that test sizes.
    """
    tests: set[tuple[str, int]] = set()
    if not hasattr(ShapeEnv, "_get_user_frame"):  # the place of a guard is taken from it
        yield tests
        return
    frame = _innermost_users_frame(tests)
    with exchanged(ShapeEnv, "_get_user_frame", frame), empty_sizes_noted():
        yield tests


@contextlib.contextmanager
def without_cache_of_results(sizes_vary: bool) -> Iterator[None]:
    """If sizes are dynamic, disable torch's cache of results on tensors without values.

    The cache recreates each result from its recorded sizes, which takes a third of the time of a
    trace if the sizes are expressions.
    """
    from torch._dynamo import config

    if sizes_vary and hasattr(config, "fake_tensor_cache_enabled"):
        with config.patch(fake_tensor_cache_enabled=False):
            yield
    else:
        yield


def _to(plain: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Return a Module.to() that does nothing if the module is already as requested.

    In a trace, torch would try to replace the parameters by new tensors, and fail.
    """

    def to(self: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        device, dtype, _, layout = torch._C._nn._parse_to(*args, **kwargs)
        for each in (*self.parameters(), *self.buffers()):
            moves = device is not None and each.device != device
            number = each.is_floating_point() or each.is_complex()
            casts = dtype is not None and number and each.dtype != dtype
            if moves or casts or layout is not None:
                return plain(self, *args, **kwargs)
        return self

    return to


@contextlib.contextmanager
def loops_of_recurrent_layers() -> Iterator[None]:
    """Trace LSTM and GRU inside the context as loops over sequences of dynamic length."""
    try:
        from torch.export import _patches
    except ImportError:  # an older torch, which unrolls them
        yield
        return
    with contextlib.ExitStack() as stack:
        for name in ("lstm", "gru"):
            register = getattr(_patches, f"register_{name}_while_loop_decomposition", None)
            if register is not None:
                operator = getattr(torch.ops.aten, name).input
                stack.callback(operator._dispatch_cache.clear)
                stack.enter_context(register())
                # An operator that was traced before knows its kernels, and asks for no others.
                operator._dispatch_cache.clear()
        yield


@contextlib.contextmanager
def _noting_fixed_sizes() -> Iterator[None]:
    """Record in errors, as `fixed_sizes`, where sizes became constants inside the context."""
    fixed: list[tuple[str, Place]] = []
    with contextlib.ExitStack() as stack:
        if hasattr(ShapeEnv, "_set_replacement"):
            plain = ShapeEnv._set_replacement

            def noting(self: Any, symbol: Any, value: Any, *rest: Any) -> None:
                if getattr(value, "is_number", False):
                    fixed.extend(_users_place())
                plain(self, symbol, value, *rest)

            stack.enter_context(exchanged(ShapeEnv, "_set_replacement", noting))
        try:
            yield
        except Exception as error:
            error.fixed_sizes = fixed  # type: ignore[attr-defined]
            raise


def _users_place() -> Iterator[tuple[str, Place]]:
    """Yield the innermost code location that belongs neither to torch nor to this package."""
    frame = outside(sys._getframe(2), is_library)
    if frame is not None:
        yield frame.f_code.co_filename, place_of(frame.f_code, frame.f_lasti, frame.f_lineno)


def _innermost_users_frame(tests: set[tuple[str, int]]) -> Any:
    """Return a function that finds the innermost frame outside torch and this package.

    If there is none, the function returns the frame that torch would choose.
    """

    def frame(self: Any) -> FrameType | None:
        nearest = outside(sys._getframe(1), uninteresting_files().__contains__)
        found = outside(nearest, is_library)
        if found is not None and found is nearest and tests_value(found):
            tests.add((found.f_code.co_filename, found.f_lineno))
        return found or nearest

    return frame


_WITHOUT_ZERO_ONE = (
    "sizes of 1 in the example are fixed, because the module cannot be traced if they vary"
)
_FROM_TWO = "the module treats sizes of 1 differently, so it is traced for sizes of 2 and more"
_WITH_GRADIENTS = (
    "the module computes gradients; the operators that compute them are traced (torch.export with "
    "pre_dispatch=False)"
)
_WITH_DYNAMO = (
    "torch.export traces it only with strict=True (through dynamo), because without it: {reason}"
)


def trace(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    fall_back: bool = True,
    *,
    repeats_calls: bool = False,
) -> Traced:
    """Trace a module by torch.export as torch.onnx.export does, and report how it was done.

    The usual way is `strict=False`, inside `as_torch_onnx()`. If this fails and the module computes
    gradients, it is traced below autograd. Next, sizes of 0 and 1 in the example are fixed as
    torch.export fixes them, and other sizes are taken to be at least 2. Finally, dynamo is tried
    (`strict=True`). `Traced.note` reports the way that worked. Other dynamic shapes than those
    requested are never tried.

    Args:
        module: the module.
        args: the positional inputs.
        kwargs: the inputs by name.
        dynamic_shapes: as torch.export.export takes them.
        fall_back: also try the last two ways.
        repeats_calls: the module calls the same operators on the same sizes repeatedly, as does
            rewritten code, whose branches run several times.

    Raises:
        Exception: torch's exception from the usual way.
    """
    args, kwargs = _apart((args, dict(kwargs or {})))
    options: dict[str, Any] = {"kwargs": kwargs, "dynamic_shapes": dynamic_shapes}
    sizes_vary = dynamic_shapes is not None
    faster = functools.partial(without_cache_of_results, sizes_vary and not repeats_calls)
    gradients: list[str] = []
    try:
        with (
            as_torch_onnx() as tests,
            faster(),
            outside_kept(module),
            _noting_fixed_sizes(),
            gradients_noted(gradients),
        ):
            program = torch.export.export(module, args, strict=False, **options)
            return Traced(program, tests=frozenset(tests))
    except Exception as error:
        first = error
        first.gradients = gradients  # type: ignore[attr-defined]
    if gradients:
        apart = outside_kept(module)
        with contextlib.suppress(Exception), as_torch_onnx() as tests, faster(), apart:
            program = traced_behind_autograd(module, args, **options)
            return Traced(program, _WITH_GRADIENTS, tests=frozenset(tests))
    if not fall_back:
        raise first from first.__cause__
    has_small = _has_size_of_0_or_1((args, kwargs))
    if dynamic_shapes is not None and (has_small or _excludes_sizes(first)):
        fixing = _config.patch(backed_size_oblivious=False)
        apart = outside_kept(module)
        with contextlib.suppress(Exception), as_torch_onnx() as tests, faster(), fixing, apart:
            program = torch.export.export(module, args, strict=False, **options)
            note = _WITHOUT_ZERO_ONE if has_small else _FROM_TWO
            return Traced(program, note, tests=frozenset(tests))
    try:
        with as_torch_onnx(), outside_kept(module):
            program = torch.export.export(module, args, strict=True, **options)
        return Traced(program, _WITH_DYNAMO.format(reason=named_line(first)), first)
    except Exception:
        raise first from first.__cause__


def _apart(given: Any) -> Any:
    """Return inputs without repeated tensors, because torch would treat their sizes as one."""
    leaves, spec = pytree.tree_flatten(given)
    seen: set[int] = set()
    for place, each in enumerate(leaves):
        if isinstance(each, torch.Tensor):
            if id(each) in seen:
                leaves[place] = each.detach().clone().requires_grad_(each.requires_grad)
            seen.add(id(each))
    return pytree.tree_unflatten(leaves, spec)


def _has_size_of_0_or_1(given: Any) -> bool:
    tensors = [each for each in pytree.tree_leaves(given) if isinstance(each, torch.Tensor)]
    return any(size < 2 for each in tensors for size in each.shape)


def _excludes_sizes(error: Exception) -> bool:
    """Return whether a module fits only some of the sizes that its dynamic dimensions may have."""
    from torch._dynamo.exc import UserError, UserErrorType

    return isinstance(error, UserError) and error.error_type is UserErrorType.CONSTRAINT_VIOLATION


def named_line(error: BaseException) -> str:
    """Return the name of an error, and the first line of its message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
