"""Implementation of oe.transformers.export."""

from __future__ import annotations

import contextlib
from collections import abc
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import _core
from .._attention.fusing import Fusing
from .._attention.translating import STANDARD_OPSET, Form
from .._base.argument_types import checks_types, of_class
from .._base.errors import InvalidArgumentError
from .._base.keywords import define, only
from .._base.meter import Meter
from .._base.options import FloatType, Layout, Mapping, StrPath, Writing, quantize_options
from .._base.packages import FOLDERS, require
from .._base.progress import shown
from .._base.temporary import temporary_folder
from .._control_flow import one_thread
from .._folders.config import require_folder
from .._folders.gguf.folder import as_folder
from .._folders.preconditions import model_folders, note_of_dtype, requested, warn
from .._saving.transposing import refuse_linked
from .._tracing.process import process_kept
from ..torch._keywords import TraceKeywords
from ..torch._opsets import refuse_opset
from ._adapters import merged
from ._choosing import Choice
from ._decoders import Graphs
from ._export_reports import ModelReport
from ._folder_exporter import FolderExporter
from ._inputs import check_inputs, fewer, inputs_of
from ._kept_codes import given_scheme, scheme_of
from ._loading import Loaded, load
from ._rewritten import FolderWays
from ._tracing import Tracing
from ._variants import Exports

if TYPE_CHECKING:
    from typing_extensions import Unpack


class FolderKeywords(Writing, TraceKeywords, total=False):
    """The keywords of `oe.transformers.export`.

    Args:
        opset_version: the version of ONNX's operators in the graphs, 18 to 25. None: 23 for
            graphs with RMSNormalization or RotaryEmbedding, which older versions lack and ONNX
            Runtime runs since 1.23; the exporter's own for others.
        graphs: "one": a decoder becomes one graph, which reads a prompt if its cache is empty;
            "two": prefill for the prompt, and decode for the steps after it. None: one, unless its
            code treats an empty cache differently.
        attention: the form of a decoder's attention to its cache. "fused": ONNX Runtime's
            GroupQueryAttention with the mask of the model, which is exact for any padding;
            "lengths": the same with the lengths of the texts, which is faster on CUDA, and returns
            NaN for texts that are padded on the left; "standard": ONNX's Attention, of opset 23;
            "traced": the operators of the model's code, as for all attention that no operator is
            known to equal.
    """

    opset_version: int | None
    graphs: Graphs | None
    attention: Form


define(
    FolderKeywords,
    {"opset_version": None, "graphs": None, "attention": "fused"},
    Writing,
    TraceKeywords,
)


@checks_types
def export(
    folder: StrPath,
    path: StrPath,
    task: str | None = None,
    dtype: FloatType | None = None,
    dynamic: bool = True,
    *,
    inputs: abc.Mapping[str, Any] | abc.Sequence[str] | None = None,
    variant: str | None = None,
    dry_run: bool = False,
    base: StrPath | None = None,
    clients: str | abc.Sequence[str] = (),
    variants: str | abc.Sequence[str] = (),
    **how: Unpack[FolderKeywords],
) -> ModelReport:
    """Export the model of a folder, without loading its weights into memory.

    ```python
    oe.transformers.export("llama/", "out")
    ```

    Args:
        folder: config.json and weights, as save_pretrained() writes them; a GGUF file; or an
            adapter of peft (LoRA), which is merged into its base.
        path: the folder to write into, or the model's file if it is one graph.
        task: e.g. "text-generation", or a class of transformers; by default the class that the
            config names.
        dtype: torch's name of the float type to compute in, to which weights are converted while
            they are written. None: the checkpoint's; for bfloat16, which ONNX Runtime lacks on a
            CPU, float32, and the weights are not converted.
        dynamic: dimensions that the model allows to vary do. False: all are the examples'.
        inputs: the inputs of the graph, those of generate() if the model has it, else of forward():
            names, for which examples are made, or a dict of examples. None: the results of the
            folder's tokenizer or processor, and inputs with a default in forward().
        variant: the variant of the weights to read: "fp16" reads model.fp16.safetensors.
        dry_run: trace, and report what an export would write.
        base: the folder or GGUF file of an adapter's base, if adapter_config.json does not lead to
            it.
        clients: the programs that are to open the folder: "fastembed", "genai", "openvino",
            "optimum", "sentence-transformers", "transformers.js" (docs/consumers.md). Their needs
            beyond the usual names are met; it is an error if that is impossible.
        variants: graphs side by side, instead of `dtype` and `quantize`: "fp32", "fp16"
            (model_fp16.onnx), "int8" (model_quantized.onnx), "uint8", "q4", "q4f16". Clients use
            the first one by default.
        layout: as for oe.save(): "single", "per-tensor", "shards", "inline" or "link"; with "link",
            `path` is `folder` or above.
        quantize: the quantization of matrices, as for oe.save(), after the check of the floats. The
            codes of a quantized checkpoint are kept by default; "float" converts them to floats.
        progress: as for oe.save(); the steps before a save are reported with sizes of 0.
        mapping: as for oe.save(), without `map`, which the export makes. None:
            `oe.Mapping(unmatched="skip")`, since other classes may have other keys.
        optimize: run torch's optimizer on the graphs, and use single operators for norms and rotary
            embeddings. Names and shapes of weights do not change. By default True.
        check: run the graphs on ONNX Runtime before they are saved, on the example and on other
            sizes, and compare them with transformers' model and its weights. None: if onnxruntime
            is installed, and the weights have no more than 512 MiB. False: never.
        rewrite: as for oe.torch.export(); the code is run on a small model of the same class, so
            that no weights are read. By default "auto".
        **how: the keywords of `FolderKeywords`.

    Raises:
        RewriteError: a test or a loop has no graph; the message names its line.
        ExportError: transformers or torch cannot load or export the model, or a graph is wrong.
        MappingError: the checkpoint lacks tensors of the model.
        Error: everything else, as oe.save() raises it. Nothing half-written stays.
    """
    layout, quantize = how["layout"], how["quantize"]
    mapping = of_class("mapping", Mapping, how["mapping"] or Mapping(unmatched="skip"))
    files = of_class("files", Layout, how["files"])
    refuse_linked(files.transpose_weights, layout)
    _core.check_save_options({"layout": layout, **quantize_options(given_scheme(quantize))})
    if mapping.map is not None:
        raise InvalidArgumentError(
            "mapping: the export knows which key is which weight; leave map out"
        )
    check_inputs(inputs)
    refuse_opset(how["opset_version"], STANDARD_OPSET if how["attention"] == "standard" else 0)
    options = {**only(how, Writing.__annotations__), "mapping": mapping, "files": files}
    del options["quantize"]  # each variant has its own
    with as_folder(Path(folder)) as source, as_folder(base) as base:
        target = Path(path)
        require_folder(source)
        require("the export of a folder", *FOLDERS)
        folders = model_folders(source, base)
        given_ways = {"task": task, "dtype": dtype, "clients": clients, "variants": variants}
        asked, chosen = requested(folders, target, {**how, **given_ways, "dry_run": dry_run})
        warn(note_of_dtype(dtype))
        with one_thread, process_kept(), contextlib.ExitStack() as stack:
            callback = stack.enter_context(shown(how["progress"]))
            made = stack.enter_context(temporary_folder())
            meter = Meter(callback)
            types = dict.fromkeys(each.dtype for each in chosen)
            with meter.step("load"):
                options["variant"] = variant
                given = stack.enter_context(merged(source, base, target, options))
                models = [load(given.folder, task, each, given.variant) for each in types]
            options |= {"variant": given.variant, "progress": callback or False}
            exporters = []
            for number, (loaded, computes) in enumerate(zip(models, types, strict=True)):
                same = [each for each in chosen if each.dtype == computes]
                if not variants:
                    codes = scheme_of(quantize, loaded, plain=asked.plain)
                    same = [same[0]._replace(quantize=codes)]
                choice = _choice(loaded, given.folder, inputs, dynamic, asked.plain, how, meter)
                beside = made / str(number)
                beside.mkdir()
                exporter = FolderExporter(given, target, task, options, same, choice, beside, asked)
                choice.trace()
                planned = exporter.judge(how["check"], dry_run)
                exporters.append(exporter)
            exports = Exports(exporters, bool(variants), meter)
            report = exports.save(planned, dry_run)
        return exports.report(report)


def _choice(
    loaded: Loaded,
    folder: Path,
    inputs: abc.Mapping[str, Any] | abc.Sequence[str] | None,
    dynamic: bool,
    plain: bool,
    how: FolderKeywords,
    meter: Meter,
) -> Choice:
    """Return the graphs to make of a model; they are not traced yet."""
    fusing = Fusing("traced" if plain else how["attention"])
    opset = how["opset_version"]
    tracing = Tracing(loaded, dynamic, how["optimize"], meter, opset_version=opset, fusing=fusing)
    chosen = inputs_of(loaded.model, folder, inputs)
    ways = FolderWays(tracing, chosen, how)
    return Choice(ways, chosen, how["graphs"], None if inputs else fewer(chosen))
