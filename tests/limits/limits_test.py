"""Runs the commands under decreasing limits on address space and threads.

Each run must end in one of these ways, and never by a signal:
  0    what was saved is what an undisturbed save makes, byte for byte; what is left of the old model, if
       anything, goes with the next save
  1    stderr names memory; the output folder is as it was before
  127  the loader of the system finds no room for the libraries (memory); nothing has begun
Without threads nothing but 0 will do, unless one is lost in the moment in which OpenMP takes it: then libgomp
ends the process with 1, the old model is complete, and the next save leaves nothing behind. Where all later allocations fail there is no memory to clear up with:
then the model that is there must be complete, and the next save leave nothing behind.

usage: limits_test.py --bin-dir DIR --work-dir DIR --scarcity LIBRARY --fixtures DIR
                      [--steps N] [--tensors N] [--seed N] [--page FILE]

--steps: limits of memory for each job. --page: writes the results to this file.
As another user (root only) a limit on processes is tried, too.
"""

import argparse
import collections
import datetime
import hashlib
import os
import random
import resource
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy
import onnx
import torch
from onnx import TensorProto, helper

KIB = 1 << 10
LIBGOMP = "ended by libgomp, nothing changed"
NOBODY = 61234  # a user without other processes, so that the limit counts only those of this test
TIMEOUT = 300


def make_graph(path: Path, shapes: dict, kind: int = TensorProto.FLOAT) -> None:
    """Write a graph in which all weights are inputs, which a save turns into initializers."""
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items()]
    nodes = [helper.make_node("Identity", [name], [f"{name}.used"]) for name in shapes]
    outputs = [helper.make_tensor_value_info(f"{name}.used", kind, None) for name in shapes]
    onnx.save(helper.make_model(helper.make_graph(nodes, "limits", inputs, outputs)), str(path))


def make_checkpoint(path: Path, shapes: dict, compressed: bool) -> None:
    generator = torch.Generator().manual_seed(len(shapes))
    torch.save({name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}, str(path))
    if compressed:
        with zipfile.ZipFile(path) as archive:
            records = [(info.filename, archive.read(info)) for info in archive.infolist()]
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in records:
                archive.writestr(name, data)


def bytes_of(folder: Path) -> dict:
    """Return the contents of an output folder without times."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }


def state_of(folder: Path) -> dict:
    """Return the files of a folder and their modification times, to detect any change."""
    stats = [(path, path.lstat()) for path in sorted(folder.rglob("*"))]
    return {str(path): (stat.st_ino, stat.st_size, stat.st_mtime_ns) for path, stat in stats if not path.is_dir()} | {
        str(path): "folder" for path, _ in stats if path.is_dir()
    }


class Job:
    """A command line. A save replaces the model in `out` that `before` made there, if any."""

    def __init__(self, name: str, command: list, before: list = None, saves: bool = True, is_long: bool = False):
        self.name, self.command, self.before, self.saves, self.is_long = name, command, before, saves, is_long


class Campaign:
    def __init__(self, arguments):
        self.arguments = arguments
        self.bin = arguments.bin_dir
        self.work = arguments.work_dir
        self.out = self.work / "out"
        self.random = random.Random(arguments.seed)
        self.wrong = []
        self.counts = collections.defaultdict(collections.Counter)
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)

    def jobs(self) -> list:
        tiny = self.arguments.fixtures / "tiny"
        many = {f"layers.{i}.weight": [4, 4] for i in range(self.arguments.tensors)}
        more = {f"deeper.layers.{i}.weight": [2] for i in range(self.arguments.tensors * 20)}
        few = dict(list(many.items())[: self.arguments.tensors // 10])
        large = {f"block.{i}.weight": [1024, 1024] for i in range(4)}
        for name, shapes, compressed in (
            ("many", many, False), ("packed", many, True), ("few", few, False), ("more", more, False),
            ("large", large, False),
        ):
            make_graph(self.work / f"{name}.onnx", shapes, TensorProto.FLOAT16 if compressed else TensorProto.FLOAT)
            make_checkpoint(self.work / f"{name}.pt", shapes, compressed)
        of_tiny = [tiny / "graph.onnx", tiny / "checkpoint.pt"]
        names = ("many", "packed", "few", "more", "large")
        of = {name: [self.work / f"{name}.onnx", self.work / f"{name}.pt"] for name in names}
        save, verify, inspect = ([self.bin / f"{name}-external", "-q"] for name in ("save", "verify", "inspect"))
        to = ["-o", self.out]
        over = [*to, "--overwrite"]
        old = [*save, *of_tiny, *to]
        shards = ["--layout", "shards", "--max-shard-size", "10KB"]
        self.run([*save, *of["many"], "-o", self.work / "saved", "--layout", "single"])
        self.run([*save, *of["few"], "-o", self.work / "full", "--layout", "inline"])
        saved, full = self.work / "saved/model.onnx", self.work / "full/model.onnx"
        return [
            Job("first save", [*save, *of_tiny, *to]),
            Job("replacement", [*save, *of_tiny, *over, "--threads", "4"], old),
            Job("recorded inputs", [*save, *of_tiny, *over, "--test-data", tiny / "inputs.pt"], old),
            Job("a learned map", [*save, full, of["few"][1], *over, "--learn-map", of["few"][1]], old),
            Job("many tensors, one file", [*save, *of["many"], *over, "--layout", "single"], old),
            Job("twenty times as many", [*save, *of["more"], *over, "--layout", "single"], old, is_long=True),
            Job("a file each", [*save, *of["few"], *over, "--threads", "1", "--no-fsync"], old),
            Job("compressed, shards, converted",
                [*save, *of["packed"], *over, *shards, "--dtype", "slot", "--threads", "4"], old),
            Job("large tensors, inline", [*save, *of["large"], *over, "--layout", "inline", "--threads", "2"], old),
            Job("large tensors, SHA-1",
                [*save, *of["large"], *over, "--checksum", "sha1", "--threads", "4"], old),
            Job("links, 8 threads",
                [*save, of["many"][0], self.out / "many.pt", *over, "--layout", "link", "--threads", "8"],
                ["sh", "-c", f"mkdir {self.out} && cp {of['many'][1]} {self.out} && {' '.join(map(str, old))}"]),
            Job("verification", [*verify, saved], saves=False),
            Job("verification against a checkpoint", [*verify, saved, "--against", of["packed"][1]], saves=False),
            Job("digests", [*inspect, of["packed"][1], "--sha256"], saves=False),
            Job("a difference", [*inspect, of["many"][1], "--diff", of["packed"][1]], saves=False),
        ]

    def run(self, command: list, before_exec=None, environment=None):
        return subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, preexec_fn=before_exec, timeout=TIMEOUT,
            env={**os.environ, "LC_ALL": "C", **(environment or {})}, stdin=subprocess.DEVNULL,
        )

    def restore(self, job: Job) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        if job.before:
            self.run(job.before).check_returncode()

    def ending(self, result, may_fail: bool, lost_in_window: bool = False) -> str:
        """Return how the command ended, or "" for an ending that is not allowed."""
        if result.returncode == 0:
            return "done"
        if not may_fail and not lost_in_window or result.returncode < 0:
            return ""
        loading = "error while loading shared libraries", "cannot allocate TLS data structures"
        if result.returncode == 127 and any(text in result.stderr for text in loading):
            return "the loader has no room"
        if result.returncode == 1 and "memory" in result.stderr.lower() and "libgomp" not in result.stderr:
            return "no room to begin" if "before the start" in result.stderr else "refused, nothing changed"
        if result.returncode == 1 and "libgomp" in result.stderr:
            return LIBGOMP
        return ""

    def trial(self, experiment: str, job: Job, where: str, may_fail: bool, nothing_left: bool = False,
              lost_in_window: bool = False, **how) -> bool:
        """Run the command once in the state that `restore` made; return whether it succeeded.

        nothing_left: of memory, to clear up with. lost_in_window: libgomp may end the process, and nothing else.
        """
        before = state_of(self.out)
        try:
            result = self.run(job.command, **how)
        except subprocess.TimeoutExpired:
            self.wrong.append(f"{job.name}, {where}: does not end")
            return False
        ending = self.ending(result, may_fail, lost_in_window)
        nothing_left = nothing_left or ending == LIBGOMP
        done = result.returncode == 0
        fault = "" if ending else f"ends with {result.returncode}: {result.stderr.strip()[:200]}"
        as_before = state_of(self.out) == before
        as_it_should = bytes_of(self.out) == self.right if done and job.saves else as_before
        if not as_it_should and (done or nothing_left):
            left = "ended by libgomp, the rest left for the next save" if ending == LIBGOMP else "left for the next save"
            ending = "done, old data left for the next save" if done else left
            fault = fault or self.heal(job)
        elif not as_it_should:
            fault = fault or f"ends with {result.returncode}, with {sorted(bytes_of(self.out))[:4]}: {result.stderr[:80]}"
        if fault:
            self.wrong.append(f"{job.name}, {where}: {fault}")
        self.counts[experiment][ending if not fault else "wrong"] += 1
        if not as_before:
            self.restore(job)
        return done

    def undisturbed(self, job: Job) -> None:
        self.restore(job)
        result = self.run(job.command)
        if result.returncode != 0:
            sys.exit(f"{job.name}: fails without a limit: {result.stderr}")
        self.right = bytes_of(self.out) if self.out.is_dir() else {}
        if job.saves:
            self.restore(job)

    def memory(self, job: Job) -> None:
        def trial(kib: int) -> bool:
            def limit():
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                resource.setrlimit(resource.RLIMIT_AS, (kib * KIB, kib * KIB))

            return self.trial("memory", job, f"{kib} KiB", True, before_exec=limit)

        least = 16 * KIB
        most = 2 * least
        while not trial(most):
            most *= 2
        # From a quarter above the smallest sufficient limit down to a limit that the loader exceeds.
        low, high = least, most
        while high - low > KIB:
            middle = (low + high) // 2
            low, high = (low, middle) if trial(middle) else (middle, high)
        most = high * 5 // 4
        for number in range(self.arguments.steps):
            share = (number + self.random.random()) / self.arguments.steps
            trial(int(most - (most - least) * share**1.5))  # prefers limits under which the command gets far

    def scarce(self, **variables) -> dict:
        return {"LD_PRELOAD": self.arguments.scarcity, **variables}

    def threads(self, job: Job) -> None:
        rules = [f"{rule}:{number}" for rule in ("most", "only") for number in range(8)]
        if self.arguments.steps < 20:
            rules = ["most:0", self.random.choice(rules)]
        for rule in rules:  # a single failure may come from libgomp
            self.trial("threads", job, f"threads {rule}", False, lost_in_window=rule.startswith("only"),
                       environment=self.scarce(SCARCE_THREADS=rule))
        self.trial("lost in the window", job, "libgomp's first thread", False, lost_in_window=True,
                   environment=self.scarce(SCARCE_REGION="yes"))

    def allocations(self, job: Job) -> None:
        count = self.work / "count"
        self.run(job.command, environment=self.scarce(SCARCE_COUNT=count)).check_returncode()
        self.restore(job)
        for _ in range(self.arguments.steps):
            first = self.random.randrange(int(count.read_text()))
            self.trial("one allocation", job, f"allocation {first}", True,
                       environment=self.scarce(SCARCE_MEMORY=f"only:{first}"))
            self.trial("all allocations", job, f"all allocations from {first}", True, nothing_left=True,
                       environment=self.scarce(SCARCE_MEMORY=f"from:{first}"))

    def heal(self, job: Job) -> str:
        """Check, after a process ran out of memory, that the present model is complete, and that the next save leaves
        nothing behind.
        """
        model = self.out / "model.onnx"
        if job.before and self.run([self.bin / "verify-external", "-q", model]).returncode != 0:
            return "the model that is there is not complete"
        again = self.run([*job.command, "--overwrite"] if "--overwrite" not in job.command else job.command)
        if again.returncode != 0 or len(bytes_of(self.out)) != len(self.right):
            return f"the next save leaves {sorted(bytes_of(self.out))[:6]}: {again.stderr[:200]}"
        return ""

    def processes(self, job: Job) -> None:
        for most in range(1, 9 if self.arguments.steps >= 20 else 3):
            def limit():
                os.setgroups([])
                os.setgid(NOBODY)
                resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
                os.setuid(NOBODY)

            for path in (self.out, *self.out.rglob("*")):
                if path.exists():
                    os.chown(path, NOBODY, NOBODY)
            self.trial("processes", job, f"{most} processes", False, before_exec=limit)

    def can_be_nobody(self) -> bool:
        """Return whether the test may run as another user: it is root, and that user can reach the commands and the
        work folder.
        """
        def become():
            os.setgid(NOBODY)
            os.setuid(NOBODY)

        if os.geteuid() != 0:
            return False
        os.chown(self.work, NOBODY, NOBODY)
        test = f"test -w {self.work} -a -x {self.bin}/save-external -a -r {self.arguments.fixtures}/tiny/graph.onnx"
        return self.run(["sh", "-c", test], before_exec=become).returncode == 0

    def all(self) -> None:
        jobs = self.jobs()
        other_user = self.can_be_nobody()
        for job in jobs:
            self.undisturbed(job)
            self.memory(job)
            self.threads(job)
            if not job.is_long:
                self.allocations(job)
            if other_user and job.saves:
                self.processes(job)
            print(f"{job.name}: {dict(self.counts['memory'])}", flush=True)
        self.notes = {"jobs": len(jobs), "other_user": other_user}


WHAT = {
    "memory": "address space (`RLIMIT_AS`) from a quarter more than enough down to too little for the loader",
    "threads": "`pthread_create` fails (EAGAIN): no thread at all, at most one, ... at most seven at a time, or the "
    "first, second ... eighth that is asked for, alone",
    "lost in the window": "the first thread that libgomp itself asks for fails, although the team could be had before",
    "one allocation": "`operator new` or `malloc` fails once, in the program or in its libraries, at a random place",
    "all allocations": "the same, and all later ones: nothing is left to clear up with",
    "processes": "a limit of 1 to 8 processes (`RLIMIT_NPROC`), as a user who has no others",
}


def rows(campaign: Campaign) -> str:
    lines = [f"Run on {datetime.date.today().isoformat()}, {campaign.notes['jobs']} command lines.", "",
             "| limit | what happens | times | seen |", "|---|---|---|---|"]
    for experiment, what in WHAT.items():
        counts = campaign.counts[experiment]
        seen = ", ".join(f"{count:,} {ending}" for ending, count in counts.most_common() if ending != "wrong")
        times = f"{sum(counts.values()):,}" if counts else ""
        lines.append(f"| {experiment} | {what} | {times} | " +
                     (f"**{counts['wrong']} wrong**; {seen} |" if counts else "skipped: needs root |"))
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("--bin-dir", "--work-dir", "--scarcity", "--fixtures"):
        parser.add_argument(option, type=lambda text: Path(text).resolve(), required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--tensors", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--page", type=Path)
    campaign = Campaign(parser.parse_args())
    campaign.all()
    print(rows(campaign))
    if campaign.arguments.page:
        campaign.arguments.page.write_text(rows(campaign))
    shutil.rmtree(campaign.work)
    print("\n".join(campaign.wrong[:50]))
    sys.exit(1 if campaign.wrong else 0)


if __name__ == "__main__":
    main()
