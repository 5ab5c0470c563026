"""Implements oe.transformers.export."""

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
        opset_version: the ONNX opset version of the graphs, 7 to 25. None: 23 for graphs with
            RMSNormalization or RotaryEmbedding, which older versions lack and ONNX Runtime supports
            since 1.23; for other graphs, the exporter's own version.
        graphs: "one": a decoder becomes one graph, which reads a prompt if its cache is empty;
            "two": a graph `prefill` for the prompt, and a graph `decode` for the steps after it.
            None: one graph, unless the model's code treats an empty cache differently.
        attention: the operator for a decoder's attention to its cache. "fused": ONNX Runtime's
            GroupQueryAttention with the model's mask, which is exact for any padding; "lengths":
            the same operator with sequence lengths instead of a mask, which is faster on CUDA, but
            returns NaN for texts that are padded on the left; "standard": ONNX's Attention from
            opset 23; "traced": the operators in the model's code, which are also used wherever no
            single operator is known to be equivalent.
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
    """Export the model in a folder without loading its weights into memory.

    ```python
    oe.transformers.export("llama/", "out")
    ```

    Args:
        folder: a folder with config.json and weights, as save_pretrained() writes them; a GGUF
            file; or a peft adapter (LoRA), which is merged into its base model.
        path: the output folder, or the model's file if the model is a single graph.
        task: a task such as "text-generation", or a transformers class; by default the class that
            the config names.
        dtype: torch's name of the float type in which the graphs compute; weights are converted
            to it while they are written. None: the checkpoint's type; but for bfloat16, which ONNX
            Runtime does not support on CPUs, float32 without converting the weights.
        dynamic: make all dimensions dynamic that the model allows to vary. False: all sizes are
            those of the examples.
        inputs: the inputs of generate(), or of forward() if the model does not generate: names, for
            which examples are made, or a dict of examples. None: the results of the folder's
            tokenizer or processor, and inputs with a default in forward().
        variant: the variant of the weights to read: "fp16" reads model.fp16.safetensors.
        dry_run: trace, and report what an export would write.
        base: the folder or GGUF file of an adapter's base model, if adapter_config.json does not
            lead to it.
        clients: the programs that will open the folder: "fastembed", "genai", "openvino",
            "optimum", "sentence-transformers", "transformers.js" (docs/consumers.md). If their
            additional requirements cannot be met, it is an error.
        variants: several versions of the graphs in one folder, instead of `dtype` and `quantize`:
            "fp32", "fp16" (model_fp16.onnx), "int8" (model_quantized.onnx), "uint8", "q4", "q4f16".
            Clients use the first variant by default.
        layout: as for oe.save(): "single", "per-tensor", "shards", "inline" or "link"; with "link",
            `path` must be `folder` or a folder above it.
        quantize: the quantization of matrices, as for oe.save(). It follows the check, which uses
            floats. By default, the codes of a quantized checkpoint are kept; "float" converts them
            to floats.
        progress: as for oe.save(); the steps before a save are reported with sizes of 0.
        mapping: as for oe.save(), without `map`, which the export makes. None:
            `oe.Mapping(unmatched="skip")`, because a checkpoint may have keys of other classes.
        optimize: run torch's optimizer on the graphs, and use single operators for norms and rotary
            embeddings. Weights keep their names and shapes. By default True.
        check: run the graphs on ONNX Runtime before they are saved, on the example and on other
            sizes, and compare them with transformers' model and its weights. None does so if
            onnxruntime is installed and the weights have at most 512 MiB. False disables the check.
        rewrite: as for oe.torch.export(), but the code is run on a small model of the same class,
            so that no weights are read. By default "auto".
        **how: the keywords of `FolderKeywords`.

    Raises:
        RewriteError: a condition or loop cannot be exported; the message names its line.
        ExportError: transformers or torch cannot load or export the model, or a graph is wrong.
        MappingError: the checkpoint lacks tensors of the model.
        Error: any other fault, as for oe.save(). No incomplete file is left.
    """
    layout, quantize = how["layout"], how["quantize"]
    mapping = of_class("mapping", Mapping, how["mapping"] or Mapping(unmatched="skip"))
    files = of_class("files", Layout, how["files"])
    refuse_linked(files.transpose_weights, layout)
    _core.check_save_options({"layout": layout, **quantize_options(given_scheme(quantize))})
    if mapping.map is not None:
        raise InvalidArgumentError(
            "mapping: the export determines which key fills which weight; leave map out"
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
                if dry_run:
                    exporter.prepare()
                else:
                    exporter.judge(how["check"])
                exporters.append(exporter)
            exports = Exports(exporters, bool(variants), meter)
            report = exports.save(dry_run)
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
    """Return the choice of graphs for a model; the graphs are not traced yet."""
    fusing = Fusing("traced" if plain else how["attention"])
    opset = how["opset_version"]
    tracing = Tracing(loaded, dynamic, how["optimize"], meter, opset_version=opset, fusing=fusing)
    chosen = inputs_of(loaded.model, folder, inputs)
    ways = FolderWays(tracing, chosen, how)
    return Choice(ways, chosen, how["graphs"], None if inputs else fewer(chosen))
