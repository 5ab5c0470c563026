#!/usr/bin/python3
"""Tests that several processes write one plan with the result of a single process, and publish nothing if one fails or
dies.

usage: mpi_test.py BIN_DIR FIXTURES_DIR WORK_DIR
"""
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

BIN, FIXTURES, WORK = (Path(argument).resolve() for argument in sys.argv[1:4])
INPUTS = [str(FIXTURES / "tiny/graph.onnx"), str(FIXTURES / "tiny/checkpoint.pt")]
# Open MPI does not free all of its memory.
os.environ["ASAN_OPTIONS"] = "detect_leaks=0:" + os.environ.get("ASAN_OPTIONS", "")
MPIRUN = ["mpirun", "--oversubscribe"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
LAYOUTS = {
    "per-tensor": [],
    "single": ["--layout", "single"],
    "shards": ["--layout", "shards", "--max-shard-size", "1000"],
    "single, sha1": ["--layout", "single", "--checksum", "sha1"],
    "shards, sha1": ["--layout", "shards", "--max-shard-size", "1000", "--checksum", "sha1"],
    "per-tensor, sha1": ["--checksum", "sha1"],
    "inline": ["--layout", "inline"],
    "test data": ["--test-data", str(FIXTURES / "tiny/inputs.pt")],
}


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


def save(out, options=(), processes=1, first=(), others=()):
    """Run save-external in one or several processes. Other commands may precede the command of the first process and of
    the others.
    """
    def behind(prefix, program):
        return [*prefix, str(program), *INPUTS, "-o", str(out), *options]

    if processes == 1:
        return run(behind((), BIN / "save-external"))
    mpi = BIN / "save-external-mpi"
    return run([*MPIRUN, "-np", "1", *behind(first, mpi), ":", "-np", str(processes - 1), *behind(others, mpi)])


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def check(truth, what, process=None):
    if not truth:
        raise SystemExit(f"mpi_test: {what}\n{process.stdout + process.stderr if process else ''}")


def writes_the_same():
    for name, options in LAYOUTS.items():
        alone = WORK / f"{name} alone"
        check(save(alone, options).returncode == 0, f"{name}: one process failed")
        for processes in (2, 3, 5):
            out = WORK / f"{name} {processes}"
            process = save(out, options, processes)
            check(process.returncode == 0, f"{name}: {processes} processes failed", process)
            check(tree(out) == tree(alone), f"{name}: {processes} processes wrote something else")
            check(process.stdout.count("verified, every byte") == 1, f"{name}: who answered?", process)


def publishes_nothing_when_one_fails():
    """Check that only the old model remains if a file-size limit makes one process fail."""
    limit = ("prlimit", "--fsize=20")
    for who in ({"others": limit}, {"first": limit}):
        out = WORK / f"failing {next(iter(who))}"
        process = save(out, processes=3, **who)
        check(process.returncode != 0, "a process that could not write did not fail the save", process)
        check(not out.exists(), f"{out} was left", process)
        check("process" in process.stderr or "File too large" in process.stderr, "no reason is given", process)
        check(save(out).returncode == 0, "a save into the same folder failed")
        old = tree(out)
        process = save(out, ["--overwrite"], 3, **who)
        check(process.returncode != 0 and tree(out) == old, "the old model is not as it was", process)


def says_when_the_inputs_differ():
    """Check that different inputs are an error, because every process reads the inputs itself."""
    out = WORK / "differing"
    other = WORK / "other.pt"
    shutil.copy(INPUTS[1], other)
    mpi = str(BIN / "save-external-mpi")
    process = run([*MPIRUN, "-np", "1", mpi, *INPUTS, "-o", str(out), ":",
                   "-np", "1", mpi, INPUTS[0], str(other), "-o", str(out)])
    check(process.returncode == 1 and not out.exists(), "two checkpoints made one model", process)
    check("process 1 of the team: sees other files" in process.stderr, "no reason is given", process)
    process = save(out, ["--prefix", "nothing"], 2)
    check(process.returncode == 1 and not out.exists(), "a wrong mapping made a model", process)
    check("save-external: error:" in process.stderr, "no reason is given", process)


def processes_of(out, variable):
    """Yield the processes of a job that saves into `out` and has this variable in its environment."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_it = (process / "comm").read_text() == "save-external-m\n"
            if is_it and os.fsencode(out) in (process / "cmdline").read_bytes().split(b"\0") \
                    and b"\0" + variable in b"\0" + (process / "environ").read_bytes():
                yield int(process.name)
        except OSError:
            pass  # the process has ended


def kill(numbers):
    """Kill a process; return whether one was found."""
    killed = False
    for number in numbers:
        try:
            os.kill(number, signal.SIGKILL)
            killed = True
        except ProcessLookupError:
            pass
    return killed


def kill_second_process(mpirun, out, seconds):
    """Kill process 1 of the job with SIGKILL, `seconds` after it was first seen."""
    while mpirun.poll() is None:
        found = list(processes_of(out, b"OMPI_COMM_WORLD_RANK=1\0"))
        if found:
            time.sleep(seconds)
            kill(found)
            return


def end(mpirun, out):
    """End mpirun, which waits forever if it missed the death of a process during the start."""
    try:
        mpirun.wait(timeout=10)
    except subprocess.TimeoutExpired:
        mpirun.kill()
        while kill(processes_of(out, b"OMPI_COMM_WORLD_RANK=")):
            time.sleep(0.1)
        mpirun.wait()


def survives_a_death():
    """Check that after a kill at any time, the old or the new model is complete, and the next save succeeds."""
    out = WORK / "killed"
    check(save(out).returncode == 0, "a first save failed")
    verify = [str(BIN / "verify-external"), str(out / "model.onnx")]
    command = [*MPIRUN, "-np", "3", str(BIN / "save-external-mpi"), *INPUTS, "-o", str(out), "--overwrite"]
    for milliseconds in range(0, 200, 20):
        mpirun = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        kill_second_process(mpirun, out, milliseconds / 1000)
        end(mpirun, out)
        process = run(verify)
        check(process.returncode == 0, f"a model that is not complete after {milliseconds} ms", process)
    process = save(out, ["--overwrite"])
    check(process.returncode == 0 and run(verify).returncode == 0, "the save after it failed", process)
    check(sorted(path.name for path in out.iterdir() if path.name.startswith(".")) == [], "leftovers stay")


def says_when_it_was_built_without():
    process = run([*MPIRUN, "-np", "2", str(BIN / "save-external"), *INPUTS, "-o", str(WORK / "without")])
    check(process.returncode == 1 and "built without MPI" in process.stderr, "no word about MPI", process)


def main():
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    writes_the_same()
    publishes_nothing_when_one_fails()
    says_when_the_inputs_differ()
    survives_a_death()
    says_when_it_was_built_without()


main()
