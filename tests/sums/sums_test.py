"""Measures the processor time and memory that the commands need for small hostile files.

usage: sums_test.py --bin-dir DIR [--cases N] [--seed N] [--max-size BYTES] [--seconds S] [--only FAMILY] [-v]
"""

import argparse
import collections
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import families_files
import families_models
import families_names

MIB = 1 << 20
FAMILIES = families_names.FAMILIES + families_files.FAMILIES + families_models.FAMILIES


def write(folder: Path, files: dict) -> int:
    """Write files. Each is given as bytes, or as (bytes, size) for a file with a hole after the bytes."""
    total = 0
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        head, size = data if isinstance(data, tuple) else (data, len(data))
        with open(path, "wb") as file:
            file.write(head)
            file.truncate(size)
        total += len(head)
    return total


class Run:
    """The resources that a command used."""

    def __init__(self, command, folder, timeout):
        self.timed_out = False
        with open(folder / "stderr", "wb") as errors, open(folder / "stdout", "wb") as out:
            process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
                                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (timeout, timeout)))
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        self.code = process.returncode
        self.seconds = usage.ru_utime + usage.ru_stime
        self.mib = usage.ru_maxrss / 1024
        self.wrote = sum(f.stat().st_blocks * 512 for f in folder.rglob("*") if f.is_file())
        self.error = (folder / "stderr").read_bytes()[:300].decode(errors="replace")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin-dir", type=Path, required=True)
    parser.add_argument("--work-dir", type=Path)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-size", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--mib", type=float, default=256)
    parser.add_argument("--only", default="")
    parser.add_argument("-v", action="store_true")
    options = parser.parse_args()
    families = [f for f in FAMILIES if options.only in f.__name__]
    worst = collections.defaultdict(lambda: [0.0, 0.0, 0])
    over = 0
    for case in range(options.cases):
        family = families[case % len(families)]
        draw = random.Random(f"{options.seed} {family.__name__} {case}")
        size = int(options.max_size * (1 if case < len(families) else draw.random() ** 2))
        with tempfile.TemporaryDirectory(dir=options.work_dir) as folder:
            files, command = family(draw, size)
            total = write(Path(folder), files)
            run = Run([str(options.bin_dir.resolve() / command[0]), *command[1:]], Path(folder), 60)
        tally = worst[family.__name__]
        tally[0], tally[1], tally[2] = max(tally[0], run.seconds), max(tally[1], run.mib), tally[2] + 1
        bad = run.seconds > options.seconds or run.mib > options.mib or run.code not in (0, 1)
        over += bad
        if bad or options.v:
            print(f"{'OVER ' if bad else ''}{family.__name__} case {case} size {total}: {run.seconds:.2f} s, {run.mib:.0f} MiB, "
                  f"exit {run.code} {run.error[:160]!r}", flush=True)
    for name, (seconds, mib, count) in sorted(worst.items()):
        print(f"{name:24} {count:5} cases, at most {seconds:.2f} s and {mib:.0f} MiB")
    print(f"{options.cases} cases, {over} over")
    return over != 0


if __name__ == "__main__":
    sys.exit(main())
