"""Plants faults in the rewriter, all of which the judges must find.

usage: python tests/rewriting/sabotage.py [--only NAME,...] [--page FILE]

A fault is a change of one function. With it a fixed slice is judged, the cheapest first: random modules in eager,
entries of the zoo that are right without it (by the rewriter alone), and random modules exported; the first that is
not as it should be ends it. Without `--only` the slice is judged without a fault, too.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import multiprocessing
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import judge
import random_modules
import torch
from entries import zoo

SLICE = ("A03", "A07", "A20", "A34", "B03", "B04", "B12", "C08", "B02", "A06", "A09", "B10", "D01", "A13")
"""Entries that are right without a fault, broad in kind."""
RANDOM = 8
"""Random modules of the slice."""

Fault = Callable[[], None]
FAULTS: dict[str, tuple[str, Fault]] = {}


def fault(what: str) -> Callable[[Fault], Fault]:
    def add(plant: Fault) -> Fault:
        FAULTS[plant.__name__] = (what, plant)
        return plant

    return add


def everywhere(before: Any, after: Any) -> None:
    """Replace a function in every module of the rewriter that uses it."""
    places = [
        (module, name)
        for path, module in list(sys.modules.items())
        if path.startswith("onnx_external._control_flow")
        for name, value in list(vars(module).items())
        if value is before
    ]
    assert places, f"{before} is nowhere"
    for module, name in places:
        setattr(module, name, after)


@fault("the branches of a traced test are exchanged")
def branches() -> None:
    from onnx_external._control_flow.runtime import branches

    before = branches.predicate

    def wrong(value: Any) -> Any:
        found = before(value)
        return torch.logical_not(found) if isinstance(found, torch.Tensor) else torch.sym_not(found)

    everywhere(before, wrong)


@fault("`and` of tensors is computed as `or`")
def conjunction() -> None:
    from onnx_external._control_flow.runtime import conditions

    before = conditions._folded
    everywhere(before, lambda state, parts, conjunction: before(state, parts, False))


@fault("`not` gives its operand, in eager, too")
def negation() -> None:
    from onnx_external._control_flow.runtime import conditions

    everywhere(conditions.negated, lambda value: value)


@fault("a traced reversed() runs forwards")
def backwards() -> None:
    from onnx_external._control_flow.runtime import rows

    def forwards(self: Any) -> Any:
        return rows.rows_of(self.values)

    rows.Reversed.rows = forwards  # type: ignore[method-assign]


@fault("a traced enumerate() counts from one")
def counted() -> None:
    from onnx_external._control_flow.runtime import rows

    before = rows.Enumerate.__init__

    def wrong(self: Any, values: Any, start: Any) -> None:
        before(self, values, start + 1)

    rows.Enumerate.__init__ = wrong  # type: ignore[method-assign]


@fault("the `else` of a loop always runs")
def loop_else() -> None:
    from onnx_external._control_flow.passes import loops

    everywhere(loops._flagged_breaks, lambda body, flag: list(body))


@fault("nonlocal declarations are forgotten")
def nonlocals() -> None:
    from onnx_external._control_flow.passes import names

    everywhere(names.declared, lambda body: {})


@fault("merged numbers all become int64")
def promotion() -> None:
    from onnx_external._control_flow.runtime import merging

    everywhere(merging._promoted, lambda one, other, kinds: torch.int64)


@fault("what is moved into branches is lost: values of the first branch stand for both")
def first_branch() -> None:
    from onnx_external._control_flow.runtime.helpers import Runtime

    before = Runtime.if_

    def wrong(self: Any, test: Any, then: Any, other: Any, names: Any, key: Any) -> Any:
        return before(self, test, then, then if names else other, names, key)

    Runtime.if_ = wrong  # type: ignore[method-assign]


@fault("the code of functions is not put back")
def code() -> None:
    from onnx_external._control_flow import applying

    everywhere(applying._restore_code, lambda function, before, ours: None)


@fault("the runtime's name stays among the globals")
def globals_() -> None:
    from onnx_external._control_flow import applying

    everywhere(applying._restore_name, lambda space, before: None)


@fault("attributes keep tensors of the trace")
def attributes() -> None:
    from onnx_external._control_flow.runtime.places import Places

    Places.restore = lambda self, *rest: None  # type: ignore[method-assign]


@fault("the tests on sizes are not noticed")
def sizes() -> None:
    from onnx_external._control_flow.finding.observing import Seen

    Seen.differs = property(lambda self: False)  # type: ignore[assignment]


@fault("a chain of comparisons is its last link")
def chain() -> None:
    from onnx_external._control_flow.runtime import conditions
    from onnx_external._control_flow.runtime.helpers import Runtime

    def wrong(self: Any, first: Any, *rest: Any) -> Any:
        left = first() if len(rest) == 2 else rest[-3]()
        return conditions.COMPARISONS[rest[-2]](left, rest[-1]())

    Runtime.chain = wrong  # type: ignore[method-assign]


# --- looking for them


def found() -> str:
    """Return the first wrong entry or module of the slice, or nothing if all are right."""
    words = random_found(range(RANDOM), export=False)
    if words:
        return words
    entries = zoo(transformers=False)
    for name in SLICE:
        rank, words = judge.judged(entries[name], "rewriter", judge.by_rewriter)
        if rank != "right":
            return f"{name} {rank}: {words}"
    return random_found(range(1, RANDOM, 2), export=True)


def random_found(seeds: range, export: bool) -> str:
    for n in seeds:
        result = random_modules.with_limit(n, export)
        if result.rank in ("WRONG", "left") or "in eager" in result.words:
            return f"random module {n} {result.rank}: {result.words}"
    return ""


def attempt(name: str, pipe: Any) -> None:
    with random_modules.quiet():
        try:
            import onnx_external._control_flow.rewriter  # noqa: F401  so that a fault finds all modules

            if name:
                FAULTS[name][1]()
            pipe.send(found())
        except Exception as error:
            pipe.send(f"judge: {judge.first_line(error)}")


def judged(name: str) -> str:
    """Judge a fault in its own process, so that the fault ends with the process."""
    context = multiprocessing.get_context("fork")
    mine, its = context.Pipe(duplex=False)
    process = context.Process(target=attempt, args=(name, its))
    process.start()
    its.close()
    try:
        words = mine.recv() if mine.poll(900) else "more than 900 s"
    except EOFError:
        words = "the process ended"
    process.kill()
    process.join()
    return str(words)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    names = [each for each in options.only.split(",") if each] or list(FAULTS)
    torch.set_num_threads(1)
    judge.warm()
    lines = ["| fault | found by |", "|---|---|"]
    clean = "" if options.only else judged("")
    if not options.only:
        lines.append(f"| none | {clean or 'nothing, as it should be'} |")
    missed = bool(clean)
    for name in names:
        words = judged(name)
        missed |= not words or words.startswith("judge")
        shown = words.replace("|", "\\|")[:200]
        lines.append(f"| {name}: {FAULTS[name][0]} | {shown or '**NOT FOUND**'} |")
        print(lines[-1], flush=True)
    page = "\n".join(lines) + "\n"
    print(page)
    if options.page:
        options.page.write_text(page)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
