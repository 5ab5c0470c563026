"""Tests current architectures with eight layers: the graph with repeated layers must equal that of a full trace.

Each is made with more layers where its config counts two, and saved as a folder. That is exported twice, with
repeated layers and without; each graph of the one must be the other's, whatever their inner values are called, and
must have been right on ONNX Runtime. What is traced in full is listed with its reason.

usage: repeat_test.py --work-dir DIR [--only NAME,...] [--depth N] [--static] [--jobs N] [--at-least N]
                      [--page PAGE]
"""

import argparse
import multiprocessing
import os
import re
import shutil
import sys
import time
from functools import partial
from pathlib import Path

import torch
import transformers

import checkpoints
import onnx_external as oe
import onnx_external.transformers
import repeat_page
import values
from architectures import ARCHITECTURES, Architecture
from repeat_page import IN_FULL, REPEATED, WRONG, Verdict
from same_graph import differences

COUNTS = re.compile(r"^(num_|n_)?(\w+_)?layers?$|^n_layer$")
STAGES = re.compile(r"depths$")


def deepened(settings: dict, depth: int) -> dict:
    """Return settings with more than two layers, also in stages."""
    made = dict(settings)
    for name, value in settings.items():
        if isinstance(value, dict):
            made[name] = deepened(value, depth)
        elif COUNTS.search(name) and value == 2 and name != "num_feat_extract_layers":
            made[name] = depth
        elif STAGES.search(name):
            made[name] = [depth] * len(value)
        elif name == "attention_types":
            made[name] = [[["global", "local"], depth // 2]]
    return made


def folder_of(architecture: Architecture, folder: Path, depth: int) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kind = getattr(transformers, architecture.model)
    settings = deepened(architecture.settings(architecture.sizes, **architecture.more), depth)
    torch.manual_seed(1)
    module = kind(kind.config_class(**settings)).eval()
    values.fill(module, 1)
    return checkpoints.folder(module, folder / "saved")


def outcome(name: str, folder: Path, depth: int, dynamic: bool) -> Verdict:
    """Return the verdict on an architecture's folder."""
    saved = folder_of(ARCHITECTURES[name], folder, depth)
    files = oe.Layout(transpose_weights=False)
    options = {"dynamic": dynamic, "fsync": False, "threads": 1, "progress": False, "files": files}
    report = oe.transformers.export(saved, folder / "repeated", **options)
    repeated, whole = report.repeated, sorted(set(report.graphs) - set(report.repeated))
    reasons = "; ".join(note for note in report.notes if "traced in full" in note)
    if not repeated:
        return Verdict(
            name, IN_FULL, (), tuple(whole), reasons or "no list of layers that are alike"
        )
    full = oe.transformers.export(saved, folder / "full", repeat=False, check=False, **options)
    found = [f"{graph}: nothing has run it" for graph in repeated if not report.checked.get(graph)]
    for graph in repeated:
        paths = (Path(each.graphs[graph].model) for each in (report, full))
        found += [f"{graph}: {each[:2000]}" for each in differences(*paths)]
    if report.fixed != full.fixed:
        found.append(f"other dimensions are fixed: {report.fixed}")
    verdict, why = (WRONG, "; ".join(found)) if found else (REPEATED, reasons)
    return Verdict(name, verdict, tuple(repeated), tuple(whole), why)


def trial(name: str, work: Path, depth: int, dynamic: bool) -> tuple[Verdict, float]:
    """Return the outcome for an architecture, and the seconds of CPU that it took."""
    start = time.process_time()
    os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is fetched
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    try:
        found = outcome(name, work / name, depth, dynamic)
    except Exception as error:  # it is shown, and fails the test
        found = Verdict(name, WRONG, (), (), f"{type(error).__name__}: {str(error)[:500]}")
    finally:
        shutil.rmtree(work / name, ignore_errors=True)
    return found, time.process_time() - start


def import_all(folder: Path) -> None:
    """Export a model, so that all forked processes share the imports."""
    saved = folder_of(ARCHITECTURES["bert"], folder, 2)
    options = {"check": False, "fsync": False, "threads": 1, "progress": False}
    oe.transformers.export(saved, folder / "out", dynamic=False, **options)
    shutil.rmtree(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work-dir", required=True, type=Path)
    parser.add_argument(
        "--only", default="", help="architectures, separated by commas; all by default"
    )
    parser.add_argument("--depth", type=int, default=8, help="how many layers a model has")
    parser.add_argument(
        "--static", action="store_true", help="for the sizes of the example, which is faster"
    )
    parser.add_argument("--jobs", type=int, default=1, help="how many architectures at once")
    parser.add_argument("--at-least", type=int, default=0, help="how many must be repeated")
    parser.add_argument("--page", type=Path, help="gets the outcomes")
    given = parser.parse_args()
    names = given.only.split(",") if given.only else list(ARCHITECTURES)
    work = given.work_dir / "repeat"
    run = partial(trial, work=work, depth=given.depth, dynamic=not given.static)
    found: list[Verdict] = []
    import_all(work / "first")
    # A process for each, which leaves nothing behind.
    with multiprocessing.get_context("fork").Pool(given.jobs, maxtasksperchild=1) as pool:
        for verdict, seconds in pool.imap(run, names):
            found.append(verdict)
            print(f"{verdict.line()}  ({seconds:.0f} s of CPU)", flush=True)
            if given.page:
                repeat_page.write(given.page, [verdict], given.depth, given.static)
    counts = {kind: sum(each.kind == kind for each in found) for kind in (REPEATED, IN_FULL, WRONG)}
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return 1 if counts[WRONG] or counts[REPEATED] < given.at_least else 0


if __name__ == "__main__":
    sys.exit(main())
