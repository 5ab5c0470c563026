"""Which exporters take which constructs: runs each row of rows.py through each, and writes the page.

usage: campaign.py [--page FILE] [--rows NUMBER] [--only NAME]

A cell is "right" if the export gives what eager gives on all input sets (graphs on ONNX Runtime),
"WRONG" if it gives something else without an error, and else the first line of the reason.
"""

import argparse
import contextlib
import copy
import inspect
import os
import re
import sys
import tempfile
import warnings
from pathlib import Path

import numpy
import onnxruntime
import torch
from rows import ROWS
from torch.utils import _pytree as pytree

import onnx_external as oe

SOURCE = "tests/constructs/rows.py"
HEAD = """# Which constructs export

    sh tests/campaign.sh constructs

runs small modules, one construct each, through five exporters, and writes this page. Each has two
input sets or more, which differ in what the construct depends on; sizes that differ between them
are asked to vary. A cell says "right" if what was exported gives what the module gives on all sets
(graphs run on ONNX Runtime), "**WRONG**" if it gives something else without an error, and else the
first line of the reason. The text of a row leads to its source.

With {versions}.

| construct | torch.export, strict | torch.export | torch.onnx.export | TorchScript | `oe.torch.export` | way out |
|---|---|---|---|---|---|---|
"""


def dims_of(sets):
    """For each leaf of the inputs, the dimensions that differ among the sets; None for no tensor."""
    for values in zip(*map(pytree.tree_leaves, sets), strict=True):
        if isinstance(values[0], torch.Tensor):
            sizes = zip(*(value.shape for value in values), strict=True)
            yield {i: torch.export.Dim.DYNAMIC for i, found in enumerate(sizes) if len({*found}) > 1}
        else:
            yield None


def shapes_of(module, sets):
    """The dynamic shapes for torch: sizes that differ among the sets vary."""
    shapes = pytree.tree_unflatten(dims_of(sets), pytree.tree_structure(sets[0]))
    has_star = any(each.kind == each.VAR_POSITIONAL for each in inspect.signature(module.forward).parameters.values())
    return (shapes,) if has_star else shapes


def example(sets):
    """The first set for torch.onnx.export, which takes a dict at its end for keywords."""
    first = copy.deepcopy(sets[0])
    return (*first, {}) if isinstance(first[-1], dict) else first


def same(found, expected):
    found, expected = pytree.tree_leaves(found), pytree.tree_leaves(expected)
    return len(found) == len(expected) and all(
        a.shape == b.shape and torch.allclose(a, b, atol=1e-5) if isinstance(b, torch.Tensor) else a == b
        for a, b in zip(found, expected, strict=True)
    )


def judged_by_torch(module, sets, strict):
    program = torch.export.export(
        module, copy.deepcopy(sets[0]), dynamic_shapes=shapes_of(module, sets), strict=strict
    ).module()
    return all(same(program(*copy.deepcopy(each)), module(*copy.deepcopy(each))) for each in sets)


TYPES = {"tensor(int64)": "int64", "tensor(float)": "float32", "tensor(double)": "float64", "tensor(bool)": "bool"}


def feeds_of(session, inputs):
    """What the graph takes: all values of the inputs, or those that are tensors."""
    takes = session.get_inputs()
    values = [value for value in pytree.tree_leaves(inputs) if value is not None]
    if len(values) != len(takes):
        values = [value for value in values if isinstance(value, torch.Tensor)]
    if isinstance(inputs[-1], torch.Tensor) and len(values) == len(takes) + 1:  # the last has no effect
        values.pop()
    if len(values) != len(takes):
        raise ValueError(f"the graph takes {[each.name for each in takes]}")
    return {
        each.name: numpy.asarray(value, dtype=TYPES[each.type]) for each, value in zip(takes, values, strict=True)
    }


def judged_by_runtime(path, module, sets):
    session = onnxruntime.InferenceSession(path)
    for each in sets:
        found = session.run(None, feeds_of(session, each))
        expected = [
            torch.as_tensor(value)
            for value in pytree.tree_leaves(module(*copy.deepcopy(each)))
            if value is not None
        ]
        if not same([torch.from_numpy(value) for value in found], expected):
            return False
    return True


def by_torch_onnx(module, sets, path):
    torch.onnx.export(
        module, example(sets), dynamic_shapes=shapes_of(module, sets), dynamo=True, verbose=False
    ).save(path)
    return judged_by_runtime(path, module, sets)


def by_torchscript(module, sets, path):
    dims = [found for found in dims_of(sets) if found is not None]
    names = [f"x{i}" for i in range(len(dims))]
    axes = {name: [*found] for name, found in zip(names, dims, strict=True) if found}
    torch.onnx.export(module, example(sets), path, dynamo=False, input_names=names, dynamic_axes=axes)
    return judged_by_runtime(path, module, sets)


def by_ours(module, sets, path):
    first, *others = copy.deepcopy(sets)
    oe.torch.export(module, first, path, input_sets=others, fsync=False, progress=False)
    return judged_by_runtime(path, module, sets)


def reason(error):
    text = re.sub(r"\x1b\[\d+m", "", str(error)).strip()
    if found := re.findall(r"<class '[\w.]+'>: (.*)", text):  # a summary of torch.onnx
        text = found[0]
    text = next((line for line in text.splitlines() if line.strip()), "")
    text = re.sub(r"(/[\w.-]+)+/", "", text.split(" For more information")[0])
    return f"{type(error).__name__}: {text[:110]}".replace("|", "\\|").replace("`", "'")


def cell(judge, *args):
    try:
        with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
            with contextlib.redirect_stderr(nothing):
                return "right" if judge(*args) else "**WRONG**"
    except Exception as error:
        return reason(error)


def cells(cls):
    sets, module = cls.sets, cls().eval()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        yield cell(judged_by_torch, module, sets, True)
        yield cell(judged_by_torch, module, sets, False)
        for number, judge in enumerate((by_torch_onnx, by_torchscript, by_ours)):
            yield cell(judge, module, sets, f"{folder}/{number}.onnx")


def page_of(rows):
    versions = f"torch {torch.__version__.split('+')[0]}, onnxruntime {onnxruntime.__version__}"
    page, group = HEAD.format(versions=versions), ""
    for cls in rows:
        if cls.group != group:
            group = cls.group
            page += f"| **{group}** | | | | | | |\n"
        found = [*cells(cls)]
        line = inspect.getsourcelines(cls)[1]
        way = cls.way if any(each != "right" for each in found) else ""
        text = inspect.getdoc(cls)
        page += f"| [{text}](../{SOURCE}#L{line}) | {' | '.join(found)} | {way} |\n"
        print(cls.__name__, *found, sep=" | ", file=sys.stderr, flush=True)
    return page


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--rows", type=int, default=len(ROWS))
    parser.add_argument("--only")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    rows = [cls for cls in ROWS[: arguments.rows] if arguments.only in (None, cls.__name__)]
    page = page_of(rows)
    if arguments.page:
        arguments.page.write_text(page)
    else:
        print(page)
    wrong = [line for line in page.splitlines() if line.startswith("| [") and "WRONG" in line.split(" | ")[5]]
    sys.exit(f"wrong by ours: {wrong}" if wrong else 0)


if __name__ == "__main__":
    main()
