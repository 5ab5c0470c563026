"""Tests that saves of current transformers architectures, exported by a current torch, are right or refused.

docs/constructs.md says what becomes of each architecture; --write renews its table.

usage: zoo_test.py --bin-dir DIR --work-dir DIR --page FILE [--write] [--only NAME,...] [--jobs N] [-v]
"""

import argparse
import os
import sys
import time
from pathlib import Path

import torch

import page
import pools
from architectures import ARCHITECTURES
from programs import CannotExport
from trial import REFUSED, RIGHT, WRONG, Outcome, Trial


def work(job: tuple) -> tuple:
    name, bin_dir, work_dir = job
    torch.set_num_threads(1)
    start = time.monotonic()
    try:
        found = Trial(ARCHITECTURES[name], bin_dir, work_dir / name).run()
    except CannotExport as error:
        found = [Outcome("", "", "", "not exported", str(error))]
    return name, found, time.monotonic() - start


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin-dir", required=True, type=Path, help="folder of the commands")
    parser.add_argument("--work-dir", required=True, type=Path, help="its folder `zoo` is replaced")
    parser.add_argument(
        "--page", required=True, type=Path, help="docs/constructs.md, which says what is expected"
    )
    parser.add_argument("--write", action="store_true", help="write the page instead")
    parser.add_argument(
        "--only", default="", help="architectures, separated by commas; all by default"
    )
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 2))
    parser.add_argument("-v", "--verbose", action="store_true", help="print every save")
    return parser.parse_args()


def show(name: str, found: list, seconds: float, verbose: bool) -> None:
    print(f"{name}  {seconds:.0f} s", flush=True)
    for outcome in found:
        if verbose or outcome.verdict == WRONG:
            print(
                f"  {outcome.graph}, {outcome.checkpoint}, {outcome.layout}: {outcome.verdict} {outcome.why}"
            )


def main() -> int:
    arguments = parse()
    names = arguments.only.split(",") if arguments.only else list(ARCHITECTURES)
    jobs = [
        (name, arguments.bin_dir.resolve(), arguments.work_dir.resolve() / "zoo") for name in names
    ]
    expected, results, failed, start = page.rows_of(arguments.page), {}, 0, time.monotonic()
    for name, found, seconds in pools.results(work, jobs, arguments.jobs, 12):
        results[name] = found
        wrong = [outcome for outcome in found if outcome.verdict == WRONG]
        now = page.row(name, found)
        differs = not arguments.write and now != expected.get(name)
        failed += bool(wrong or differs)
        show(name, found, seconds, arguments.verbose or bool(wrong or differs))
        if differs:
            print(
                f"  FAIL  the page says: {expected.get(name)}\n        found:         {now}",
                flush=True,
            )
    if arguments.write and not failed:
        page.write(arguments.page, results)
    saves = [outcome for found in results.values() for outcome in found if outcome.graph]
    counts = ", ".join(f"{sum(o.verdict == v for o in saves)} {v}" for v in (RIGHT, REFUSED, WRONG))
    print(
        f"{len(results)} architectures, {counts}, {failed} failed, {time.monotonic() - start:.0f} s"
    )
    return 1 if failed or not any(outcome.verdict == RIGHT for outcome in saves) else 0


if __name__ == "__main__":
    sys.exit(main())
