"""Tests exports of current architectures from their folders, without weights in memory.

docs/constructs.md says what becomes of each architecture; --write renews its table.

usage: export_test.py --work-dir DIR --page FILE [--write] [--only NAME,...] [--jobs N]
"""

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import transformers

import export_page as page
import pools
from architectures import ARCHITECTURES
from folder_trial import FolderTrial, Outcome
from trial import REFUSED, RIGHT, WRONG

IN_BFLOAT16 = ("bart", "bert", "gpt2", "llama", "mixtral", "qwen3", "t5", "vit")
SECONDS = 600  # for one architecture, all its graphs


class TooLong(BaseException):
    """Raised on a timeout. Not derived from Exception, because exporters catch that."""


@contextlib.contextmanager
def limit(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooLong

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def work(job: tuple) -> tuple:
    name, work_dir = job
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    start = time.monotonic()
    dtype = "bfloat16" if name.endswith(page.SUFFIX) else "float32"
    architecture = ARCHITECTURES[name.removesuffix(page.SUFFIX)]
    try:
        with limit(SECONDS):
            found = FolderTrial(architecture, work_dir / name, dtype).run()
    except TooLong:
        found = [Outcome("", WRONG, f"takes more than {SECONDS} s")]
    except Exception as error:  # no refusal: it is shown, and fails the test
        found = [Outcome("", WRONG, f"{type(error).__name__}: {str(error)[:500]}")]
    return name, found, time.monotonic() - start


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--work-dir", required=True, type=Path, help="its folder `export` is replaced"
    )
    parser.add_argument(
        "--page", required=True, type=Path, help="docs/constructs.md, which says what is expected"
    )
    parser.add_argument("--write", action="store_true", help="write the page instead")
    parser.add_argument(
        "--only", default="", help="architectures, separated by commas; all by default"
    )
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 2))
    return parser.parse_args()


def show(name: str, found: list, seconds: float) -> None:
    parts = [f"{o.graph} {o.verdict} {o.why or format(o.far, '.1e')}" for o in found]
    print(f"{name}  {seconds:.0f} s  {'; '.join(parts)}", flush=True)


def main() -> int:
    arguments = parse()
    everything = [*ARCHITECTURES, *(name + page.SUFFIX for name in IN_BFLOAT16)]
    names = arguments.only.split(",") if arguments.only else everything
    jobs = [(name, arguments.work_dir.resolve() / "export") for name in names]
    expected, results, failed, start = page.rows_of(arguments.page), {}, 0, time.monotonic()
    for name, found, seconds in pools.results(work, jobs, arguments.jobs, 12):
        show(name, found, seconds)
        if any(outcome.verdict == WRONG for outcome in found):
            failed += 1
            continue
        results[name] = found
        if not arguments.write and page.row(name, found) != expected.get(name):
            failed += 1
            print(
                f"  FAIL  the page says: {expected.get(name)}\n        found:         {page.row(name, found)}"
            )
    if arguments.write:
        page.write(arguments.page, results)
    verdicts = [{outcome.verdict for outcome in found} for found in results.values()]
    right, refused = sum(v == {RIGHT} for v in verdicts), sum(REFUSED in v for v in verdicts)
    seconds = time.monotonic() - start
    print(
        f"{len(names)} folders, {right} right, {refused} refused, {failed} failed, {seconds:.0f} s"
    )
    return 1 if failed or not right else 0


if __name__ == "__main__":
    sys.exit(main())
