"""Export each construct of rows.py with each exporter, and write the results.

usage: campaign.py [--page FILE] [--json FILE] [--only NAME[,NAME...]]

--page renews the section of docs/constructs.md.
--json keeps the cells of each row as soon as they are known; those that the file has are not run again.

A cell is "right" if the export gives what eager gives on all input sets (graphs on ONNX Runtime),
"WRONG" if it gives something else without an error, and else the first line of the reason.
"""

import argparse
import contextlib
import copy
import inspect
import json
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

HEAD = """## Constructs

Each construct was exported in a small module (`tests/constructs`). At least two input sets differ
in what the construct depends on; sizes that differ are dynamic. "right" means that the result
equals the module's result on all input sets (graphs run on ONNX Runtime); "**wrong**" means that it
differs without an error. Exporters that are missing from a row fail with an error. "strict" is
torch.export with `strict=True`. The versions are {versions}.

These constructs are right with every exporter:

| group | constructs |
|---|---|
"""
TABLE = """
These constructs are not right with every exporter:

| construct | `oe.torch.export` | other exporters | instead |
|---|---|---|---|
"""
OTHERS = ("strict", "torch.export", "torch.onnx", "TorchScript")
BEGIN, END = "<!-- constructs -->\n", "<!-- end of constructs -->\n"


def dims_of(sets):
    """Return, for each leaf of the inputs, the dimensions that differ between the sets, or None if it is not a
    tensor.
    """
    leaves = [pytree.tree_leaves(each) for each in sets]
    if len({*map(len, leaves)}) > 1:  # lists of different lengths, for which torch has no dynamic shapes
        leaves = leaves[:1]
    for values in zip(*leaves, strict=True):
        if isinstance(values[0], torch.Tensor):
            sizes = zip(*(value.shape for value in values), strict=True)
            yield {
                i: torch.export.Dim.DYNAMIC for i, found in enumerate(sizes) if len({*found}) > 1
            }
        else:
            yield None


class Calls:
    """The calls of a row. Arguments and keywords are copied for each use, because some modules change them."""

    def __init__(self, cls):
        self.atol = getattr(cls, "atol", 1e-5)
        self._sets = [*zip(cls.sets, getattr(cls, "keywords", [{}] * len(cls.sets)), strict=True)]

    def __iter__(self):
        return iter(copy.deepcopy(self._sets))

    def shapes(self, module):
        """Return the dynamic shapes for torch. Sizes that differ between the sets are dynamic."""
        shapes, keywords = pytree.tree_unflatten(
            dims_of(self._sets), pytree.tree_structure(self._sets[0])
        )
        signature = inspect.signature(module.forward)
        if keywords:
            return signature.bind(*shapes, **keywords).arguments
        has_star = any(each.kind == each.VAR_POSITIONAL for each in signature.parameters.values())
        return (shapes,) if has_star else shapes

    def example(self):
        """Return the first call for torch.onnx.export, where a dict at the end contains the keywords."""
        args, keywords = copy.deepcopy(self._sets[0])
        return (*args, keywords) if keywords or isinstance(args[-1], dict) else args


def same(found, expected, atol=1e-5):
    found, expected = pytree.tree_leaves(found), pytree.tree_leaves(expected)
    return len(found) == len(expected) and all(
        a.shape == b.shape and torch.allclose(a, b, atol=atol)
        if isinstance(b, torch.Tensor)
        else a == b
        for a, b in zip(found, expected, strict=True)
    )


def judged_by_torch(module, calls, strict):
    args, keywords = next(iter(calls))
    shapes = calls.shapes(module)
    program = torch.export.export(
        module, args, keywords, dynamic_shapes=shapes, strict=strict
    ).module()
    found = [program(*args, **keywords) for args, keywords in calls]
    return all(same(*pair, calls.atol) for pair in zip(found, results(module, calls), strict=True))


def results(module, calls):
    return [module(*args, **keywords) for args, keywords in calls]


TYPES = {
    "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(uint8)": "uint8", "tensor(float)": "float32",
    "tensor(double)": "float64", "tensor(float16)": "float16", "tensor(bool)": "bool",
}  # fmt: skip


def feeds_of(session, inputs):
    """Return the inputs of the graph: all values of the call, or only its tensors."""
    takes = session.get_inputs()
    values = [value for value in pytree.tree_leaves(inputs) if value is not None]
    if len(values) != len(takes):
        values = [value for value in values if isinstance(value, torch.Tensor)]
    if len(values) == len(takes) + 1:  # the last input has no effect
        values.pop()
    if len(values) != len(takes):
        raise ValueError(f"the graph takes {[each.name for each in takes]}")
    return {
        each.name: numpy.asarray(pairs(value), dtype=TYPES[each.type])
        for each, value in zip(takes, values, strict=True)
    }


def pairs(value):
    """Return complex numbers as pairs of floats, as in graphs."""
    is_complex = isinstance(value, torch.Tensor) and value.is_complex()
    return torch.view_as_real(value) if is_complex else value


def judged_by_runtime(path, module, calls):
    session = onnxruntime.InferenceSession(path)
    for each, result in zip(calls, results(module, calls), strict=True):
        found = session.run(None, feeds_of(session, each))
        expected = [
            pairs(torch.as_tensor(value))
            for value in pytree.tree_leaves(result)
            if value is not None
        ]
        if not same([torch.from_numpy(value) for value in found], expected, calls.atol):
            return False
    return True


def by_torch_onnx(module, calls, path):
    shapes = calls.shapes(module)
    torch.onnx.export(
        module, calls.example(), dynamic_shapes=shapes, dynamo=True, verbose=False
    ).save(path)
    return judged_by_runtime(path, module, calls)


def by_torchscript(module, calls, path):
    dims = [found for found in dims_of([*calls]) if found is not None]
    names = [f"x{i}" for i in range(len(dims))]
    axes = {name: [*found] for name, found in zip(names, dims, strict=True) if found}
    torch.onnx.export(
        module, calls.example(), path, dynamo=False, input_names=names, dynamic_axes=axes
    )
    return judged_by_runtime(path, module, calls)


def by_ours(module, calls, path):
    (args, keywords), *others = calls
    sets = [call if keywords else call[0] for call in others]
    oe.torch.export(
        module, args, path, keywords or None, input_sets=sets, fsync=False, progress=False
    )
    return judged_by_runtime(path, module, calls)


def reason(error):
    text = re.sub(r"\x1b\[\d+m", "", str(error)).strip()
    if found := re.findall(r"<class '[\w.]+'>: (.*)", text):  # a summary of torch.onnx
        text = found[0]
    text = next((line for line in text.splitlines() if line.strip()), "")
    text = re.sub(r"(/[\w.-]+)+/", "", text.split(" For more information")[0])
    text = re.sub(r" (at )?0x[0-9a-f]+", "", text)
    return f"{type(error).__name__}: {text[:110].rstrip()}".replace("|", "\\|").replace("`", "'")


def cell(judge, *args):
    try:
        with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
            with contextlib.redirect_stderr(nothing):
                return "right" if judge(*args) else "**WRONG**"
    except Exception as error:
        return reason(error)


def cells(cls, judges=(0, 1, 2, 3, 4)):
    calls, module = Calls(cls), cls().train(getattr(cls, "in_training", False))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        ways = [
            lambda: cell(judged_by_torch, module, calls, True),
            lambda: cell(judged_by_torch, module, calls, False),
            *(
                lambda judge=judge: cell(judge, module, calls, f"{folder}/{judge.__name__}.onnx")
                for judge in (by_torch_onnx, by_torchscript, by_ours)
            ),
        ]
        return [ways[number]() for number in judges]


def verdict(found):
    """Return the text of a cell for a result. For an error, this is its class."""
    if found == "right":
        return found
    return "**wrong**" if found == "**WRONG**" else f"`{found.split(':')[0]}`"


def outcomes(found):
    """Return which of the other exporters are right and which are wrong; all others fail."""
    texts = []
    for outcome in ("right", "**wrong**"):
        names = [name for name, each in zip(OTHERS, found, strict=True) if verdict(each) == outcome]
        texts += [f"{outcome}: {', '.join(names)}"] if names else []
    return "; ".join(texts)


def page_of(rows, known, versions):
    """Return the section of the page. `known` has the cells by row name."""
    page = HEAD.format(versions=versions)
    for group in dict.fromkeys(cls.group for cls in rows):
        texts = [
            inspect.getdoc(cls)
            for cls in rows
            if cls.group == group and set(known[cls.__name__]) == {"right"}
        ]
        page += f"| {group} | {'; '.join(texts)} |\n"
    page += TABLE
    alike: dict[str, list[str]] = {}
    for cls in rows:
        *others, ours = known[cls.__name__]
        if {ours, *others} != {"right"}:
            row = f"{verdict(ours)} | {outcomes(others)} | {cls.way}"
            alike.setdefault(row, []).append(inspect.getdoc(cls))
    page += "".join(
        f"| {'; '.join(dict.fromkeys(texts))} | {row} |\n" for row, texts in alike.items()
    )
    ways = [*zip(*(known[cls.__name__] for cls in rows), strict=True)]
    *others, ours = (f"{way.count('right')} right, {way.count('**WRONG**')} wrong" for way in ways)
    named = "; ".join(f"{name}: {sums}" for name, sums in zip(OTHERS, others, strict=True))
    return page + f"| **all {len(rows)}** | {ours} | {named} | |\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", type=lambda names: names.split(","))
    arguments = parser.parse_args()
    known = (
        json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else {}
    )

    def keep():
        if arguments.json:
            arguments.json.write_text(json.dumps(known, indent=1))

    rows = [cls for cls in ROWS if arguments.only is None or cls.__name__ in arguments.only]
    for cls in rows:
        if cls.__name__ not in known:
            known[cls.__name__] = cells(cls)
            keep()
        print(cls.__name__, *known[cls.__name__], sep=" | ", file=sys.stderr, flush=True)
    versions = f"torch {torch.__version__.split('+')[0]} and onnxruntime {onnxruntime.__version__}"
    section = page_of(rows, known, versions)
    if arguments.page:
        before, _, rest = arguments.page.read_text().partition(BEGIN)
        arguments.page.write_text(before + BEGIN + section + END + rest.partition(END)[2])
    else:
        print(section)
    wrong = [cls.__name__ for cls in rows if known[cls.__name__][4] == "**WRONG**"]
    sys.exit(f"wrong by ours: {wrong}" if wrong else 0)


if __name__ == "__main__":
    main()
