"""Judges ways to export modules with data-dependent control flow, with every entry of the zoo on ONNX Runtime.

usage: python tests/rewriting/judge.py --way torch.onnx --way ours [--only A,B03] [--json FILE] [--page FILE]

An entry runs in a process of its own, with a time limit. Its graph runs on all of its input sets, and
is compared with the module in eager: right, refused (in words), fails (anything else that is said:
another exception, a graph that ONNX Runtime does not take, the time limit), or WRONG (not said).
What stands in the JSON file already is not judged again (`--again` does).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import contextlib
import copy
import gc
import io
import json
import logging
import multiprocessing
import re
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
import torch
from entries import Entry, zoo
from torch.utils import _pytree as pytree

TOLERANCE = 1e-4
RANKS = ("right", "refused", "fails", "WRONG")


# --- the ways


def by_torch_onnx(entry: Entry, path: str) -> str:
    args, kwargs = entry.sets()[0]
    program = torch.onnx.export(
        entry.module(), args, kwargs=kwargs or None, dynamic_shapes=entry.dynamic_shapes(), dynamo=True, verbose=False
    )
    program.save(path)
    return ""


def by_ours(entry: Entry, path: str) -> str:
    import onnx_external as oe

    sets = entry.sets()
    args, kwargs = sets[0]
    report = oe.torch.export(
        entry.module(),
        args,
        path,
        kwargs or None,
        dynamic_shapes=entry.dynamic_shapes(),
        input_sets=[one[0] or one[1] for one in sets[1:]],
        rewrite="auto",
    )
    return "; ".join(report.notes)


def by_rewriter(entry: Entry, path: str) -> str:
    """Export with the rewriter, which `ours` uses as a last resort, even if a plain export is right."""
    from onnx_external._control_flow.rewriter import Rewriter
    from onnx_external.torch._converting import converted
    from onnx_external.torch._tracing import trace

    module, sets, dynamic = entry.module(), entry.sets(), entry.dynamic_shapes()
    args, kwargs = sets[0]
    rewriter = Rewriter(module, sets)
    rewriter.check()
    with torch.no_grad():
        program, found = rewriter.exported(lambda: trace(module, args, kwargs, dynamic, fall_back=False).program)
        converted(program).save(path)
    return f"{sum(each.count for each in found.changes)} rewritten"


# --- judging one entry


def flat(values: Any) -> list[np.ndarray]:
    """Return the tensors and numbers of a result, in order."""
    return [np.asarray(each) for each in pytree.tree_leaves(values) if each is not None and not isinstance(each, str)]


def eager(module: torch.nn.Module, one: tuple[Any, Any]) -> list[np.ndarray]:
    args, kwargs = copy.deepcopy(one)
    with torch.no_grad():
        got = copy.deepcopy(module)(*args, **kwargs)
    return flat(pytree.tree_map(lambda x: x.detach().numpy() if isinstance(x, torch.Tensor) else x, plain(got)))


def plain(values: Any) -> Any:
    """Return outputs of transformers as a tuple."""
    return values.to_tuple() if hasattr(values, "to_tuple") else values


def unlike(wanted: list[np.ndarray], got: list[np.ndarray], numbers_may_miss: bool = True) -> str:
    """Return the first difference in words."""
    if len(wanted) != len(got):
        return f"{len(got)} outputs instead of {len(wanted)}"
    for n, (one, other) in enumerate(zip(wanted, got, strict=True)):
        if one.shape != other.shape:
            return f"output {n}: shape {other.shape} instead of {one.shape}"
        if one.dtype != other.dtype and not (one.ndim == 0 and one.dtype.kind == other.dtype.kind):
            return f"output {n}: {other.dtype} instead of {one.dtype}"
        near = one.astype(np.float64), other.astype(np.float64)
        low = 1e-2 if one.dtype == np.float16 else TOLERANCE
        if not np.allclose(*near, rtol=low, atol=low, equal_nan=True):
            return f"output {n}: off by {np.nanmax(np.abs(near[0] - near[1])):.3g}"
    return ""


def session(path: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def feed(session: Any, one: tuple[Any, Any]) -> dict[str, np.ndarray]:
    args, kwargs = one
    names = [each.name for each in session.get_inputs()]
    if kwargs and set(names) <= set(kwargs):
        return {name: kwargs[name].numpy() for name in names}
    values = [each.numpy() for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
    if len(values) != len(names):
        raise ValueError(f"the graph has {len(names)} inputs, the module {len(values)}")
    return dict(zip(names, values, strict=True))


def first_line(error: BaseException) -> str:
    while error.__cause__ is not None and type(error).__module__.startswith("torch.onnx"):
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"[:400]


def is_refusal(error: BaseException, way: str) -> bool:
    """Return whether an exception is meant for the user. For torch's own exporters, every exception counts."""
    names = {each.__name__ for each in type(error).__mro__}
    return way == "torch.onnx" or bool(names & {"Refused", "ExportError"})


def judged(entry: Entry, way: str, export: Callable[[Entry, str], str]) -> tuple[str, str]:
    """Return the verdict on an entry, and the first line of the reason."""
    module = entry.module()
    sets = entry.sets()
    wanted = [eager(module, one) for one in sets]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.onnx")
        try:
            note = export(entry, path)
        except Exception as error:
            if os.environ.get("JUDGE_TRACEBACKS"):
                traceback.print_exc(file=sys.__stderr__)
            words = first_line(error)
            if not is_refusal(error, way):
                return "fails", words
            if entry.refused is not None and way != "torch.onnx":
                return ("right", words) if re.search(entry.refused, str(error)) else ("refused", words)
            return "refused", words
        try:
            runner = session(path)
        except Exception as error:
            return "fails", f"load: {first_line(error)}"
        for n, one in enumerate(sets):
            try:
                got = runner.run(None, feed(runner, one))
            except Exception as error:
                return "fails", f"set {n}: {first_line(error)}"
            difference = unlike(wanted[n], [np.asarray(each) for each in got])
            if difference:
                return "WRONG", f"set {n}: {difference}"
        if entry.refused is not None:
            return "right", f"{note} (a refusal was expected: {entry.refused})"
    return "right", note


def child(entry: Entry, way: str, export: Callable[[Entry, str], str], pipe: Any, loud: bool) -> None:
    began = time.monotonic()
    quiet = io.StringIO()
    with contextlib.ExitStack() as stack:
        if not loud:
            stack.enter_context(contextlib.redirect_stdout(quiet))
            stack.enter_context(contextlib.redirect_stderr(quiet))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
        try:
            rank, words = judged(entry, way, export)
        except Exception as error:
            if loud:
                traceback.print_exc()
            rank, words = "fails", f"judge: {first_line(error)}"
    pipe.send((rank, words, time.monotonic() - began))


def in_a_process(entry: Entry, way: str, export: Any, limit: float, loud: bool) -> dict[str, Any]:
    context = multiprocessing.get_context("fork")  # torch is imported once
    mine, its = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(entry, way, export, its, loud))
    process.start()
    its.close()
    try:
        rank, words, seconds = mine.recv() if mine.poll(limit) else ("fails", f"more than {limit:g} s", limit)
    except EOFError:
        process.join()
        rank, words, seconds = "fails", f"the process ended with {process.exitcode}", 0.0
    process.kill()
    process.join()
    return {"rank": rank, "words": words, "seconds": round(seconds, 1)}


# --- all of them


def table(entries: dict[str, Entry], results: dict[str, Any], ways: list[str]) -> str:
    lines = ["| group | entries |" + "".join(f" {way} |" for way in ways), "|---|---|" + "---|" * len(ways)]
    groups = sorted({name[0] for name in entries})
    for group in [*groups, "all"]:
        members = [name for name in entries if group in ("all", name[0])]
        cells = []
        for way in ways:
            ranks = Counter(results[way][name]["rank"] for name in members if name in results.get(way, {}))
            cells.append(", ".join(f"{ranks[rank]} {rank}" for rank in RANKS if ranks[rank]) or "-")
        lines.append(f"| {group} | {len(members)} | " + " | ".join(cells) + " |")
    lines += ["", "| entry | what |" + "".join(f" {way} |" for way in ways), "|---|---|" + "---|" * len(ways)]
    for name, each in entries.items():
        cells = []
        for way in ways:
            result = results.get(way, {}).get(name)
            if result is None:
                cells.append("-")
                continue
            words = result["words"].replace("|", "\\|")[:160]
            cells.append(result["rank"] if result["rank"] == "right" else f"{result['rank']}: {words}")
        lines.append(f"| {name} | {each.title} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def selected(entries: dict[str, Entry], only: str) -> dict[str, Entry]:
    wanted = [each for each in only.split(",") if each]
    return {n: e for n, e in entries.items() if not wanted or any(n.startswith(each) for each in wanted)}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", action="append", choices=["torch.onnx", "ours", "rewriter"], default=[])
    parser.add_argument("--only", default="", help="names, or what they begin with")
    parser.add_argument("--limit", type=float, default=120, help="seconds for an entry")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--again", action="store_true", help="judge what the JSON file has, too")
    parser.add_argument("--loud", action="store_true", help="show what the entries print")
    parser.add_argument("--must", action="store_true", help="end with 1 unless all are right for the last way")
    return parser.parse_args()


def warm() -> None:
    """Import the modules that every process needs only once, because all processes are forks of this one."""
    import onnx_external as oe

    logging.disable(logging.ERROR)
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        path = str(Path(folder) / "model.onnx")
        torch.onnx.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),), path, dynamo=True, verbose=False)
        session(path)
        oe.torch.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),), str(Path(folder) / "ours/model.onnx"))
    gc.collect()
    gc.freeze()  # shared objects are not garbage, and examining them takes a third of an export's time


def main() -> int:
    options = arguments()
    entries = selected(zoo(transformers=not options.only or "E" in options.only), options.only)
    results: dict[str, Any] = {}
    if options.json and options.json.exists():
        results = json.loads(options.json.read_text())
    warm()
    exports: dict[str, Any] = {"torch.onnx": by_torch_onnx, "ours": by_ours, "rewriter": by_rewriter}
    torch.set_num_threads(1)
    ways = options.way or ["torch.onnx", "ours"]
    for name, each in entries.items():
        for way in ways:
            known = results.setdefault(way, {})
            if name in known and not options.again:
                continue
            known[name] = in_a_process(each, way, exports[way], options.limit, options.loud)
            one = known[name]
            print(f"{name} {way}: {one['rank']} ({one['seconds']} s) {one['words']}", flush=True)
            if options.json:
                options.json.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    page = table(entries, results, ways)
    print(page)
    if options.page:
        options.page.write_text(page)
    wrong = [name for name in entries if results[ways[-1]][name]["rank"] == "WRONG"]
    missed = [name for name in entries if results[ways[-1]][name]["rank"] != "right"]
    return int(bool(wrong) or (options.must and bool(missed)))


if __name__ == "__main__":
    sys.exit(main())
