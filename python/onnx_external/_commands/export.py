"""Implements the command `onnx-external export FOLDER -o OUT`.

This file is outside the subpackages that need torch, so that help and errors are printed without
waiting for the import of torch.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from .._base.errors import InvalidArgumentError
from .._base.keywords import only
from .._base.notes import kind_of
from .._base.options import Layout, LayoutName, Quantize
from .._base.packages import FOLDERS, require
from .._base.progress import ProgressCallback, only_errors, told
from .._comparing.chaining import is_present
from .._folders.config import check_folder, refuse_at_once, require_folder
from .._folders.gguf.folder import as_folder
from .._folders.models import ENCODER
from .._folders.preconditions import model_folders, note_of_dtype, requested
from .command_line import EXIT_CODES, TASK, VARIANT, Parser, run

_LAYOUTS = (
    "where the weights are stored: in one data file (the default), in one file for each tensor, in "
    "shards of --max-shard-size, in the graph itself (if there is only one), or, with link, in the "
    "checkpoint's files, where OUT must be FOLDER"
)


_WORDS = {
    "dynamic=False": "--static",
    "task=": "--task",
    "fsync=False": "--no-fsync",
    "clients=": "--for",
    "variants=": "--variants",
    "inputs={name: tensor}": "inputs={name: tensor} of oe.transformers.export",
}
"""The Python arguments whose options have other names."""
_SAME = (
    "asserts", "attention", "base", "check", "dry_run", "graphs", "layout", "max_iterations",
    "opset_version", "overwrite", "repeat", "variant",
)  # fmt: skip
"""The Python arguments whose values are the values of the options."""


def parser() -> Parser:
    """Return the parser for the command's arguments."""
    parser = Parser(
        "export",
        "Export the model in a transformers folder to ONNX, without reading its weights into "
        "memory. An encoder-decoder becomes encoder_model.onnx, decoder_model.onnx and "
        "decoder_with_past_model.onnx, which share their data files; any other model becomes "
        "model.onnx. For a decoder, genai_config.json for ONNX Runtime GenAI is also written.",
        EXIT_CODES.format("the model is exported", "a graph is wrong"),
        _WORDS,
    )
    _add_graph_options(parser)
    _add_form_options(parser)
    _add_layout_options(parser)
    _add_quantize_options(parser)
    _add_trace_options(parser)
    parser.add_argument("--dry-run", action="store_true", help="trace and plan, but write nothing")
    parser.add_argument("--json", action="store_true", help="print the report as a JSON document")
    parser.add_argument("-q", "--quiet", action="store_true", help="print no text and no progress")
    return parser


def _add_graph_options(parser: Parser) -> None:
    """Add the options that choose what is exported, and as which graphs."""
    parser.add_argument(
        "folder",
        metavar="FOLDER",
        help="a folder with config.json and weights, as save_pretrained() writes it, or a GGUF "
        "file",
    )
    parser.add_argument(
        "-o", "--output", required=True, metavar="OUT", help="the folder to write to"
    )
    parser.add_argument(
        "--base",
        metavar="FOLDER",
        help="the base model of a peft adapter (a folder or a GGUF file), if adapter_config.json "
        "does not state where it is; a LoRA is merged into it",
    )
    parser.add_argument(
        "--inputs",
        metavar="NAME,...",
        help="the inputs of the graph, as names of forward()'s arguments (default: what the "
        "folder's tokenizer or processor returns)",
    )
    parser.add_argument("--task", help=TASK)
    parser.add_argument("--dtype", help="the float type to compute in, e.g. float32")
    parser.add_argument(
        "--for",
        dest="clients",
        action="append",
        default=[],
        metavar="CLIENT",
        help="a program that must be able to open OUT, such as transformers.js or optimum; "
        "repeatable, or several separated by commas",
    )


def _add_form_options(parser: Parser) -> None:
    """Add the options for the variants and forms of graphs."""
    parser.add_argument(
        "--variants",
        metavar="NAME,...",
        help="variants of the graphs to write into OUT, with the names used by transformers.js: "
        "fp32 (model.onnx), fp16 (model_fp16.onnx), int8 (model_quantized.onnx), uint8, q4, "
        "q4f16; programs use the first one by default",
    )
    parser.add_argument("--variant", help=VARIANT)
    parser.add_argument(
        "--graphs",
        choices=("one", "two"),
        help="the graphs of a decoder. one: model.onnx, which reads a prompt if its cache is "
        "empty (the default, unless the model's code treats an empty cache differently); two: "
        "prefill.onnx and decode.onnx",
    )
    parser.add_argument(
        "--attention",
        choices=("fused", "lengths", "standard", "traced"),
        default="fused",
        help="the form of attention in a decoder. fused: ONNX Runtime's GroupQueryAttention with "
        "the model's mask (the default); lengths: GroupQueryAttention with sequence lengths (for "
        "CUDA; no padding on the left); standard: ONNX's Attention; traced: the operators of the "
        "model's code",
    )
    parser.add_argument(
        "--static",
        action="store_true",
        help="fix all dimensions to the sizes of the example inputs",
    )
    parser.add_argument(
        "--no-optimize", action="store_true", help="do not optimize the traced graph"
    )
    parser.add_argument(
        "--opset",
        "--opset-version",
        dest="opset_version",
        metavar="N",
        type=int,
        help="the ONNX opset version, 7 to 25 (default: 23 if RMSNormalization and "
        "RotaryEmbedding make a graph smaller, which needs ONNX Runtime 1.23)",
    )


def _add_layout_options(parser: Parser) -> None:
    """Add the options that choose how the data is stored."""
    parser.add_argument("--layout", choices=get_args(LayoutName), default="single", help=_LAYOUTS)
    parser.add_argument(
        "--max-shard-size",
        metavar="SIZE",
        help="the maximum size of a file with --layout shards, e.g. 2GB",
    )
    parser.add_argument(
        "--transpose-weights",
        action=argparse.BooleanOptionalAction,
        help="store matrices in the order in which MatMul reads them, without Transpose nodes, "
        "which hide weights from quantizers (the default, except with --layout link)",
    )


def _add_quantize_options(parser: Parser) -> None:
    """Add the options that choose which matrices are quantized, and how."""
    parser.add_argument(
        "--quantize",
        metavar="SCHEME",
        help="int4 or int8: quantize matrices while they are written (docs/quantize.md lists more "
        "schemes, such as int4/32); keep: keep the codes of a quantized checkpoint (the default "
        "for such a checkpoint); float: convert the codes to floats",
    )
    parser.add_argument(
        "--dequantize",
        dest="quantize",
        action="store_const",
        const="float",
        help="the same as --quantize float",
    )
    parser.add_argument(
        "--quantize-head",
        choices=("int8", "int4", "float"),
        default="int8",
        help="with --quantize: the type of the head and the embeddings (default: int8)",
    )
    parser.add_argument(
        "--quantize-weights",
        metavar="PATTERN=SCHEME",
        action="append",
        help="with --quantize: another scheme for some weights, as in '*.down_proj.*=int4/128'; "
        "PATTERN may contain * and ?; the last one that matches decides (repeatable)",
    )
    parser.add_argument(
        "--keep-float",
        metavar="PATTERN",
        action="append",
        help="with --quantize: patterns, with * and ?, of weights not to quantize (repeatable)",
    )
    parser.add_argument(
        "--accuracy-level",
        type=int,
        choices=(0, 4),
        default=4,
        help="with --quantize: 4 rounds activations to 8 bits, which is faster; 0 does not",
    )
    parser.add_argument(
        "--quantize-form",
        choices=("matmulnbits", "qdq"),
        default="matmulnbits",
        help="with --quantize: operators of ONNX Runtime (default), or ONNX's DequantizeLinear",
    )


def _add_trace_options(parser: Parser) -> None:
    """Add the options that choose how the model is traced and checked."""
    parser.add_argument("--overwrite", action="store_true", help="replace existing files")
    parser.add_argument("--no-fsync", action="store_true", help="do not wait for the disk")
    parser.add_argument(
        "--check",
        action=argparse.BooleanOptionalAction,
        help="run the graphs on ONNX Runtime before they are saved, with inputs of two sizes, and "
        "compare the outputs with transformers' model (by default up to 512 MiB of weights)",
    )
    parser.add_argument(
        "--rewrite",
        action=argparse.BooleanOptionalAction,
        help="always or never rewrite data-dependent control flow to ONNX operators (by default: "
        "if the export fails, or the graph is wrong for other sizes than those of the example)",
    )
    parser.add_argument(
        "--repeat",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="trace a deep model with only a few layers, and repeat these in the graph after "
        "proving that the result is the same (the default); otherwise trace all layers",
    )
    parser.add_argument(
        "--asserts",
        choices=("omit", "refuse"),
        default="omit",
        help="assertions on tensor values in rewritten code: omit them from the graph, with a note "
        "(the default), or refuse to export",
    )
    parser.add_argument(
        "--max-iterations",
        type=int,
        metavar="N",
        help="the maximum number of iterations of a loop whose state grows; the graph of such a "
        "loop needs a bound",
    )
    parser.add_argument(
        "--dump-rewriting",
        metavar="DIR",
        help="a new folder to write the diffs of all rewritten functions to",
    )


def _size(number: int) -> str:
    return f"{number / 1e6:.1f} MB" if number < 1e9 else f"{number / 1e9:.2f} GB"


def _total(saved: Any) -> str:
    told = f"data files: {_size(saved.bytes)}"
    if saved.linked_bytes:
        told += f", and {_size(saved.linked_bytes)} in the checkpoint's files, not copied"
    return told + (", verified" if saved.verified else "")


def _consequence(what: str, saved: Any) -> str:
    """Describe the effect of Transpose nodes that remain in the graph; "" for other nodes."""
    from ..torch._skeleton import TRANSPOSE

    if what != TRANSPOSE:
        return ""
    way_out = "" if not saved.linked_bytes else ", or choose another --layout than link"
    return (
        "; quantizers do not find a weight behind it: run onnxruntime's quant_pre_process first"
        + way_out
    )


def _print(report: Any, folder: str, told: Sequence[str]) -> None:
    from ..transformers._tracing import FIXED, FIXED_SIZES

    for note in report.notes:
        if note in told or kind_of(note) == FIXED_SIZES:  # these are listed with each graph
            continue
        print(f"note: {parser().in_options(note)}")
    for name, graph in report.graphs.items():
        what = "would write" if report.dry_run else "wrote"
        print(f"{what} {graph.model}: {len(graph.tensors)} tensors, {_size(graph.bytes)}")
        if report.quality.get(name):
            print(f"  compared with the unquantized model: {report.quality[name]}")
        if report.checked.get(name):
            print(f"  compared with transformers' model on {report.checked[name]} input sets")
        for change in report.rewriting[name].changes if name in report.rewriting else ():
            print(f"  rewritten: {change.name} ({change.path}:{change.line})")
        for text in report.rewriting[name].unreached if name in report.rewriting else ():
            print(f"  {text}")
        if report.fixed[name]:
            print(f"  {FIXED}: {', '.join(report.fixed[name])}")
        for what, times in report.left[name].items():
            print(f"  left to the runtime: {times} x {what}{_consequence(what, report.save)}")
    if report.chain:
        print(f"run one after another, like transformers' model: {', '.join(report.chain)}")
    print(_total(report.save))
    for note in report.save.notes:
        print(f"note: {note}")
    if report.unused_keys:
        print(f"keys that no graph uses: {_shortly(report.unused_keys)}")
    if report.copied:
        print(f"also written: {', '.join(report.copied)}")
    for step in report.steps:
        memory = "" if step.peak_memory is None else f"{_size(step.peak_memory):>12}"
        print(f"  {step.name:20}{step.seconds:8.1f} s{memory}")
    if not report.dry_run:
        _print_next(report, folder)


def _print_next(report: Any, folder: str) -> None:
    """Print how to run the exported graphs."""
    from ..transformers._naming import listed

    alike = next(iter(report.variants.values()), list(report.graphs))  # others take the same
    for name, graph in report.graphs.items():
        if name not in alike:
            continue
        print(f"{Path(graph.model).name}")
        print(f"  takes {listed(report.inputs[name])}")
        print(f"  gives {listed(report.outputs[name])}")
    if report.omitted_inputs:
        print(f"{report.model_class} also takes {', '.join(report.omitted_inputs)}")
    first = next(iter(report.graphs))
    if any(form.startswith("bfloat16") for form in report.outputs[first].values()):
        print(f"""the model is in bfloat16; to run it on a CPU with ONNX Runtime, use float32:
  onnx-external export {folder} -o {report.path} --overwrite""")
        return
    if len(report.graphs) > 1 and first.startswith(ENCODER):
        print(_how_to_run_a_pair(report.path, list(report.inputs[first])))
        return
    if any(map(is_present, report.outputs[first])):
        print(_how_to_generate(report.path, "tokenizer.json" in report.copied))
        if "genai_config.json" in report.copied:
            print(f"onnxruntime_genai.Model({report.path!r}) also loads it (docs/python-export.md)")
        return
    names = ", ".join(f'"{name}": ...' for name in report.inputs[first])
    print(f"""to run it (pip install onnxruntime):
  import onnxruntime
  session = onnxruntime.InferenceSession({report.graphs[first].model!r})
  outputs = session.run(None, {{{names}}})""")


def _shortly(names: Sequence[str]) -> str:
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(names[:4]) + more


def _how_to_generate(path: str, has_tokenizer: bool) -> str:
    """Describe how to run a decoder; if there is no tokenizer, with token ids."""
    if not has_tokenizer:
        return f"""to generate tokens (pip install onnxruntime; for text, add a tokenizer.json):
  onnx-external generate {path} --tokens 1,2,3
or in Python:
  import onnx_external as oe
  tokens = oe.generate({path!r}, [1, 2, 3])
  print(tokens[0])"""
    return f"""to generate text (pip install onnxruntime tokenizers):
  onnx-external generate {path} --prompt "Once upon a time"
or in Python:
  import onnx_external as oe
  texts = oe.generate({path!r}, "Once upon a time")
  print(texts[0])"""


def _how_to_run_a_pair(path: str, inputs: list[str]) -> str:
    """Describe how to run an encoder and a decoder, on text or on arrays."""
    if "input_ids" in inputs:
        return f"""to run it (pip install onnxruntime; for text also tokenizers, tokenizer.json):
  onnx-external generate {path} --tokens 1,2,3
or in Python:
  import onnx_external as oe
  tokens = oe.generate({path!r}, [1, 2, 3])"""
    options = " ".join(f"--input {name}={name}.npy" for name in inputs)
    return f"""to run it (pip install onnxruntime) on arrays that a processor returned:
  onnx-external generate {path} {options} --tokens 1,2,3
or in Python, with the tokens that begin the text ([]: those in the model's settings):
  import onnx_external as oe
  tokens = oe.generate({path!r}, [1, 2, 3], {", ".join(f"{name}=..." for name in inputs)})"""


def _refuse_at_once(given: argparse.Namespace) -> list[str]:
    """Report errors that are detected without torch, and return the notes to print."""
    for option in ("--quantize-weights", "--keep-float"):
        if given.quantize is None and vars(given)[option[2:].replace("-", "_")]:
            raise InvalidArgumentError(f"{option}: requires --quantize")
    with (
        as_folder(Path(given.folder), with_tokenizer=False) as folder,
        as_folder(given.base, with_tokenizer=False) as base,
    ):
        require_folder(folder)
        folders = model_folders(folder, base)
        check_folder(folders[0])
        refuse_at_once(folders[0])
        values = {"clients": _clients(given), "variants": _variants(given)}
        requested(folders, Path(given.output), {**vars(given), **values})
    require(f"{given.folder}: the export of a folder", *FOLDERS)
    return note_of_dtype(given.dtype)


def _variants(given: argparse.Namespace) -> list[str]:
    return [] if given.variants is None else given.variants.split(",")


def _clients(given: argparse.Namespace) -> list[str]:
    return [name for each in given.clients for name in each.split(",")]


def _quantize(given: argparse.Namespace) -> Quantize | None:
    return given.quantize and Quantize(
        given.quantize,
        head=given.quantize_head,
        weights=given.quantize_weights,
        keep_float=given.keep_float,
        accuracy_level=given.accuracy_level,
        form=given.quantize_form,
    )


def _run(given: argparse.Namespace, progress: ProgressCallback | None) -> Any:
    if progress is not None:
        progress("import torch and transformers", 0, 0)
    from .._control_flow import room_for_diffs
    from ..transformers import export

    files = Layout(max_shard_size=given.max_shard_size, transpose_weights=given.transpose_weights)
    with room_for_diffs(given.dump_rewriting) as write:
        report = export(
            given.folder,
            given.output,
            given.task,
            given.dtype,
            not given.static,
            inputs=None if given.inputs is None else given.inputs.split(","),
            optimize=not given.no_optimize,
            rewrite="auto" if given.rewrite is None else given.rewrite,
            clients=_clients(given),
            variants=_variants(given),
            progress=progress or False,
            fsync=not given.no_fsync,
            quantize=_quantize(given),
            files=files,
            **only(vars(given), _SAME),
        )
        write(report.rewriting)
    return report


def _work(given: argparse.Namespace) -> int:
    early = _refuse_at_once(given)
    for note in [] if given.quiet else early:
        print(f"note: {parser().in_options(note)}", file=sys.stderr, flush=True)
    # The command has already reported the package's warnings, with its options.
    with told(not given.quiet) as callback, only_errors("onnx_external"):
        report = _run(given, callback)
    if given.json:
        print(json.dumps(report.to_dict(), indent=2))
    elif not given.quiet:
        _print(report, given.folder, early)
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    return run(parser(), arguments, _work)
