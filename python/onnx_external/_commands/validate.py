"""Implements the command `onnx-external validate MODEL`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import get_args

from .._base.keywords import only
from .._base.options import LayoutName
from .._base.tables import table, terminal_columns
from .._validation.reports import ComparedOutput, GraphValidation, Latency, Validation
from .command_line import EXIT_CODES, TASK, VARIANT, Parser, reported, run

_EPILOG = """\
REFERENCE is another model (.onnx), an exported program (.pt2, which torch loads, so it must be from
a source that you trust), recorded input sets (a folder of test_data_set_N, an .npz file), or a
transformers folder. If it is omitted, the input sets next to the model are used; a transformers
folder is exported and compared with transformers' own model.

Outputs that do not agree are marked with !. docs/python-validate.md explains the table.

""" + EXIT_CODES.format("all outputs agree", "some outputs differ or none was compared")

_WORDS = {
    "dims={NAME: SIZE}": "--dim NAME=SIZE",
    "dims=": "--dim",
    "ranges=": "--range",
    "providers=": "--provider",
}
"""The Python arguments whose options have other names."""
_SAME = (
    "atol", "dtype", "dump", "latency", "layout", "max_error", "max_kl", "memory", "min_agreement",
    "output", "overwrite", "rtol", "seed", "sets", "task", "text", "variant",
)  # fmt: skip
"""The Python arguments whose values are the values of the options."""


def _size_of(text: str) -> tuple[str, list[int]]:
    name, _, sizes = text.rpartition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text}: expected NAME=SIZE or NAME=SIZE,SIZE,...")
    try:
        return name, [int(size) for size in sizes.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: {sizes} is not a valid size") from None


def _range_of(text: str) -> tuple[str, tuple[float, float]]:
    name, _, limits = text.rpartition("=")
    low, _, high = limits.partition(":")
    try:
        if name:
            return name, (float(low), float(high))
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text}: expected NAME=LEAST:LARGEST")


def parser() -> Parser:
    """Return the parser for the command's arguments."""
    parser = Parser(
        "validate",
        "Run a model on ONNX Runtime and compare its outputs with a reference.",
        _EPILOG,
        _WORDS,
    )
    add = parser.add_argument
    add("model", help="a model (.onnx), a transformers folder, or a folder of exported graphs")
    add("-a", "--against", metavar="REFERENCE", help="the reference for the model's outputs")
    add(
        "-i",
        "--inputs",
        action="append",
        metavar="SETS",
        help="recorded inputs to run the model on; for a transformers folder, the names of the "
        "model's inputs (NAME,...)",
    )
    _add_made(parser)
    add("--atol", type=float, help="absolute tolerance for floats; the default depends on the type")
    add("--rtol", type=float, help="relative tolerance for floats; the default depends on the type")
    _add_quality(parser)
    add(
        "--provider",
        action="append",
        help="the execution provider for ONNX Runtime, e.g. cuda; default: cpu",
    )
    add(
        "--latency",
        type=int,
        default=0,
        metavar="RUNS",
        help="measure the duration of this many runs",
    )
    add(
        "--memory", action="store_true", help="measure the memory for loading and running the model"
    )
    add(
        "--dump", metavar="FOLDER", help="write inputs, outputs and expected outputs to this folder"
    )
    _add_folder(parser)
    add("--html", metavar="FILE", help="also write the report as an HTML page")
    add("--overwrite", action="store_true", help="replace an existing export, dump or page")
    add("--json", action="store_true", help="print the report as a JSON document")
    add("-q", "--quiet", action="store_true", help="only print outputs that do not agree")
    return parser


def _add_made(parser: Parser) -> None:
    """Add the options for generated inputs."""
    made = parser.add_argument_group("generated inputs")
    made.add_argument(
        "--dim",
        action="append",
        type=_size_of,
        metavar="NAME=SIZE[,SIZE...]",
        help="the size of a dimension; with several sizes, there is one input set for each size",
    )
    made.add_argument(
        "--range",
        action="append",
        type=_range_of,
        metavar="INPUT=LEAST:LARGEST",
        help="the minimum and maximum value of an input",
    )
    made.add_argument("--seed", type=int, default=0, help="the seed of the values; default: 0")
    made.add_argument(
        "--sets", type=int, help="the number of input sets; default: one for each size of a --dim"
    )


def _add_quality(parser: Parser) -> None:
    """Add the options for a quantized model."""
    quality = parser.add_argument_group("a quantized model")
    quality.add_argument("--text", metavar="FILE", help="measure the model's loss on this text")
    quality.add_argument(
        "--max-kl", type=float, metavar="NATS", help="the maximum mean KL divergence; default: 0.1"
    )
    quality.add_argument(
        "--min-agreement",
        type=float,
        metavar="SHARE",
        help="the minimum share of positions at which both models prefer the same token",
    )
    quality.add_argument(
        "--max-error",
        type=float,
        metavar="SHARE",
        help="the maximum relative error of a model without logits; default: 0.25, for 8 bits 0.05",
    )


def _add_folder(parser: Parser) -> None:
    """Add the options for a transformers folder."""
    folder = parser.add_argument_group("a transformers folder")
    folder.add_argument(
        "-o", "--output", help="the folder to export to; default: a temporary folder"
    )
    folder.add_argument("--task", help=TASK)
    folder.add_argument("--dtype", help="the float type to compute in, e.g. float16")
    folder.add_argument("--variant", help=VARIANT)
    folder.add_argument("--static", action="store_true", help="export without dynamic dimensions")
    folder.add_argument(
        "--layout", choices=get_args(LayoutName), help="where the exported weights are stored"
    )


def _place(index: list[int] | None) -> str:
    return "" if index is None else f"[{','.join(map(str, index))}]"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _verdict(each: ComparedOutput) -> str:
    if each.problem:
        return each.problem
    if each.ok:
        off = f", {each.beyond} of {each.elements} beyond" if each.beyond else ""
        return f"by quality{off}" if each.by_quality else "ok"
    if each.is_empty:
        return "nothing to compare: only NaN" if each.elements else "nothing to compare"
    told = f"{each.beyond} of {each.elements} ({each.share:.3g}) beyond"
    if each.first_at:
        told += f", first {_place(each.first_at)}"
    return told


def _specials(each: ComparedOutput) -> str:
    """Return the counts of NaN, infinity (each as "nan MODEL/EXPECTED") and masked elements."""
    counts = (each.nan, each.expected_nan), (each.inf, each.expected_inf)
    told = [
        f"{word} {one}/{other}"
        for word, (one, other) in zip(("nan", "inf"), counts, strict=True)
        if one or other
    ]
    return " ".join([*told, *([f"masked {each.masked}"] if each.masked else [])])


def _row(each: ComparedOutput) -> list[str]:
    dtype, expected = each.dtype or "-", each.expected_dtype
    form = f"{dtype}{each.shape if each.shape is not None else ''}".replace(" ", "")
    if expected is not None and expected != dtype:
        form += f" ({expected})"
    largest = f"{_number(each.max_abs)} {_place(each.max_abs_at)}".rstrip()
    relative = f"{_number(each.max_rel)} {_place(each.max_rel_at)}".rstrip()
    return [each.set, each.output, form, largest, relative, _specials(each), _verdict(each)]


_TITLES = ["set", "output", "form", "largest difference", "relative", "special", ""]


def _table(outputs: Sequence[ComparedOutput]) -> str:
    """Return a table with a line for each output; lines of outputs that do not agree are marked."""
    columns = terminal_columns()
    lines = table([_TITLES, *map(_row, outputs)], columns and columns - 2)
    marks = ["  ", *("  " if each.ok else "! " for each in outputs)]
    return "\n".join(mark + line for mark, line in zip(marks, lines, strict=True))


def _milliseconds(latency: Latency) -> str:
    return (
        f"median {latency.median * 1e3:.3g} ms, minimum {latency.least * 1e3:.3g}, maximum "
        f"{latency.most * 1e3:.3g} ({latency.runs} runs)"
    )


def _print_graph(graph: GraphValidation, quiet: bool) -> None:
    outputs = [each for each in graph.outputs if not (quiet and each.ok)]
    if quiet and graph.ok:
        return
    print(f"{graph.model} against {graph.against}")
    if not quiet:
        for each in graph.inputs:
            form = f"{each.dtype}{each.shape}".replace(" ", "")
            print(f"  {each.set}: {each.name} {form}, {each.origin}")
    if outputs:
        print(_table(outputs))
        for tolerance in graph.tolerances:
            print(f"  {tolerance}")
    if graph.quality is not None:
        print(f"  quality: {graph.quality.sentence}")
    for note in graph.notes:
        print(f"  {note}")
    if graph.draws:
        print(f"  random numbers are drawn by {', '.join(graph.draws)}")
    if graph.latency is not None:
        print(f"  latency: {_milliseconds(graph.latency)}")
    if graph.reference_latency is not None:
        print(f"  latency of the reference: {_milliseconds(graph.reference_latency)}")
    for what, memory in (("loading", graph.load_memory), ("the first run", graph.run_memory)):
        if memory is not None:
            print(f"  memory added by {what}: {memory / 1e6:.1f} MB")


def _print(report: Validation, quiet: bool) -> None:
    for graph in report.graphs:
        _print_graph(graph, quiet)
    if not quiet or not report.ok:
        print(report.sentence)


def _print_next(report: Validation, source: str) -> None:
    """Print how to find the wrong module, if a transformers folder is the reference."""
    from .._folders.models import is_transformers

    judged = [each for each in report.graphs if each.quality is not None and not each.quality.ok]
    wrong = next((each for each in report.graphs if each.wrong or each in judged), None)
    if wrong is not None and is_transformers(source) and os.path.isfile(wrong.model):
        print(f"to find the wrong module: onnx-external diagnose {wrong.model} --against {source}")


def _validated(given: argparse.Namespace) -> Validation:
    from .._folders.models import is_transformers
    from .._validation.validating import validate

    inputs = given.inputs
    if inputs and is_transformers(given.against or given.model):
        inputs = [name for each in inputs for name in each.split(",")]
    return validate(
        given.model,
        given.against,
        inputs,
        dims=dict(given.dim or []),
        ranges=dict(given.range or []),
        providers=given.provider,
        dynamic=not given.static,
        progress=not given.quiet,
        **only(vars(given), _SAME),
    )


def _work(given: argparse.Namespace) -> int:
    report = reported(given, lambda: _validated(given), given.model)
    if not given.json:
        _print(report, given.quiet)
        _print_next(report, given.against or given.model)
    return 0 if report.ok else 1


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    return run(parser(), arguments, _work)
