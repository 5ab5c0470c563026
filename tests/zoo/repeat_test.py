"""Today's architectures, eight layers deep: the graph with repeated layers must be that of a full trace.

Each is made with DEPTH layers where its config counts two, and saved as a folder. That is exported twice, with
repeated layers and without; each graph of the one must be the other's, whatever their inner values are called, and
must have been right on ONNX Runtime. What is traced in full is listed with its reason.

usage: repeat_test.py --work-dir DIR [--only NAME,...] [--static] [--at-least N]
"""

import argparse
import os
import re
import shutil
import sys
import time
from pathlib import Path

import torch
import transformers

import checkpoints
import onnx_external as oe
import onnx_external.transformers
import values
from architectures import ARCHITECTURES, Architecture
from same_graph import differences

DEPTH = 8
COUNTS = re.compile(r"^(num_|n_)?(\w+_)?layers?$|^n_layer$")
STAGES = re.compile(r"depths$")


def deepened(settings: dict) -> dict:
    """Settings with DEPTH layers in the place of two, in stages as well."""
    made = dict(settings)
    for name, value in settings.items():
        if isinstance(value, dict):
            made[name] = deepened(value)
        elif COUNTS.search(name) and value == 2 and name != "num_feat_extract_layers":
            made[name] = DEPTH
        elif STAGES.search(name):
            made[name] = [DEPTH] * len(value)
        elif name == "attention_types":
            made[name] = [[["global", "local"], DEPTH // 2]]
    return made


def folder_of(architecture: Architecture, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kind = getattr(transformers, architecture.model)
    settings = deepened(architecture.settings(architecture.sizes, **architecture.more))
    torch.manual_seed(1)
    module = kind(kind.config_class(**settings)).eval()
    values.fill(module, 1)
    return checkpoints.folder(module, folder / "saved")


def outcome(architecture: Architecture, folder: Path, dynamic: bool) -> tuple[str, str]:
    """What becomes of a folder: "repeated", "in full" or "WRONG", and why."""
    saved = folder_of(architecture, folder)
    files = oe.Layout(transpose_weights=False)
    options = {"dynamic": dynamic, "fsync": False, "threads": 1, "progress": False, "files": files}
    report = oe.transformers.export(saved, folder / "repeated", **options)
    whole = set(report.graphs) - set(report.repeated)
    if not report.repeated:
        return "in full", "; ".join(
            note for note in report.notes if "in full" in note
        ) or "no such layers"
    full = oe.transformers.export(saved, folder / "full", repeat=False, **options)
    for name in report.repeated:
        if report.checked[name] != full.checked[name]:
            return (
                "WRONG",
                f"{name} was checked on {report.checked[name]} sets, not {full.checked[name]}",
            )
        paths = (Path(each.graphs[name].model) for each in (report, full))
        found = differences(*paths)
        if found:
            return "WRONG", f"{name}: {'; '.join(found)[:2000]}"
    if report.fixed != full.fixed:
        return "WRONG", f"other dimensions are fixed: {report.fixed}"
    return "repeated", f"but for {', '.join(sorted(whole))}" if whole else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work-dir", required=True, type=Path)
    parser.add_argument(
        "--only", default="", help="architectures, separated by commas; all by default"
    )
    parser.add_argument(
        "--static", action="store_true", help="for the sizes of the example, which is faster"
    )
    parser.add_argument("--at-least", type=int, default=0, help="how many must be repeated")
    given = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is fetched
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    counts = {"repeated": 0, "in full": 0, "WRONG": 0}
    for name in given.only.split(",") if given.only else ARCHITECTURES:
        start, folder = time.process_time(), given.work_dir / "repeat" / name
        try:
            verdict, why = outcome(ARCHITECTURES[name], folder, not given.static)
        except Exception as error:  # it is shown, and fails the test
            verdict, why = "WRONG", f"{type(error).__name__}: {str(error)[:500]}"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        counts[verdict] += 1
        print(f"{name}  {time.process_time() - start:.0f} s  {verdict}  {why}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 1 if counts["WRONG"] or counts["repeated"] < given.at_least else 0


if __name__ == "__main__":
    sys.exit(main())
