"""Run the complete fault machine, and write the results to BUILD_DIR/tests/faults/page.md.

usage: campaign.py BUILD_DIR [--work DIR] [--only NAME] [--machine TEXT]

Takes about half an hour on 2 cores. As root it mounts small disks; else those rows are skipped, and
the page says so. --work: where models are saved, best in memory (default: /dev/shm if it is there).
--only runs one experiment and renews its row; the date above the table stays that of the whole campaign.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

# Name, description, arguments of fault_machine. A control leaves out a step of the protocol.
EXPERIMENTS = (
    ("calls", "each call that touches a file fails (EIO, ENOSPC, EDQUOT; once or from then on), is "
     "interrupted, moves fewer bytes, or is where the process is killed; first save and replacement; "
     "all layouts, links and inline models too, casts, recorded inputs, models without a checkpoint, tensors in memory; verified or not, "
     "without syncs", ["calls"]),
    ("sets", "the same for several models over one store: a first set, one that replaces a set, one of its "
     "models, another set that shares a model; each model of the folder is complete, and the next save "
     "finishes what was begun", ["sets"]),
    ("teams", "two processes save together, and the leader or the other is killed at each call, or the call "
     "fails (EIO); first save and replacement; layouts, casts, verified or not, without syncs", ["teams"]),
    ("kills", "`save-external` gets SIGKILL at a random moment, again and again in one folder",
     ["kills", "--count", "8000"]),
    ("resumes", "a save is killed at a random call, what it left is damaged in a third of the cases, "
     "the same save runs again: the files are those of an undisturbed one, byte for byte",
     ["resumes", "--count", "1000"]),
    ("power, ext4", "the file system stops without writing its log, at each call and after the end; "
     "it is mounted again", ["power-cuts", "--file-system", "ext4"]),
    ("power, ext4 data=writeback,noauto_da_alloc", "the same",
     ["power-cuts", "--file-system", "ext4-writeback"]),
    ("power, xfs", "the same", ["power-cuts", "--file-system", "xfs"]),
    ("disks", "a disk (tmpfs) with room for the old model and 0, 1, 2 ... pages, with and without a "
     "file system that tells how much is free; few inodes; limits on file size and descriptors",
     ["disks"]),
    ("allocations", "each `operator new` fails, once or from then on; the same forms", ["allocations"]),
    ("paths", "names and files that lead elsewhere (`../`, absolute, links, FIFOs, devices, twins ...) at every "
     "place where a name is read: locations, shards, parts, records, manifests, tensors, outputs; after each case "
     "the folders beside the output are as before, and inotify saw nobody there", ["paths"]),
    ("flips", "one bit of a saved model changes; `verify_model` finds it", ["flips", "--count", "10000"]),
)
CONTROLS = (
    ("folders are not cleared up", ["calls", "--every", "10", "--control", "no-cleanup"]),
    ("the model is renamed before its data", ["calls", "--every", "10", "--control", "model-first"]),
    ("a write claims success and does nothing", ["calls", "--control", "lie"]),
    ("a resumed save believes its record", ["resumes", "--count", "100", "--control", "no-check"]),
    ("each case writes into the folder outside", ["paths", "--every", "10", "--control", "trespass"]),
    ("no bit is flipped, and none is found", ["flips", "--count", "100", "--control", "lie"]),
    ("fsync does nothing, ext4", ["power-cuts", "--control", "no-sync", "--every", "5"]),
    ("fsync does nothing, ext4 data=writeback,noauto_da_alloc",
     ["power-cuts", "--file-system", "ext4-writeback", "--control", "no-sync", "--every", "5"]),
    ("fsync does nothing, xfs",
     ["power-cuts", "--file-system", "xfs", "--control", "no-sync", "--every", "5"]),
)


def run(build: Path, work: Path, arguments: list) -> dict:
    command = [build / "tests/faults/fault_machine", *arguments, "--commands", build / "tools", "--folder", work]
    process = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if process.returncode not in (0, 1, 77):
        sys.exit(f"{' '.join(arguments)}: ends with {process.returncode}: {process.stderr}")
    answer = json.loads(process.stdout)
    if process.returncode == 1:
        print(process.stdout)
    return answer


def row(name: str, what: str, answer: dict) -> str:
    if "skipped" in answer:
        return f"| {name} | {what} | | skipped: {answer['skipped']} |"
    seen = ", ".join(f"{count:,} {text}" for text, count in answer["counts"].items())
    return f"| {name} | {what} | {answer['runs']:,} | **{answer['bad']} wrong**; {seen or 'all found'} |"


def control_row(name: str, answer: dict) -> str:
    if "skipped" in answer:
        return f"| {name} | | skipped: {answer['skipped']} |"
    return f"| {name} | {answer['runs']:,} | {answer['bad']:,} |"


def machine() -> str:
    kind = "root" if os.geteuid() == 0 else "no root"
    return f"{os.cpu_count()} cores, Linux {platform.release().split('-')[0]}, {kind}"


def ledger(rows: list, control_rows: list, where: str) -> str:
    today = datetime.date.today().isoformat()
    return "\n".join((
        f"Run on {today} ({where}).", "",
        "| experiment | what happens | times | seen |", "|---|---|---|---|", *rows, "",
        "Controls: a step is taken out, and the experiment must find something wrong.", "",
        "| taken out | times | found wrong |", "|---|---|---|", *control_rows, ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    memory = Path("/dev/shm")
    parser.add_argument("--work", type=Path, default=(memory if memory.is_dir() else Path("/tmp")) / "campaign")
    parser.add_argument("--only", choices=[name for name, _, _ in EXPERIMENTS])
    parser.add_argument("--machine", default=machine())
    arguments = parser.parse_args()
    build, work = arguments.build.resolve(), arguments.work
    page = build / "tests/faults/page.md"
    if arguments.only:
        [[name, what, words]] = [experiment for experiment in EXPERIMENTS if experiment[0] == arguments.only]
        renewed = row(name, what, run(build, work, words))
        lines = page.read_text().splitlines() if page.exists() else []
        page.write_text("\n".join(renewed if line.startswith(f"| {name} |") else line for line in lines) + "\n")
        print(renewed)
        return
    rows = []
    for name, what, words in EXPERIMENTS:
        rows.append(row(name, what, run(build, work, words)))
        print(rows[-1], flush=True)
    control_rows = []
    for name, words in CONTROLS:
        control_rows.append(control_row(name, run(build, work, words)))
        print(control_rows[-1], flush=True)
    page.write_text(ledger(rows, control_rows, arguments.machine))


if __name__ == "__main__":
    main()
