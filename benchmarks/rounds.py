"""Helpers for benchmarks that compare commands with `cp`: arguments, a folder, rounds and their medians."""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

Ways = dict[str, tuple[list[str], Path]]
"""By name: a command, and the file or folder that it makes."""


def parser_of(text: str) -> argparse.ArgumentParser:
    """Return a parser of COMMAND FOLDER [GB] [ROUNDS], whose help is the docstring of a benchmark."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command")
    parser.add_argument("folder", type=Path)
    parser.add_argument("gb", type=float, nargs="?", default=2.0)
    parser.add_argument("rounds", type=int, nargs="?", default=5)
    return parser


def new_folder(folder: Path) -> Path:
    """Replace a folder by one that has only the program `measure`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    source = Path(__file__).with_name("measure.c")
    subprocess.run(["cc", "-O2", "-o", folder / "measure", source], check=True)
    return folder


def drop_pages(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def timed(command: list[str], out: Path, cold: Path | None) -> tuple[float, float, int]:
    """Return wall seconds, processor seconds, and peak memory in MiB, as measured by measure.c."""
    result = out.with_name("measured")
    if cold:
        os.sync()
        drop_pages(cold)
    start = time.monotonic()
    process = subprocess.Popen([result.with_name("measure"), result, *command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"{' '.join(command)}: failed")
    if cold and command[0] == "cp":
        os.sync()
    wall = time.monotonic() - start
    shutil.rmtree(out, ignore_errors=True) if out.is_dir() else out.unlink(missing_ok=True)
    return wall, usage.ru_utime + usage.ru_stime, int(result.read_text().split()[1]) // 1024


def print_rounds(ways: Ways, rounds: int, cold: Path | None = None, start: str = "") -> None:
    """Run the commands in turn, and print a row for each: medians, and ratios to `cp` of the same round.

    Args:
        ways: the commands to run, one of them named "cp". rounds: the number of rounds. cold: a file to drop from the
        page cache before each run. start: text at the beginning of each row, such as other cells.
    """
    found: dict[str, list] = {what: [] for what in ways}
    for _ in range(rounds):
        for what, (command, made) in ways.items():
            found[what].append(timed(command, made, cold))
    for what, runs in found.items():
        ratio = statistics.median(run[0] / base[0] for run, base in zip(runs, found["cp"], strict=True))
        wall, cpu, peak = (statistics.median(run[i] for run in runs) for i in range(3))
        print(f"| {start}{what} | {wall:.2f} | {ratio:.2f} | {cpu:.2f} | {peak:.0f} |", flush=True)


HEAD = "| | s | x cp | processor s | peak, MiB |\n|---|---|---|---|---|"
"""Of the table of print_rounds."""
