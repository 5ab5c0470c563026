"""`python -m onnx_external export FOLDER -o OUT`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from ..errors import Error

__all__ = ["main"]

_CHOICES = ("single", "per-tensor", "shards", "inline", "link")
_LAYOUTS = (
    "where the weights go: one data file (the default), one for each tensor, files of "
    "--max-shard-size, into the graph (if there is one only), or nowhere: link refers to the "
    "checkpoint's files, and OUTPUT is then the model's folder"
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m onnx_external export",
        description="Export the model of a folder of transformers to ONNX, without reading its "
        "weights into memory. A decoder becomes prefill.onnx and decode.onnx, an encoder and a "
        "decoder encoder.onnx as well, anything else model.onnx; they share their data files.",
    )
    parser.add_argument("folder", help="config.json and weights, as save_pretrained() writes them")
    parser.add_argument("-o", "--output", required=True, help="the folder to write into")
    parser.add_argument("--task", help="e.g. text-generation, or a class of transformers")
    parser.add_argument("--dtype", help="the float type to compute in, e.g. float32")
    parser.add_argument("--static", action="store_true", help="no dimension varies")
    parser.add_argument("--no-optimize", action="store_true", help="the graph as it was traced")
    parser.add_argument("--layout", choices=_CHOICES, default="single", help=_LAYOUTS)
    parser.add_argument("--max-shard-size", help="for --layout shards, e.g. 2GB")
    parser.add_argument("--overwrite", action="store_true", help="replace what is there")
    parser.add_argument("--no-fsync", action="store_true", help="do not wait for the disk")
    parser.add_argument("--dry-run", action="store_true", help="trace and plan, write nothing")
    parser.add_argument("--json", action="store_true", help="the report as a JSON document")
    parser.add_argument("-q", "--quiet", action="store_true", help="no text, no progress")
    return parser


class _Steps:
    """Tells on stderr what is going on; the steps before a save know no size."""

    def __init__(self) -> None:
        self._phase = ""

    def __call__(self, phase: str, done: int, total: int) -> None:
        if phase != self._phase:
            print(f"{phase} ...", file=sys.stderr, flush=True)
        self._phase = phase


def _size(number: int) -> str:
    return f"{number / 1e6:.1f} MB" if number < 1e9 else f"{number / 1e9:.2f} GB"


def _total(saved: Any) -> str:
    told = f"data files: {_size(saved.bytes)}"
    if saved.linked_bytes:
        told += f", and {_size(saved.linked_bytes)} of the checkpoint's, not copied"
    return told + (", verified" if saved.verified else "")


def _print(report: Any) -> None:
    for name, graph in report.graphs.items():
        what = "would write" if report.dry_run else "wrote"
        print(f"{what} {graph.model}: {len(graph.tensors)} tensors, {_size(graph.bytes)}")
        if report.fixed[name]:
            print(f"  sizes that do not vary: {', '.join(report.fixed[name])}")
        for what, times in report.left[name].items():
            print(f"  left to the runtime: {times} x {what}")
    print(_total(report.save))
    if report.unused_keys:
        print(f"{len(report.unused_keys)} keys are not of {report.model_class}")
    if report.copied:
        print(f"beside it: {', '.join(report.copied)}")
    for step in report.steps:
        memory = "" if step.peak_memory is None else f"{_size(step.peak_memory):>12}"
        print(f"  {step.name:20}{step.seconds:8.1f} s{memory}")


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    given = _parser().parse_args(arguments)
    from .exporting import export

    options: dict[str, Any] = {"layout": given.layout, "overwrite": given.overwrite}
    if given.max_shard_size:
        options["max_shard_size"] = given.max_shard_size
    try:
        report = export(
            given.folder,
            given.output,
            given.task,
            given.dtype,
            not given.static,
            optimize=not given.no_optimize,
            dry_run=given.dry_run,
            progress=_Steps() if sys.stderr.isatty() and not given.quiet else False,
            fsync=not given.no_fsync,
            **options,
        )
    except Error as error:
        print(f"export: error: {error}", file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps(report.to_dict(), indent=2))
    elif not given.quiet:
        _print(report)
    return 0
