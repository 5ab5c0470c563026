"""Runs models on ONNX Runtime."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._base.argument_types import wrong_type
from .._base.errors import (
    NO_KERNEL,
    Error,
    FormatError,
    InvalidArgumentError,
    MismatchError,
    NotFoundError,
    RunError,
)
from .._base.packages import require
from .._saving.verify import inspect
from .values import (
    Value,
    dtype_of_type,
    from_ort_value,
    is_float,
    is_narrow,
    shape_text,
    to_ort_value,
)

_CUDA, _TF32 = "CUDAExecutionProvider", "use_tf32"
_ROUNDED = (
    "use_tf32 is on, so CUDA rounds the inputs of float32 products to TF32 (10 bits), which causes "
    "relative differences of about 1e-3"
)


@dataclass(frozen=True)
class Form:
    """The name, type and shape of an input or output, as the model declares them."""

    name: str
    type: str
    """The type in ONNX Runtime's spelling, such as "tensor(float)"."""
    shape: tuple[int | str | None, ...]
    """For each dimension, its size, the name of its dynamic size, or None if it has neither."""


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _runtime() -> Any:
    require("a model runs on ONNX Runtime", "onnxruntime", error=RunError)
    try:
        import onnxruntime
    except ImportError as error:
        raise RunError(f"ONNX Runtime cannot be imported: {error}") from error
    return onnxruntime


def provider_names(given: str | Sequence[Any] | None) -> list[Any]:
    """Return providers in the form that ONNX Runtime takes; complete short names such as "cuda"."""
    known = _runtime().get_available_providers()
    found = []
    asked = ["CPUExecutionProvider"] if given is None else given
    if isinstance(asked, (str, bytes)) or not isinstance(asked, Sequence):
        asked = [asked]
    for each in asked or ["CPUExecutionProvider"]:
        name, options = each if isinstance(each, (tuple, list)) and len(each) == 2 else (each, None)
        if not isinstance(name, str) or not isinstance(options, (dict, type(None))):
            raise wrong_type(
                "providers", "names, such as 'cuda', or pairs of a name and a dict of options", each
            )
        full = next((k for k in known if name.lower() in (k.lower(), _short(k))), None)
        if full is None:
            raise InvalidArgumentError(
                f"providers: this ONNX Runtime has no {name!r}; it has {', '.join(known)}"
            )
        found.append(full if options is None else (full, options))
    return found


def exact_providers(given: str | Sequence[Any] | None) -> list[Any]:
    """Return providers as provider_names() does, but with CUDA in full float32 precision.

    By default, ONNX Runtime rounds the inputs of float32 products on CUDA to TF32, which has 10
    bits. A `use_tf32` among the provider's options is kept.
    """
    found = [each if isinstance(each, tuple) else (each, {}) for each in provider_names(given)]
    exact = [(n, {_TF32: "0"} | options if n == _CUDA else options) for n, options in found]
    return [(name, options) if options else name for name, options in exact]


def remarks_on(providers: Sequence[Any]) -> list[str]:
    """Return notes on options of providers that make a comparison less exact."""
    given: dict[str, Any] = dict(each for each in providers if isinstance(each, tuple))
    exact = str(given.get(_CUDA, {}).get(_TF32, "0")) == "0"
    return [] if exact else [_ROUNDED]


def _short(provider: str) -> str:
    return provider.removesuffix("ExecutionProvider").lower()


def _forms(given: Iterable[Any]) -> list[Form]:
    return [Form(each.name, each.type, tuple(each.shape or ())) for each in given]


def _unloadable(name: str, model: str | bytes, error: Exception) -> RunError:
    """Return the error for a model that does not load, with the cause if it is known."""
    cause, kind = "ONNX Runtime cannot load the model: ", ""
    if type(error).__name__ == "NotImplemented":
        kind = NO_KERNEL[isinstance(model, str) and _has_bfloat16(model)]
    if kind == NO_KERNEL[1]:
        cause = (
            "the model computes in bfloat16, the type of its weights, for which this ONNX Runtime "
            'lacks operators: export it with dtype="float32" (onnx-external export MODEL -o FOLDER '
            "--dtype float32), which converts the weights. ONNX Runtime cannot load the model: "
        )
    made = RunError(f"{name}: {cause}{first_line(error)}")
    made.kind = kind
    return made


def _has_bfloat16(path: str) -> bool:
    try:
        listed = inspect(path).tensors
        return any("bfloat16" in (each.scheme or each.dtype) for each in listed)
    except Error:
        return False


class Session:
    """A loaded model that runs on arrays.

    Args:
        model: a path, or the bytes of a model.
        providers: as provider_names() returns them.
        name: the name of the model in errors.
        folder: the folder with the external data, if the model is given as bytes.
        lean: leave weights in their mapped files: they are neither copied into another layout nor
            folded, no node is optimized, and nodes run in the order of the file.
        is_piece: the model was cut out of another one, so an input without dimensions accepts any
            shape: ONNX Runtime does not distinguish scalars from inputs of unknown shape.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | bytes,
        providers: list[Any],
        name: str,
        folder: str | None = None,
        lean: bool = False,
        is_piece: bool = False,
    ) -> None:
        self.name, self._is_piece = name, is_piece
        self.given_providers = providers
        if not isinstance(model, bytes) and not os.path.isfile(model):
            raise NotFoundError(f"{name}: not found")
        runtime = _runtime()
        options = runtime.SessionOptions()
        options.log_severity_level = 4  # the error below has its message
        if folder is not None:
            key = "session.model_external_initializers_file_folder_path"
            options.add_session_config_entry(key, os.path.abspath(folder))
        if lean:
            options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.add_session_config_entry("session.disable_prepacking", "1")
            options.enable_cpu_mem_arena = False
            # The default order may transpose all weights before the first product: 500 MB of them
            # in a model of 900 MB with 32 layers, against 60 MB in the order of the file.
            options.execution_order = runtime.ExecutionOrder.PRIORITY_BASED
        self.source: bytes | str = model if isinstance(model, bytes) else os.fspath(model)
        try:
            self._session = runtime.InferenceSession(self.source, options, providers=providers)
        except Exception as error:  # it has a class for each of its codes, below RuntimeError
            raise _unloadable(name, self.source, error) from error
        self.inputs = _forms(self._session.get_inputs())
        self.outputs = _forms(self._session.get_outputs())
        self.providers: list[str] = self._session.get_providers()
        wanted = [each if isinstance(each, str) else each[0] for each in providers]
        lost = [each for each in wanted if each not in self.providers]
        if lost:
            raise RunError(f"{name}: ONNX Runtime could not start {', '.join(lost)}")
        for form in self.outputs:
            if "map(" in form.type:
                raise FormatError(
                    f"{name}: output {form.name} is {form.type}; maps are not supported"
                )
            dtype_of_type(form.type)
        self._narrow = any(is_narrow(form.type) for form in (*self.inputs, *self.outputs))

    @property
    def output_names(self) -> list[str]:
        """The names of the model's outputs, in the order of the model."""
        return [form.name for form in self.outputs]

    def feed(self, given: Mapping[str, Value], what: str) -> dict[str, Value]:
        """Return the values for the model's inputs, with floats converted to the inputs' types.

        Args:
            given: values by name; values that the model does not take are left out.
            what: the name of the input set, for errors.
        """
        missing = [form.name for form in self.inputs if form.name not in given]
        optional = {form.name for form in self.inputs if form.type.startswith("optional(")}
        if not set(missing) <= optional:
            raise MismatchError(
                f"{self.name}, {what}: no value for {', '.join(missing)}; values are given for "
                f"{', '.join(given) or 'nothing'}"
            )
        return {
            form.name: self._fitted(form, given[form.name], what)
            for form in self.inputs
            if form.name in given
        }

    def _fitted(self, form: Form, value: Value, what: str) -> Value:
        if not isinstance(value, np.ndarray):
            return value
        place = f"{self.name}, {what}: input {form.name}"
        if not form.type.startswith("tensor("):
            return value
        dtype = dtype_of_type(form.type)
        if value.dtype != dtype:
            if is_float(value) and is_float(np.empty(0, dtype)):
                value = value.astype(dtype)
            elif not (dtype.kind == "O" and value.dtype.kind in "UT"):
                raise MismatchError(f"{place} is {value.dtype}; the model takes {form.type}")
        misfit = _misfit(form, value.shape)
        if misfit and (form.shape or not self._is_piece):
            raise MismatchError(f"{place} {misfit}")
        return np.ascontiguousarray(value).reshape(value.shape)

    def misfits(self, given: Mapping[str, Value]) -> list[str]:
        """Return a description of each input whose shape the model does not accept."""
        found = []
        for form in self.inputs:
            value = given.get(form.name)
            misfit = isinstance(value, np.ndarray) and _misfit(form, value.shape)
            if misfit:
                found.append(f"{form.name} {misfit}")
        return found

    def run(self, feed: Mapping[str, Value], what: str) -> dict[str, Value]:
        """Run the model on values returned by feed()."""
        with self._failures_told(what):
            if self._narrow:
                given = {name: to_ort_value(value) for name, value in feed.items()}
                results = map(from_ort_value, self._session.run_with_ort_values(None, given))
            else:
                results = self._session.run(None, dict(feed))
        return dict(zip(self.output_names, results, strict=True))

    @contextlib.contextmanager
    def _failures_told(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise RunError(
                f"{self.name}, {what}: ONNX Runtime cannot run it: {first_line(error)}"
            ) from error

    def metadata(self) -> dict[str, str]:
        """Return the model's custom metadata."""
        return dict(self._session.get_modelmeta().custom_metadata_map)

    def buffer(self, shape: Sequence[int], dtype: Any) -> Any:
        """Return zeros in the memory of the first provider's device, for run_in_place()."""
        value = _runtime().OrtValue
        if self.providers[0] == _CUDA:
            return value.ortvalue_from_numpy(np.zeros(shape, dtype), "cuda", 0)
        return value.ortvalue_from_numpy(np.zeros(shape, dtype))

    def run_in_place(
        self, feed: Mapping[str, Any], buffers: Mapping[tuple[str, str], Any], what: str
    ) -> dict[str, Value]:
        """Run the model on arrays, and on buffers that it reads and overwrites.

        Args:
            feed: the arrays, by input.
            buffers: the results of buffer(), by the pair of input and output that share it.
            what: the name of the input set, for errors.

        Returns:
            The outputs that are not in buffers.
        """
        written = {output for _, output in buffers}
        names = [name for name in self.output_names if name not in written]
        with self._failures_told(what):
            binding = self._session.io_binding()
            for name, array in feed.items():
                binding.bind_cpu_input(name, array)
            for name in names:
                binding.bind_output(name)
            for (name, output), buffer in buffers.items():
                binding.bind_ortvalue_input(name, buffer)
                binding.bind_ortvalue_output(output, buffer)
            self._session.run_with_iobinding(binding)
            results = [each.numpy() for each in binding.get_outputs()[: len(names)]]
        return dict(zip(names, results, strict=True))

    def seconds(self, feed: Mapping[str, Value], what: str, times: int) -> list[float]:
        """Run the model several times on one input set, and return the duration of each run."""
        found = []
        for _ in range(times):
            start = time.perf_counter()
            self.run(feed, what)
            found.append(time.perf_counter() - start)
        return found


def _misfit(form: Form, shape: tuple[int, ...]) -> str | None:
    if not form.type.startswith("tensor(") or (not form.shape and not shape):
        return None
    fits = len(shape) == len(form.shape) and all(
        not isinstance(want, int) or want == size
        for want, size in zip(form.shape, shape, strict=True)
    )
    return (
        None if fits else f"has the shape {list(shape)}; the model takes {shape_text(form.shape)}"
    )
