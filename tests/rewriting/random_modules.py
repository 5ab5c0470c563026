"""Tests that rewritten random modules compute the same as the module, in eager mode and on ONNX Runtime, or are
refused.

usage: python tests/rewriting/random_modules.py --count 5000 --seed 1 --jobs 2 [--export-every 1] [--json FILE]

A module is made of its seed alone (`--show SEED` prints it). Of each: (a) rewritten, in eager, it gives exactly
what it gives as it is, on all input sets; (b) of every `--export-every`th the graph gives that, too, on ONNX
Runtime, or the export is refused in words; (c) nothing is left behind. A module that fails is shrunk, and printed.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import ast
import contextlib
import copy
import gc
import importlib.util
import io
import json
import multiprocessing
import multiprocessing.connection
import re
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import judge
import leftovers
import torch
from random_source import source_of
from torch.utils import _pytree as pytree

GOOD = ("eager", "right", "refused", "unstable")
LIMIT = 60
"""Seconds of the processor for a module."""
EDGES = 20
"""Inputs near to one for which a graph gives something else."""
CHUNK = 20
"""Modules for a process: what a crash takes with it."""


@dataclass
class Result:
    """The verdict on one module."""

    rank: str
    """eager (it was not exported), right, refused, unstable (so is the module), fails, WRONG, or left behind."""
    words: str = ""

    @property
    def good(self) -> bool:
        return self.rank in GOOD


def loaded(text: str, name: str, folder: str) -> torch.nn.Module:
    """Load a module from source. The source is written to a file, because the rewriter reads it."""
    path = Path(folder) / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name].Module().eval()  # type: ignore[no-any-return]


def input_sets(seed: int) -> list[Any]:
    torch.manual_seed(seed)
    shift = (0.0, 1.0, -1.0, 0.3, -0.4)
    return [((torch.randn(n, 3) + s, torch.randn(3) - s / 2), {}) for n, s in zip((3, 1, 2, 5, 4), shift, strict=True)]


def results(module: torch.nn.Module, sets: list[Any]) -> list[list[torch.Tensor]]:
    found = []
    for one in sets:
        args, kwargs = copy.deepcopy(one)
        with torch.no_grad():
            found.append([each.clone() for each in pytree.tree_leaves(module(*args, **kwargs))])
    return found


def exactly(wanted: list[list[torch.Tensor]], got: list[list[torch.Tensor]]) -> str:
    for n, (one, other) in enumerate(zip(wanted, got, strict=True)):
        for k, (a, b) in enumerate(zip(one, other, strict=True)):
            if a.dtype != b.dtype or a.shape != b.shape or not torch.equal(a.nan_to_num(), b.nan_to_num()):
                return f"set {n}, output {k}: {b.tolist()} instead of {a.tolist()}"
    return ""


def in_eager(rewriter: Any, module: torch.nn.Module, sets: list[Any]) -> str:
    wanted = results(module, sets)
    with rewriter.applied():
        got = results(module, sets)
    return exactly(wanted, got)


def by_graph(rewriter: Any, sets: list[Any], folder: str) -> Result:
    """Judge a graph that the exporter has not checked, so that only the rewriting is judged."""
    import onnx_external as oe

    module = rewriter.module
    dynamic = ({0: torch.export.Dim.DYNAMIC}, None)
    wanted = [judge.eager(module, one) for one in sets]
    args, _ = sets[0]
    path = str(Path(folder) / "model.onnx")
    others = [one for one, _ in sets[1:]]
    options: dict[str, Any] = {
        "rewrite": True,
        "check": False,
        "verify": False,
        "fsync": False,
        "progress": False,
    }
    try:
        with observed_already(rewriter):
            oe.torch.export(module, args, path, dynamic_shapes=dynamic, input_sets=others, **options)
    except Exception as error:
        return Result("refused" if judge.is_refusal(error, "ours") else "fails", judge.first_line(error))
    try:
        runner = judge.session(path)
        for n, one in enumerate(sets):
            got = runner.run(None, judge.feed(runner, one))
            difference = judge.unlike(wanted[n], got)
            if difference and at_an_edge(module, one, got):
                return Result("unstable")
            if difference:
                return Result("WRONG", f"set {n}: {difference}")
    except Exception as error:
        return Result("fails", f"ONNX Runtime: {judge.first_line(error)}")
    return Result("right")


def at_an_edge(module: torch.nn.Module, one: Any, got: Any) -> bool:
    """Return whether the module returns the same for inputs that differ by rounding, as in `mean of softmax * 0.6 >
    0.2`.
    """
    for n in range(EDGES):
        torch.manual_seed(n)
        near = pytree.tree_map_only(torch.Tensor, lambda x: x * (1 + 1e-6 * torch.randn_like(x)), one)
        if not judge.unlike(judge.eager(module, near), got):
            return True
    return False


def judged(text: str, seed: int, export: bool) -> Result:
    """Return the results of all checks of one module."""
    from onnx_external._control_flow.rewriter import Rewriter

    name = f"random_{seed}_{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder, quiet():
        module, sets = loaded(text, name, folder), input_sets(seed)
        results(module, sets)  # so that attributes set by forward exist before anything is compared
        before = leftovers.taken(module)
        try:
            try:
                rewriter = Rewriter(copy.deepcopy(module), sets)
                difference = in_eager(rewriter, rewriter.module, sets)
            except Exception as error:
                refused = judge.is_refusal(error, "rewriter")
                result = Result("refused" if refused else "fails", f"in eager: {judge.first_line(error)}")
            else:
                result = Result("WRONG", f"in eager: {difference}") if difference else Result("eager")
                if result.good and export:
                    result = by_graph(rewriter, sets, folder)
                again = leftovers.left(before, module)
                if result.good and again:
                    result = Result("left", again)
            return result
        finally:
            sys.modules.pop(name, None)


@contextlib.contextmanager
def observed_already(rewriter: Any) -> Iterator[None]:
    """Let an export use this rewriter, which has already run the module and compared it in eager mode."""
    from onnx_external.torch._rewritten import ModuleWays

    plain = ModuleWays.observed, rewriter.check
    ModuleWays.observed, rewriter.check = lambda _: rewriter, lambda: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        ModuleWays.observed, rewriter.check = plain  # type: ignore[method-assign]


def prepare() -> None:
    """Do the preparations once that every export would repeat, which take half the time of a small module."""
    from torch.onnx._internal.exporter import _registration

    import onnx_external.torch  # noqa: F401  which every process needs

    judge.warm()
    plain = _registration.ONNXRegistry.from_torchlib
    known: dict[tuple[Any, ...], Any] = {}

    def from_torchlib(*args: Any, **options: Any) -> Any:
        key = (*args, *options.items())
        if key not in known:
            known[key] = plain(*args, **options)
        made = copy.copy(known[key])
        made.functions = {name: list(each) for name, each in made.functions.items()}
        return made

    _registration.ONNXRegistry.from_torchlib = staticmethod(from_torchlib)
    judged(source_of(0), 0, export=True)  # what is imported or registered at the first export
    gc.collect()
    # Existing objects are frozen, because examining them takes a third of an export. The modules are made afterwards,
    # so that the rewriter finds their functions through gc.
    gc.freeze()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield


# --- shrinking


def smaller(text: str) -> Iterator[str]:
    """Yield sources with one statement less, or with an `if` replaced by its branch."""
    tree = ast.parse(text)
    places = [
        (n, name, i)
        for n, node in enumerate(ast.walk(tree))
        for name in ("body", "orelse", "finalbody")
        if isinstance(getattr(node, name, None), list) and not isinstance(node, (ast.Module, ast.ClassDef))
        for i in range(len(getattr(node, name)))
    ]
    for n, name, i in sorted(places, key=lambda each: (each[0], -each[2])):
        made = copy.deepcopy(tree)
        block = getattr(list(ast.walk(made))[n], name)
        gone = block.pop(i)
        if isinstance(gone, ast.Return) and not isinstance(list(ast.walk(made))[n], ast.If):
            continue
        if not block and name == "body":
            block.append(ast.Pass())
        yield ast.unparse(made)
        if isinstance(gone, (ast.If, ast.With, ast.Try, ast.For)):
            block[i:i] = gone.body
            yield ast.unparse(made)


def runs(text: str, seed: int) -> bool:
    with tempfile.TemporaryDirectory() as folder, quiet():
        try:
            results(loaded(text, f"shrunk_{seed}_{os.getpid()}", folder), input_sets(seed))
            return True
        except Exception:
            return False


def shrunk(text: str, fails: Callable[[str], bool], seconds: float = 60) -> str:
    """Return the smallest failing source that is found in time."""
    end = time.monotonic() + seconds
    found = True
    while found:
        found = False
        for each in smaller(text):
            if time.monotonic() > end:
                return text
            if each != text and fails(each):
                text, found = each, True
                break
    return text


def kind_of(result: Result) -> str:
    """Return the kind of a result. Results of the same kind probably have the same cause."""
    words = re.sub(r"\d[\d.]*", "#", result.words)[:60]
    return f"{result.rank}: {words}"


def smallest(seed: int, result: Result, export: bool) -> str:
    text, kind = source_of(seed), kind_of(result).split("output")[0]

    def fails(each: str) -> bool:
        return runs(each, seed) and kind_of(judged(each, seed, export)).startswith(kind)

    return shrunk(text, fails)


# --- many


class LateError(BaseException):
    """Raised if a module takes too long. Exporters do not mistake it for an error of the module, which would count as a
    refusal.
    """


def with_limit(seed: int, export: bool) -> Result:
    def late(*_: Any) -> None:
        raise LateError

    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        return judged(source_of(seed), seed, export)
    except LateError:
        return Result("fails", f"more than {LIMIT} s of the processor")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def work(seeds: list[tuple[int, bool]], pipe: Any) -> None:
    for seed, export in seeds:
        try:
            result = with_limit(seed, export)
        except Exception as error:
            result = Result("fails", f"judge: {judge.first_line(error)}")
        pipe.send((seed, asdict(result)))
    pipe.close()


def run_all(seeds: list[tuple[int, bool]], jobs: int, done: Callable[[int, Result], None]) -> None:
    """Judge the modules in `jobs` processes at a time."""
    context = multiprocessing.get_context("fork")
    chunks = [seeds[i : i + CHUNK] for i in range(0, len(seeds), CHUNK)]
    running: dict[Any, tuple[Any, list[int]]] = {}
    while chunks or running:
        while chunks and len(running) < jobs:
            mine, its = context.Pipe(duplex=False)
            chunk = chunks.pop(0)
            process = context.Process(target=work, args=(chunk, its))
            process.start()
            its.close()
            running[mine] = (process, [seed for seed, _ in chunk])
        for pipe in multiprocessing.connection.wait(list(running)):
            process, left = running[pipe]
            try:
                seed, result = pipe.recv()
                left.remove(seed)
                done(seed, Result(**result))
            except EOFError:
                process.join()
                del running[pipe]
                if left:  # the first of these modules ended the process
                    done(left[0], Result("fails", f"the process ended with {process.exitcode}"))
                    exports = dict(seeds)
                    if left[1:]:
                        chunks.insert(0, [(each, exports[each]) for each in left[1:]])


def table(known: dict[str, Any]) -> str:
    ranks = Counter(each["rank"] for each in known.values())
    kinds = Counter(kind_of(Result(**each)) for each in known.values() if each["words"])
    lines = ["| modules | " + " | ".join(ranks) + " |", "|---|" + "---|" * len(ranks)]
    lines.append(f"| {len(known)} | " + " | ".join(str(each) for each in ranks.values()) + " |")
    return "\n".join([*lines, "", *(f"- {n} times {kind}" for kind, n in kinds.most_common(30))]) + "\n"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--export-every", type=int, default=1, help="0: none is exported")
    parser.add_argument("--json", type=Path, help="results; what stands there is not judged again")
    parser.add_argument("--show", type=int, help="print the module of this seed, and end")
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--strict", action="store_true", help="end with 1 for exports that fail, too")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if options.show is not None:
        print(source_of(options.show))
        return 0
    known: dict[str, Any] = {}
    if options.json and options.json.exists():
        known = json.loads(options.json.read_text())
    torch.set_num_threads(1)
    every = options.export_every
    first = options.seed * 1_000_000
    seeds = [(first + n, bool(every) and n % every == 0) for n in range(options.count)]
    exports = dict(seeds)
    prepare()
    began = time.monotonic()
    shown: set[str] = set()

    def done(seed: int, result: Result) -> None:
        known[str(seed)] = asdict(result)
        if options.json and len(known) % 20 == 0:
            options.json.write_text(json.dumps(known, indent=1) + "\n")
        if result.good:
            return
        print(f"{seed} {result.rank}: {result.words}", flush=True)
        if kind_of(result) not in shown and "process ended" not in result.words:
            shown.add(kind_of(result))
            print(
                source_of(seed) if options.no_shrink else smallest(seed, result, exports[seed]),
                flush=True,
            )
        if options.json:
            options.json.write_text(json.dumps(known, indent=1) + "\n")

    run_all([each for each in seeds if str(each[0]) not in known], options.jobs, done)
    if options.json:
        options.json.write_text(json.dumps(known, indent=1) + "\n")
    mine = {str(seed): known[str(seed)] for seed, _ in seeds}
    print(table(mine))
    print(f"{time.monotonic() - began:.0f} s")
    bad = ("WRONG", "left", "fails") if options.strict else ("WRONG", "left")
    eager = any(each["words"].startswith("in eager") and each["rank"] == "fails" for each in mine.values())
    return int(eager or any(each["rank"] in bad for each in mine.values()))


if __name__ == "__main__":
    sys.exit(main())
