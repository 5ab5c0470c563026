"""Tests whether the attention of current decoders is fused by masks and by lengths, or traced.

docs/constructs.md says what becomes of each architecture; --write renews its table.

usage: attention_test.py --work-dir DIR --page FILE [--write] [--only NAME,...] [--jobs N]
"""

import re
import shutil
import sys
import time
from pathlib import Path

import onnx
import torch
import transformers

import checkpoints
import grouped
import pools
import values
from architectures import ARCHITECTURES, Architecture
from export_test import parse

import onnx_external as oe

MARK = "attention"
COLUMNS = ["by mask", "by lengths", "why not all"]
DECODERS = ("ForCausalLM", "LMHeadModel", "MTModel", "ForConditionalGeneration")
LEFT_OUT = ("mamba", "mamba2", "falcon_mamba", "rwkv", "xlnet", "prophetnet")
"""Models whose state is not a cache of keys and values, and one that is not exported."""
_WHY = re.compile(r"(?:in \d+ of \d+ layers )?attention is traced, not fused(?:: |, since )(.*)")


def saved(architecture: Architecture, folder: Path) -> Path:
    """Save a model that has a cache, which some of the zoo's configs turn off."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    torch.manual_seed(1)
    module = architecture.make()
    values.fill(module, 1)
    module.config.use_cache = True
    return checkpoints.folder(module, folder / "saved")


def exported(source: Path, form: str, check: bool) -> tuple[dict, list]:
    """Return the numbers of fused nodes and of layers for each graph with a cache, and the reason if they differ."""
    out = source.parent / form
    report = oe.transformers.export(
        source, out, attention=form, check=check, fsync=False, progress=False
    )
    counts = {}
    for name in report.graphs:
        graph = onnx.load(out / f"{name}.onnx", load_external_data=False).graph
        past = [each.name for each in graph.input if each.name.endswith(".key")]
        layers = [each for each in past if ".encoder." not in each]
        nodes = sum(each.op_type == "GroupQueryAttention" for each in graph.node)
        if layers:
            counts[name] = (nodes, len(layers))
    reasons = [match[1] for match in map(_WHY.search, report.notes) if match]
    return counts, list(dict.fromkeys(reasons))


def cell(counts: dict) -> str:
    """Return the number of fused nodes in each graph."""
    found = [f"{nodes} of {layers}" for nodes, layers in counts.values()]
    return ", ".join(dict.fromkeys(found)) or "no cache"


def row(name: str, by_mask: tuple, by_lengths: tuple) -> str:
    """Return the row of an architecture, from the results of `exported` for both forms."""
    more = [f"by lengths: {each}" for each in by_lengths[1] if each not in by_mask[1]]
    why = "; ".join([*by_mask[1], *more]) or "-"
    return f"| {name} | {cell(by_mask[0])} | {cell(by_lengths[0])} | {why} |"


def work(job: tuple) -> tuple:
    """Export an architecture, and return its name, its row and the seconds it took."""
    name, work_dir = job
    torch.set_num_threads(1)
    transformers.logging.disable_progress_bar()
    start = time.monotonic()
    try:
        source = saved(ARCHITECTURES[name], work_dir / name)
        by_lengths = exported(source, "lengths", check=True)
        # A mask can express everything that lengths can.
        is_whole = by_lengths[0] and all(
            nodes == layers for nodes, layers in by_lengths[0].values()
        )
        by_mask = by_lengths if is_whole else exported(source, "fused", check=False)
        found = row(name, by_mask, by_lengths)
    except oe.Error as error:
        found = f"| {name} | {str(error).splitlines()[0][:300].replace('|', '/')} |"
    finally:
        shutil.rmtree(work_dir / name, ignore_errors=True)
    return name, found, time.monotonic() - start


def main() -> int:
    """Return the exit code: 1 if a row differs from the page."""
    arguments = parse()
    decoders = [
        name
        for name, each in ARCHITECTURES.items()
        if each.model.endswith(DECODERS) and not each.wide and name not in LEFT_OUT
    ]
    names = arguments.only.split(",") if arguments.only else decoders
    jobs = [(name, arguments.work_dir.resolve() / "attention") for name in names]
    expected, results, failed = grouped.rows_of(arguments.page, MARK), {}, 0
    for name, found, seconds in pools.results(work, jobs, arguments.jobs, 12):
        print(f"{seconds:4.0f} s  {found}", flush=True)
        results[name] = found
        if not arguments.write and found != expected.get(name):
            failed += 1
            print(f"  FAIL  the page says: {expected.get(name)}")
    if arguments.write:
        grouped.write(
            arguments.page,
            MARK,
            {n: e for n, e in (expected | results).items() if n in decoders},
            COLUMNS,
        )
    print(f"{len(results)} decoders, {failed} failed")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
