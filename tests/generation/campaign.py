"""Runs exported decoders with onnxruntime-genai and oe.generate, and compares the tokens with transformers' generate().

usage: campaign.py --work-dir FOLDER [--only NAME,...]

Prompts of one row, of three rows of one length, and of three lengths. Exit code 1 if a token differs.
"""

import argparse
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import torch

import onnx_external as oe

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python/tests"))
import generation_cases as cases  # noqa: E402


def trial(name: str, work: Path) -> list[str]:
    """Export an architecture; return a description of the trial, followed by the differences."""
    torch.manual_seed(1)
    model = cases.save(name, work / name)
    report = oe.transformers.export(
        work / name, work / f"{name}-onnx", overwrite=True, fsync=False, progress=False
    )
    graphs, failures = ", ".join(report.graphs), []
    for title, rows in (
        ("one row", cases.rows_of(1, True)),
        ("three rows", cases.rows_of(3, True)),
        ("three lengths", cases.rows_of(3, False)),
    ):
        wanted = cases.wanted(model, rows)
        if not cases.same_until_the_end(cases.by_ours(work / f"{name}-onnx", rows), wanted):
            failures.append(f"oe.generate, {title}")
        # GenAI pads on the right, and a window counts the padding.
        if find_spec("onnxruntime_genai") and not (cases.has_window(model) and title == "three lengths"):
            if cases.by_genai(work / f"{name}-onnx", rows) != wanted:
                failures.append(f"onnxruntime-genai, {title}")
    return [f"{graphs}; {'; '.join(report.notes) or 'no notes'}", *failures]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work-dir", type=Path, required=True)
    parser.add_argument("--only", help="architectures, separated by commas")
    given = parser.parse_args()
    names = given.only.split(",") if given.only else list(cases.ARCHITECTURES)
    wrong = 0
    for name in names:
        start = time.process_time()
        try:
            done, *failures = trial(name, given.work_dir)
        except oe.Error as error:
            done, failures = "refused", [str(error)]
        wrong += bool(failures)
        verdict = "FAIL: " + ", ".join(failures) if failures else "ok"
        print(f"{name:12}{time.process_time() - start:6.1f} s  {done:10} {verdict}", flush=True)
    print(f"{len(names) - wrong} of {len(names)} give the tokens of generate()")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
