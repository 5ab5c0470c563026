"""Implements `onnx-external diagnose` for an exported model or a transformers folder."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._base.packages import FOLDERS, require
from .._base.tables import highlighted, terminal_columns, wrapped
from .._diagnosis.reports import Diagnosis
from .._folders.config import check_folder, refuse_at_once
from .._folders.models import has_models, is_transformers
from .command_line import EXIT_CODES, TASK, Parser, UsageError, reported, run


def parser() -> Parser:
    """Return the parser for the command's arguments."""
    parser = Parser(
        "diagnose",
        "Name the first module whose results in an exported model differ from those in "
        "transformers' model; or, for a transformers folder, the first module that cannot be "
        "exported.",
        EXIT_CODES.format("nothing is wrong", "a module is wrong"),
        {"providers=": "--provider"},
    )
    parser.add_argument(
        "model",
        help="a graph that `export` wrote, e.g. out/model.onnx, or a transformers folder",
    )
    parser.add_argument(
        "-a", "--against", metavar="FOLDER", help="the folder that a graph was exported from"
    )
    parser.add_argument(
        "--exporter",
        choices=["export", "onnx", "torchscript"],
        help="for a folder: the exporter to try (export, onnx or torchscript; default: onnx)",
    )
    parser.add_argument(
        "--max-iterations",
        type=int,
        metavar="N",
        help="for a folder: the maximum number of iterations of a rewritten loop whose state grows",
    )
    parser.add_argument(
        "--atol", type=float, help="absolute tolerance; the default depends on the type"
    )
    parser.add_argument(
        "--rtol", type=float, help="relative tolerance; the default depends on the type"
    )
    parser.add_argument(
        "--provider", action="append", help="the execution provider for ONNX Runtime; default: cpu"
    )
    parser.add_argument("--task", help=TASK)
    parser.add_argument("--dtype", help="the float type that the graph computes in")
    _add_strategy(parser)
    parser.add_argument("--html", metavar="FILE", help="also write the report as an HTML page")
    parser.add_argument(
        "--overwrite", action="store_true", help="let --html replace an existing page"
    )
    parser.add_argument("--all", action="store_true", help="also list correct modules")
    parser.add_argument("--json", action="store_true", help="print the report as a JSON document")
    parser.add_argument("-q", "--quiet", action="store_true", help="only print the first sentence")
    return parser


def _add_strategy(parser: Parser) -> None:
    """Add the options that determine which modules are examined, and how."""
    parser.add_argument(
        "--strategy",
        choices=["always", "failing", "local"],
        help="examine the submodules of all modules (always, the default), only of wrong modules "
        "(failing, the default for a folder), or of all, judging each by its own operations "
        "(local)",
    )
    parser.add_argument(
        "--opaque",
        action="append",
        default=[],
        metavar="NAME",
        help="do not examine the submodules of this module, or of modules of this class "
        "(repeatable)",
    )
    parser.add_argument(
        "--follow",
        action="store_true",
        help="also run each module on the values that the model computes for it, which shows "
        "where differences accumulate",
    )


def _print(report: Diagnosis, given: argparse.Namespace) -> None:
    """Print the conclusion, then the tree; for a wrong model, only the paths to wrong modules."""
    columns = terminal_columns()
    print(wrapped(report.sentence, columns))
    if given.quiet:
        return
    for remark in report.remarks:
        print(wrapped(remark, columns))
    wrong = len(report.in_wrong_branches)
    only_wrong = wrong > 0 and not given.all
    print()
    print("\n".join(highlighted(*each) for each in report.lines(columns, only_wrong)))
    if only_wrong and len(report.modules) > wrong:
        print(f"(--all shows {len(report.modules) - wrong} more)")


def _compared(given: argparse.Namespace) -> Diagnosis:
    from .._diagnosis.diagnosing import diagnose

    if given.exporter or given.max_iterations is not None:
        raise UsageError(
            "--exporter, --max-iterations: only for the export of a folder; they cannot be "
            "combined with --against"
        )
    return diagnose(
        given.model,
        given.against,
        atol=given.atol,
        rtol=given.rtol,
        providers=given.provider,
        task=given.task,
        dtype=given.dtype,
        strategy=given.strategy or "always",
        opaque=given.opaque,
        follow=given.follow,
        progress=not given.quiet,
    )


def _exported(given: argparse.Namespace) -> Diagnosis:
    if given.provider or given.follow:
        raise UsageError("--provider, --follow: only for a graph, together with --against FOLDER")
    path = Path(given.model)
    if path.suffix == ".onnx" or (has_models(path) and not is_transformers(path)):
        raise UsageError(
            f"{given.model}: is already exported; pass the folder that it was exported from: "
            f"onnx-external diagnose {shlex.quote(given.model)} --against FOLDER"
        )
    if path.is_dir():
        check_folder(path)
    refuse_at_once(given.model)
    exporter: Any = given.exporter or "onnx"  # argparse knows the choices
    needed = FOLDERS if exporter == "onnx" else ("torch", "transformers")
    require(f"{given.model}: the export of a folder", *needed)
    from .._diagnosis.export_diagnosing import diagnose_export

    return diagnose_export(
        given.model,
        exporter=exporter,
        strategy=given.strategy or "failing",
        opaque=given.opaque,
        atol=given.atol,
        rtol=given.rtol,
        task=given.task,
        dtype=given.dtype,
        max_iterations=given.max_iterations,
        progress=not given.quiet,
    )


def _work(given: argparse.Namespace) -> int:
    work = _compared if given.against is not None else _exported
    report = reported(given, lambda: work(given))
    if not given.json:
        _print(report, given)
    return 0 if report.ok else 1


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    return run(parser(), arguments, _work)
