"""Changes torch and transformers while a module is traced and converted."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from .silence import silent

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""The positional and keyword arguments of a module."""


class Surroundings:
    """Changes made around a trace. This base class, for oe.torch.export, makes none."""

    strict_too = True
    """True if the exporter falls back to tracing with strict=True."""

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Enter the context in which the reference runs."""
        yield

    @contextlib.contextmanager
    def tracing(self, onnx: bool) -> Iterator[None]:
        """Enter the context in which modules are traced, converted and run."""
        yield

    def conversions(self) -> dict[Any, Any]:
        """Return the custom_translation_table for torch.onnx.export."""
        return {}

    def exported(self, program: Any) -> None:
        """Change a program before it is converted."""

    def converted(self, program: Any) -> None:
        """Change a graph after it was converted."""


class TransformersSurroundings(Surroundings):
    """Changes made by transformers.exporters, for oe.transformers.export."""

    strict_too = False

    def __init__(self, model: Any) -> None:
        self._model = model
        self._flags: dict[str, Any] = {}

    def prepared(self, given: Mapping[str, Any]) -> Call:
        """Return the model's arguments; values that cannot be traced are computed in advance."""
        from transformers.exporters.utils import prepare_for_export

        _, inputs, self._flags = prepare_for_export(self._model, dict(given))
        return (), dict(inputs)

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Make the model return what the trace will return, with caches of the same form."""
        from transformers.exporters import exporter_dynamo, utils

        with (
            utils.apply_patches("dynamo"),
            exporter_dynamo.reset_model_state(self._model),
            exporter_dynamo.patch_model_config(self._model, self._flags),
        ):
            yield

    @contextlib.contextmanager
    def tracing(self, onnx: bool) -> Iterator[None]:
        """Apply transformers' patches inside the context."""
        from transformers.exporters import utils

        if onnx:
            from transformers.exporters import exporter_onnx  # noqa: F401  # its patches
        patches = utils.apply_patches("onnx") if onnx else contextlib.nullcontext()
        with patches, self.recording():
            yield

    def conversions(self) -> dict[Any, Any]:
        """Return the translations defined by transformers."""
        from transformers.exporters import exporter_onnx

        return dict(exporter_onnx._ONNX_TRANSLATION_TABLE)

    def exported(self, program: Any) -> None:
        """Repair nodes that torch.onnx cannot convert."""
        from transformers.exporters.utils import apply_fx_node_fixes

        apply_fx_node_fixes("onnx", program.graph_module)

    def converted(self, program: Any) -> None:
        """Repair nodes that ONNX Runtime cannot run."""
        from transformers.exporters.exporter_onnx import apply_onnx_ir_fixes

        apply_onnx_ir_fixes(program)


def register_caches(module: Any) -> None:
    """Let torch take apart the caches of transformers, if the module contains such a model."""
    library = sys.modules.get("transformers")
    models = [
        each
        for each in module.modules()
        if library is not None and isinstance(each, library.PreTrainedModel)
    ]
    with contextlib.suppress(ImportError), silent():  # older ones have no exporters
        for each in models[:1]:
            from transformers.exporters.exporter_dynamo import register_cache_pytrees_for_model

            register_cache_pytrees_for_model(each)
