"""Exports torch's operators, on the samples of torch's own tests, and compares them with eager.

usage: sweep.py [--operators REGEX] [--samples N] [--values N] [--types T,...] [--json FILE] [--page FILE]

Each sample of an operator (its sizes and flags) is exported once for each type of elements, and run
on ONNX Runtime with the sample's values and with others, which the export has not seen. Operators
run in processes of their own, because ONNX Runtime may end one.  --page renews a page of docs/.

Exits with 1 if a graph gives other values, types or shapes than eager, and nothing refuses it.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")
TYPES = "float32,int64,bool"
AT_ONCE = 40
"""Operators that one process tries, which loads torch once."""
SECONDS = 600
RANDOM = re.compile("dropout|rand|normal|bernoulli|multinomial|empty|exponential|cauchy|uniform|geometric|rrelu")
OUTCOMES = ("right", "wrong", "refused by its check", "refused", "not loaded", "eager fails", "crashed")


def key_of(info: Any) -> str:
    return f"{info.name}:{info.variant_test_name}" if info.variant_test_name else str(info.name)


def infos() -> list[Any]:
    """Return the operators of torch's tests whose results are values, not draws or storage."""
    from torch.testing._internal.common_methods_invocations import op_db

    return [each for each in op_db if not RANDOM.search(each.name)]


class Sample:
    """A call of an operator, as a module that takes the tensors."""

    def __init__(self, info: Any, sample: Any) -> None:
        import torch
        from torch.utils import _pytree as pytree

        leaves, spec = pytree.tree_flatten(([sample.input, *sample.args], dict(sample.kwargs)))
        self.places = [at for at, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = tuple(leaves[at].detach().clone() for at in self.places)

        class Call(torch.nn.Module):
            def forward(_, *tensors: Any) -> Any:  # noqa: N805
                given = list(leaves)
                for at, tensor in zip(self.places, tensors, strict=True):
                    given[at] = tensor
                args, kwargs = pytree.tree_unflatten(given, spec)
                return info.op(*args, **kwargs)

        self.module = Call()

    def shapes(self) -> list[Any]:
        return [(tensor.shape, tensor.dtype) for tensor in self.tensors]


def samples_of(info: Any, kind: Any, values: int, most: int) -> list[list[Sample]]:
    """Return samples that differ in sizes and flags, each with several sets of values."""
    import torch

    drawn = []
    for seed in range(values):
        torch.manual_seed(seed)
        drawn.append([Sample(info, each) for each in info.sample_inputs("cpu", kind)])
    count = min(map(len, drawn))
    chosen = sorted({round(at * (count - 1) / max(1, most - 1)) for at in range(most)}) if count else []
    groups = [[each[at] for each in drawn] for at in chosen]
    return [[each for each in group if each.shapes() == group[0].shapes()] for group in groups]


def outcome(group: list[Sample]) -> tuple[str, str]:
    """Export the first sample of a group; say how its graph does on all of them."""
    import torch

    import onnx_external as oe
    from onnx_external.torch._converting import converted
    from onnx_external.torch._programs import told
    from onnx_external.torch._tracing import trace

    module = group[0].module
    try:
        with torch.no_grad():
            expected = [flat(module(*copies(each.tensors))) for each in group]
    except Exception as error:
        return "eager fails", first_line(error)
    if not group[0].tensors or not any(isinstance(each, torch.Tensor) for each in expected[0]):
        return "eager fails", "no tensors"
    try:
        with told("torch.export"), torch.no_grad():
            program = trace(module, copies(group[0].tensors), None, None).program
        with told("torch.onnx", program):
            model = converted(program)
    except oe.Error as error:
        return "refused", first_line(error)
    return compared(model, group, expected)


def compared(model: Any, group: list[Sample], expected: list[list[Any]]) -> tuple[str, str]:
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        try:
            model.save(f"{folder}/model.onnx")
            onnxruntime.set_default_logger_severity(4)
            session = onnxruntime.InferenceSession(f"{folder}/model.onnx")
        except Exception as error:
            return "not loaded", first_line(error)
    names = [each.name for each in session.get_inputs()]
    for number, (sample, wanted) in enumerate(zip(group, expected, strict=True)):
        feeds = dict(zip(names, (each.numpy() for each in sample.tensors), strict=False))
        try:
            results = session.run(None, feeds)
        except Exception as error:
            difference = "it does not run: " + first_line(error)
        else:
            difference = first_difference(results, wanted)
        if difference:
            return ("wrong" if number else "refused by its check"), difference
    return "right", ""


def first_difference(results: list[Any], expected: list[Any]) -> str:
    import torch

    wanted = [each for each in expected if isinstance(each, (torch.Tensor, bool, int, float))]
    if len(results) != len(wanted):
        return f"{len(results)} results for {len(wanted)}"
    for at, (result, each) in enumerate(zip(results, wanted, strict=True)):
        value = each.detach() if isinstance(each, torch.Tensor) else torch.tensor(each)
        value = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
        given = torch.as_tensor(result)
        if given.shape != value.shape or given.dtype != value.dtype:
            return f"result {at}: {given.dtype} {[*given.shape]} for {value.dtype} {[*value.shape]}"
        near = {"rtol": 1e-3, "atol": 1e-4 * scale(value)} if value.is_floating_point() else {"rtol": 0, "atol": 0}
        if not torch.allclose(given.double(), value.double(), equal_nan=True, **near) or (
            not value.is_floating_point() and not torch.equal(given, value)
        ):
            off = (given.double() - value.double()).abs().nan_to_num(nan=float("inf")).max()
            return f"result {at}: differs by {float(off):.3g} of {scale(value):.3g}"
    return ""


def scale(value: Any) -> float:
    finite = value.double()[value.double().isfinite()].abs()
    return max(1.0, float(finite.max())) if finite.numel() else 1.0


def flat(result: Any) -> list[Any]:
    from torch.utils import _pytree as pytree

    return [each for each in pytree.tree_leaves(result) if each is not None]


def copies(tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(each.clone() for each in tensors)


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]


def work(keys: list[str], options: argparse.Namespace) -> None:
    """Try operators, and print a line for each."""
    import torch

    torch.set_num_threads(1)
    by_key = {key_of(each): each for each in infos()}
    for key in keys:
        print(json.dumps({"begins": key}), flush=True)
        rows = []
        for name in options.types.split(","):
            kind = getattr(torch, name)
            if kind not in by_key[key].dtypes:
                continue
            try:
                groups = samples_of(by_key[key], kind, options.values, options.samples)
            except Exception as error:
                rows.append((name, "eager fails", first_line(error)))
                continue
            rows += [(name, *outcome(group)) for group in groups]
        print(json.dumps({"operator": key, "rows": rows}), flush=True)


def tried(keys: list[str], options: argparse.Namespace) -> dict[str, list[Any]]:
    """Try operators in another process, and again what is left where one has ended it."""
    found: dict[str, list[Any]] = {}
    own = [sys.executable, __file__, "--samples", options.samples, "--values", options.values, "--types", options.types]
    while keys:
        child = subprocess.run(
            [*map(str, own), "--work", *keys], capture_output=True, text=True, timeout=SECONDS * len(keys), check=False
        )
        lines = [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]
        found.update({line["operator"]: line["rows"] for line in lines if "operator" in line})
        begun = [line["begins"] for line in lines if "begins" in line]
        if not begun:
            raise SystemExit(child.stderr)
        if begun[-1] not in found:
            found[begun[-1]] = [["", "crashed", f"exit status {child.returncode}"]]
        keys = [key for key in keys if key not in found]
    return found


def page(found: dict[str, list[Any]]) -> str:
    """Return a table of the operators that are not simply right, below the counts of all."""
    counts = Counter(row[1] for rows in found.values() for row in rows)
    lines = [f"| {each} | {counts[each]} |" for each in OUTCOMES if counts[each]]
    table = []
    for key, rows in sorted(found.items()):
        by = Counter(row[1] for row in rows)
        if not rows or set(by) <= {"right", "eager fails"}:
            continue
        why = next(row[2] for row in rows if row[1] not in ("right", "eager fails"))
        told = ", ".join(f"{by[each]} {each}" for each in OUTCOMES if by[each] and each != "eager fails")
        table.append(f"| `{key}` | {told} | {cell(why)} |")
    right = sum(bool(rows) and {row[1] for row in rows} <= {"right", "eager fails"} for rows in found.values())
    return "\n".join(
        [f"{len(found)} operators, {right} of them right in all samples.", ""]
        + ["| exports of samples | |", "|---|---|", *lines, ""]
        + ["| operator | samples | first reason |", "|---|---|---|", *table, ""]
    )


def cell(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+|/\S*/", "", text).replace("|", "\\|").replace("<", "&lt;")[:110]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", default="")
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--values", type=int, default=5)
    parser.add_argument("--types", default=TYPES)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--work", nargs="*")
    options = parser.parse_args()
    if options.work is not None:
        work(options.work, options)
        return 0
    keys = [key for key in map(key_of, infos()) if re.search(options.operators, key)]
    found: dict[str, list[Any]] = {}
    if options.json and options.json.exists():
        found = json.loads(options.json.read_text())
    left = [key for key in keys if key not in found]
    for at in range(0, len(left), AT_ONCE):
        found.update(tried(left[at : at + AT_ONCE], options))
        if options.json:
            options.json.write_text(json.dumps(found))
    chosen = {key: found[key] for key in keys}
    if options.page:
        head, mark, _ = options.page.read_text().partition("<!-- sweep -->\n")
        options.page.write_text(head + mark + page(chosen))
    wrong = [(key, *row) for key, rows in chosen.items() for row in rows if row[1] in ("wrong", "crashed")]
    for each in wrong:
        print("WRONG", *each)
    print(f"{len(chosen)} operators:", dict(Counter(row[1] for rows in chosen.values() for row in rows)))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
