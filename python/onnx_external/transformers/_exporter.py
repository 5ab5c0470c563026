"""Extends the exporter of transformers, so that traces can be retried and programs are kept."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import transformers

from .._base.errors import ExportError
from .._base.progress import only_errors
from .._base.swapping import exchanged
from .._control_flow import outside_kept
from .._tracing.exporter_reasons import reason_of
from .._tracing.silence import quiet
from ..torch._conversions import conversions_kept
from ..torch._guards import Sizes, sizes_of
from ..torch._tracing import lines_of_guards
from ._loading import told

Run = Callable[[Callable[[], Any]], Any]
"""A function that calls its argument, which traces, once or several times."""


def exporter(run: Run, translations: Mapping[Any, Callable[..., Any]] | None = None) -> Any:
    """Return a transformers exporter that keeps `exported` and `sizes` of its last run.

    The attribute `decomposed` is the program whose nodes became the nodes of the graph. The
    attribute `names` contains lists to which each run of a model adds the names of inputs, the
    names of outputs, and the result.

    Args:
        run: a function that calls the trace by torch.export, without the conversion that follows.
        translations: translations of operators for torch.onnx.export, in addition to those of
            transformers.

    Raises:
        ExportError: the installed transformers has no such exporter.
    """
    try:
        with quiet():
            from transformers.exporters.exporter_onnx import OnnxExporter

            with only_errors("transformers"):
                return _keeping(OnnxExporter, run, translations or {})
    except ImportError as error:
        raise ExportError(
            f"transformers {transformers.__version__} cannot export to ONNX: {error}; "
            "upgrade it to a version with transformers.exporters, or use oe.torch.export, which "
            "takes any module"
        ) from error


def _keeping(exporter: type, run: Run, translations: Mapping[Any, Callable[..., Any]]) -> Any:
    from transformers.exporters import exporter_onnx
    from transformers.exporters.exporter_dynamo import DynamoExporter

    class Keeper(DynamoExporter):  # type: ignore[misc]
        exported: Any
        decomposed: Any
        sizes: Sizes
        names: list[list[Any]]

        def export_program(self, model: Any, sample_inputs: Any, config: Any) -> Any:
            given = dict(sample_inputs)

            def trace() -> Any:
                # A trace takes flags out of the inputs, and adds to the lists of names.
                sample_inputs.clear()
                sample_inputs.update(given)
                for names in lists:
                    names.clear()
                with lines_of_guards() as tests, outside_kept(model):
                    found = super(Keeper, self).export_program(model, sample_inputs, config)
                    # The forward() that writes to the lists is the model's, so they are put back.
                    written = [list(names) for names in lists]
                return found, tests, written

            found, tests, written = run(trace)
            for names, each in zip(lists, written, strict=True):
                names[:] = each
            self.exported, self.sizes = found[0], sizes_of(found[0], tests)
            return found

    lists: list[list[Any]] = []

    class Retrying(exporter):  # type: ignore[misc]
        def export_program(self, *args: Any, **kwargs: Any) -> Any:
            plain = torch.onnx.export

            def export(*given: Any, **options: Any) -> Any:
                table = options.get("custom_translation_table") or {}
                options["custom_translation_table"] = {**table, **translations}
                graph = plain(*given, **options)
                self.decomposed = None if graph is None else graph.exported_program
                return graph

            with contextlib.ExitStack() as stack:
                stack.enter_context(conversions_kept())
                stack.enter_context(_lists_of_names(exporter_onnx, lists))
                stack.enter_context(exchanged(torch.onnx, "export", export))
                return super().export_program(*args, **kwargs)

    # Keeper is between the exporter and its base class, whose method it calls.
    made = type(exporter.__name__, (Retrying, Keeper), {"__doc__": exporter.__doc__})()
    made.names = lists
    return made


@contextlib.contextmanager
def _lists_of_names(module: Any, lists: list[list[Any]]) -> Iterator[None]:
    """Collect in `lists` the lists to which each run of a model adds names and outputs."""
    patch = module.patch_model_outputs

    @contextlib.contextmanager
    def patched(model: Any) -> Iterator[Any]:
        with patch(model) as found:
            lists[:] = [each for each in found if isinstance(each, list)]
            yield found

    with exchanged(module, "patch_model_outputs", patched):
        yield


def patches_of_transformers() -> list[str]:
    """Return the names of the objects that transformers replaces during an export."""
    from transformers.exporters.utils import _PATCHES

    return sorted(
        {f"{owner}.{name}" for kind in ("dynamo", "onnx") for owner, name, _ in _PATCHES[kind]}
    )


@contextlib.contextmanager
def silently(what: str, way_out: str) -> Iterator[None]:
    """Enter told(), and name the line of the model's code in errors.

    The context also silences torch and the exporter, whose logger does not belong to transformers.
    """
    from transformers.exporters import exporter_dynamo

    its_logger = only_errors(exporter_dynamo.__file__)  # the name that it has
    with its_logger, quiet(), told(what, way_out, _reason):
        yield


def _reason(error: BaseException) -> str:
    return reason_of(error, None, inside_model=True, in_full=True)
