"""Tests that saves are complete and right, or refused, for all modules, export modes and damaged checkpoints.

Every case is a save with default options (and what a refusal asks to be confirmed, where that is true).
torch's load_state_dict(strict=True) says whether it may succeed, ONNX Runtime whether it computes what
torch computes.  No save may be wrong, and none that names or bytes can decide may be refused.

usage: strict_test.py --bin-dir DIR --work-dir DIR --exporter legacy|modern [--cases N] [--seed N] [-v]
"""

import argparse
import collections
import gc
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import torch

import cases
import exporters
import modules
import random_modules
import sabotage
from rounds import Round, Settings, plan

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "oracle"))

SETTINGS = None


def import_all(arguments) -> None:
    """Import what an export takes, once: the workers are forks of this process.

    Their collectors of garbage pass over that, which takes a third of an export's time.
    """
    torch.set_num_threads(1)
    if arguments.exporter == "modern":
        import onnxruntime  # noqa: F401  which judges

        spec = next(each for each in modules.SPECS.values() if each.modern)
        exporters.ModernExporter(spec, spec.make().eval(), spec.inputs(), 17).full(exporters.MODERN_MODES[0])
    gc.collect()
    gc.freeze()


def start_worker(arguments):
    global SETTINGS
    torch.set_num_threads(1)
    SETTINGS = Settings(arguments)


def work(job):
    spec_name, number = job
    spec = modules.SPECS.get(spec_name) or random_modules.spec(int(spec_name.rsplit("_", 1)[1]))
    try:
        return job, Round(spec, number, SETTINGS).run(), ""
    except Exception as error:  # an exporter's, of any class: reported, and counted by the caller
        return job, [], f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def results(arguments):
    """Yield the finished rounds in the order of the plan, several of which run at once."""
    jobs = plan(arguments)
    import_all(arguments)
    with multiprocessing.Pool(arguments.jobs, start_worker, (arguments,)) as pool:
        ahead = collections.deque()
        while True:
            while len(ahead) < 3 * arguments.jobs:
                spec, number = next(jobs)
                ahead.append(pool.apply_async(work, ((spec.name, number),)))
            yield ahead.popleft().get()


class Table:
    """The counts of outcomes by mode and by checkpoint, and the failures."""

    def __init__(self):
        self.by_mode, self.by_damage = {}, {}
        self.failures, self.unmade, self.total = [], [], 0

    def add(self, result) -> None:
        label, mode, what, verdict, _ = result
        self.total += 1
        for table, key in ((self.by_mode, mode), (self.by_damage, what)):
            table.setdefault(key, collections.Counter())[verdict] += 1
        if verdict in cases.FAILURES:
            self.failures.append(result)

    def print(self) -> None:
        for title, table in (("mode", self.by_mode), ("checkpoint", self.by_damage)):
            used = [c for c in cases.CLASSES if any(row[c] for row in table.values())]
            print(f"\n{title:34}" + "".join(f"{c:>22}" for c in used))
            for key in sorted(table):
                print(f"{key:34}" + "".join(f"{table[key][c]:22}" for c in used))
            print(f"{'all':34}" + "".join(f"{sum(r[c] for r in table.values()):22}" for c in used))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bin-dir", required=True, type=Path, help="folder of the commands")
    parser.add_argument("--work-dir", required=True, type=Path, help="what its strict_* hold is replaced")
    parser.add_argument("--node-modules", type=Path, help="folder that holds onnxruntime-node")
    parser.add_argument("--exporter", choices=("legacy", "modern"), required=True)
    parser.add_argument("--cases", type=int, default=1000, help="at least this many (default 1000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 8))
    parser.add_argument("--only", default="", help="modules whose name contains this")
    parser.add_argument("--mode", default="", help="export modes whose name contains this")
    parser.add_argument("--damage", default="", help="checkpoints whose name contains this, and fit")
    parser.add_argument("--sabotage", default="", help="options for every save, to see the test fail")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every case")
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    if arguments.exporter == "legacy":
        import runtime

        arguments.node_modules = runtime.install(arguments)
    help_text = subprocess.check_output([arguments.bin_dir / "save-external", "--help"], text=True)
    arguments.known_options = help_text
    shutil.rmtree(Settings(arguments).work_dir, ignore_errors=True)
    table, start = Table(), time.monotonic()
    for job, found, trouble in results(arguments):
        if trouble:
            table.unmade.append((job, trouble))
            print(f"note  {job[0]}.{job[1]}: {trouble}", flush=True)
        for result in found:
            table.add(result)
            if arguments.verbose or result[3] in cases.FAILURES:
                print("  ".join(result), flush=True)
        if table.total >= arguments.cases or len(table.unmade) > 50:
            break
    table.print()
    blind = [] if arguments.sabotage else sabotage.blind_judgements(arguments)
    for what in blind:
        print(f"FAIL  the judge does not see that {what}")
    print(
        f"\n{table.total} cases, {len(table.failures)} failed, {len(table.unmade)} rounds not made, "
        f"{time.monotonic() - start:.0f} s"
    )
    return 1 if table.failures or table.unmade or blind or not table.total else 0


if __name__ == "__main__":
    sys.exit(main())
