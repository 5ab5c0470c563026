"""Exports torch's operators on samples from torch's own tests, and compares them with eager torch.

usage: sweep.py [--operators REGEX] [--samples N] [--values N] [--types T,...] [--json FILE] [--page FILE]

The samples of an operator (its sizes and flags) are exported for each type of elements, all in one
graph, and each by itself if that fails. ONNX Runtime runs the graph with the samples' values and
with others, which the export has not seen; at last with NaN, infinities and large integers among
them. Operators run in other processes, because ONNX Runtime may end one. --json keeps what was
found, so that a sweep can be continued; --page renews the table of docs/constructs.md.

Exits with 1 if a graph gives other values, types or shapes than eager, and nothing refuses it.
"""

import argparse
import faulthandler
import functools
import json
import re
import resource
import subprocess
import sys
import tempfile
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")
TYPES = "float32,int64,bool"
AT_ONCE = 40
"""Operators that one process tries, which loads torch once."""
SECONDS = 180
"""Time for an operator."""
MEMORY = 12 << 30
"""Bytes of addresses that a process may use; large integers may ask for large results."""
RANDOM = re.compile("dropout|rand|normal|bernoulli|multinomial|empty|exponential|cauchy|uniform|geometric|rrelu")
UNSAFE = re.compile("ctc_loss|_segment_reduce|linalg.eig")
"""Operators of which eager ends the process for extreme values."""
RIGHT, EDGES, WRONG = "right", "right but for extreme values", "wrong"
CHECKED, REFUSED, UNLOADABLE = "refused by its check", "refused", "not loaded"
SKIPPED, CRASHED, SLOW = "eager fails", "crashed", "too slow"
OUTCOMES = (RIGHT, EDGES, WRONG, CHECKED, REFUSED, UNLOADABLE, SKIPPED, CRASHED, SLOW)


def key_of(info: Any) -> str:
    return f"{info.name}:{info.variant_test_name}" if info.variant_test_name else str(info.name)


def infos() -> list[Any]:
    """Return the operators in torch's tests whose results are values, not random or uninitialized."""
    from torch.testing._internal.common_methods_invocations import op_db

    return [each for each in op_db if not RANDOM.search(each.name)]


class Sample:
    """A call of an operator, with tensors that may be replaced."""

    def __init__(self, info: Any, sample: Any) -> None:
        import torch
        from torch.utils import _pytree as pytree

        self.operator = info.op
        self.leaves, self.spec = pytree.tree_flatten(([sample.input, *sample.args], dict(sample.kwargs)))
        self.places = [at for at, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = tuple(self.leaves[at].detach().clone() for at in self.places)

    def call(self, tensors: Any) -> list[Any]:
        """Return the results that become outputs of a graph."""
        import torch
        from torch.utils import _pytree as pytree

        given = list(self.leaves)
        for at, tensor in zip(self.places, tensors, strict=True):
            given[at] = tensor
        args, kwargs = pytree.tree_unflatten(given, self.spec)
        results = pytree.tree_leaves(self.operator(*args, **kwargs))
        return [each for each in results if isinstance(each, (torch.Tensor, bool, int, float))]

    def shapes(self) -> list[Any]:
        return [(tensor.shape, tensor.dtype) for tensor in self.tensors]


class Group:
    """A call with several sets of values, and the eager result for each."""

    def __init__(self, samples: list[Sample], is_unsafe: bool = False) -> None:
        import torch

        self.call = samples[0].call
        alike = [each for each in samples if each.shapes() == samples[0].shapes()]
        self.sets = [each.tensors for each in alike]
        self.edges = len(self.sets)
        """How many sets have no extreme values."""
        with torch.no_grad():
            self.expected = [self.call(copies(each)) for each in self.sets]
            for seed in range(0 if is_unsafe else 2):
                extreme = extremes(self.sets[0], seed)
                try:
                    self.expected.append(self.call(copies(extreme)))
                except Exception:
                    continue
                self.sets.append(extreme)

    def is_fit(self) -> bool:
        import torch

        return bool(self.sets[0]) and any(isinstance(each, torch.Tensor) for each in self.expected[0])


def extremes(tensors: tuple[Any, ...], seed: int) -> tuple[Any, ...]:
    """Return the tensors with some infinite, NaN or large values."""
    import torch

    torch.manual_seed(seed)
    floats = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 1e-30, -70000.5, 2.5])
    made = []
    for tensor in tensors:
        chosen = torch.rand(tensor.shape) < 0.4
        if tensor.is_floating_point():
            other = floats[torch.randint(len(floats), tensor.shape)].to(tensor.dtype)
            tensor = torch.where(chosen, other, tensor)
        elif tensor.dtype == torch.int64:
            tensor = torch.where(chosen, tensor * (2 ** (24 + 20 * seed) + 1), tensor)
        made.append(tensor)
    return tuple(made)


def copies(tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(each.clone() for each in tensors)


def groups_of(info: Any, kind: Any, values: int, most: int) -> list[list[Sample]]:
    """Return samples that differ in sizes and flags, each with several sets of values."""
    import torch

    drawn = []
    for seed in range(values):
        torch.manual_seed(seed)
        drawn.append([Sample(info, each) for each in info.sample_inputs("cpu", kind)])
    count = min(map(len, drawn))
    chosen = sorted({round(at * (count - 1) / max(1, most - 1)) for at in range(most)}) if count else []
    return [[each[at] for each in drawn] for at in chosen]


def module_of(groups: list[Group]) -> Any:
    """Return a module that makes the calls of all groups, one after another."""
    import torch

    class Calls(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            results, start = [], 0
            for group in groups:
                end = start + len(group.sets[0])
                results += group.call(tensors[start:end])
                start = end
            return tuple(results)

    return Calls()


def outcomes(groups: list[Group]) -> list[tuple[str, str]]:
    """Export groups together, and those that fail one by one; return the outcomes on all sets.

    If the first two groups are refused for the same reason, all others are assumed to be refused for it.
    """
    together = outcomes_together(groups)
    if len(groups) == 1:
        return together
    found: list[tuple[str, str]] = []
    for at, each in enumerate(together):
        is_known = len(found) > 1 and found[0] == found[1] == each and each[0] in (REFUSED, UNLOADABLE)
        found.append(each if is_known or each[0] == RIGHT else outcomes_together([groups[at]])[0])
    return found


def outcomes_together(groups: list[Group]) -> list[tuple[str, str]]:
    import onnxruntime
    import torch

    import onnx_external as oe
    from onnx_external.torch._converting import converted
    from onnx_external.torch._optimizing import optimized
    from onnx_external.torch._programs import told
    from onnx_external.torch._tracing import trace

    example = tuple(each for group in groups for each in copies(group.sets[0]))
    try:
        with told("torch.export"), torch.no_grad():
            program = trace(module_of(groups), example, None, None).program
        with told("torch.onnx", program):
            model = converted(program)
            model.model = optimized(model.model)
    except oe.Error as error:
        return [(REFUSED, first_line(error))] * len(groups)
    with tempfile.TemporaryDirectory() as folder:
        try:
            model.save(f"{folder}/model.onnx")
            onnxruntime.set_default_logger_severity(4)
            session = onnxruntime.InferenceSession(f"{folder}/model.onnx")
        except Exception as error:
            return [(UNLOADABLE, first_line(error))] * len(groups)
    return list(compared(session, groups))


def compared(session: Any, groups: list[Group]) -> Iterator[tuple[str, str]]:
    names = [each.name for each in session.get_inputs()]
    rounds = max(len(group.sets) for group in groups)
    runs: list[Any] = []
    for number in range(rounds):
        values = [each.numpy() for group in groups for each in group.sets[min(number, len(group.sets) - 1)]]
        try:
            runs.append(session.run(None, dict(zip(names, values, strict=True))))
        except Exception as error:
            runs.append("it does not run: " + first_line(error))
    start = 0
    for group in groups:
        end = start + len(group.expected[0])
        yield judged([each if isinstance(each, str) else each[start:end] for each in runs], group)
        start = end


def judged(runs: list[Any], group: Group) -> tuple[str, str]:
    for number, (results, wanted) in enumerate(zip(runs, group.expected, strict=False)):
        difference = results if isinstance(results, str) else first_difference(results, wanted)
        if difference:
            return (CHECKED if number == 0 else WRONG if number < group.edges else EDGES), difference
    return RIGHT, ""


def first_difference(results: list[Any], wanted: list[Any]) -> str:
    import torch

    if len(results) != len(wanted):
        return f"{len(results)} results for {len(wanted)}"
    for at, (result, each) in enumerate(zip(results, wanted, strict=True)):
        value = each.detach() if isinstance(each, torch.Tensor) else torch.tensor(each)
        value = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
        given = torch.as_tensor(result)
        if given.shape != value.shape or given.dtype != value.dtype:
            return f"result {at}: {given.dtype} {[*given.shape]} for {value.dtype} {[*value.shape]}"
        if not value.is_floating_point():
            if not torch.equal(given, value):
                place = (given != value).nonzero()[0].tolist()
                return f"result {at}: {given[*place].item()} for {value[*place].item()}"
            continue
        near = torch.isclose(given.double(), value.double(), rtol=1e-3, atol=1e-4 * scale(value), equal_nan=True)
        if not near.all():
            place = (~near).nonzero()[0].tolist()
            return f"result {at}: {given[*place].item():.6g} for {value[*place].item():.6g}"
    return ""


def scale(value: Any) -> float:
    finite = value.double()[value.double().isfinite()].abs()
    return max(1.0, float(finite.max())) if finite.numel() else 1.0


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lines = [line.partition(", at /")[0] for line in lines]
    text = re.sub(
        r" of input parameter \(\w+\)| in node \(\w+\)| with name '\w+'|Load model from \S+ failed: ?|\[ONNXRuntimeError\] : \d+ : ",
        "",
        lines[0] if lines else "",
    )
    return f"{type(error).__name__}: {text}"[:300]


def work(keys: list[str], options: argparse.Namespace) -> None:
    """Try operators, and print a line for each operator."""
    import torch
    from torch._export import utils

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    # torch lists its operators again for each export, which takes half the time of a small export.
    listed = functools.cache(utils._collect_all_valid_cia_ops_for_namespace)
    utils._collect_all_valid_cia_ops_for_namespace = listed
    torch.set_num_threads(1)
    by_key = {key_of(each): each for each in infos()}
    for key in keys:
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        print(json.dumps({"begins": key}), flush=True)
        names = [each for each in options.types.split(",") if getattr(torch, each) in by_key[key].dtypes]
        rows = [row for name in names for row in tried(by_key[key], name, options)]
        print(json.dumps({"operator": key, "rows": rows}), flush=True)


def tried(info: Any, name: str, options: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    """Yield the outcome of each sample of an element type."""
    import torch

    try:
        drawn = groups_of(info, getattr(torch, name), options.values, options.samples)
    except Exception as error:
        yield name, SKIPPED, first_line(error)
        return
    groups = []
    for samples in drawn:
        try:
            group = Group(samples, bool(UNSAFE.search(info.name)))
        except Exception as error:
            yield name, SKIPPED, first_line(error)
            continue
        if group.is_fit():
            groups.append(group)
        else:
            yield name, SKIPPED, "no tensors"
    for found in outcomes(groups) if groups else ():
        yield name, *found


def swept(keys: list[str], options: argparse.Namespace) -> Iterator[tuple[str, list[Any]]]:
    """Try operators in another process. If it ends early, try the remaining ones in a new process."""
    own = [sys.executable, __file__, "--samples", options.samples, "--values", options.values, "--types", options.types]
    while keys:
        begun, done = "", set()
        command = [*map(str, own), "--work", *keys]
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as child,
        ):
            assert child.stdout is not None
            for line in child.stdout:
                told = json.loads(line) if line.startswith('{"') else {}
                begun = told.get("begins", begun)
                if "operator" in told:
                    done.add(told["operator"])
                    yield told["operator"], told["rows"]
            child.wait()
            errors.seek(0)
            said = errors.read()
        if not begun:
            raise SystemExit(said)
        if begun not in done:
            done.add(begun)
            yield begun, [["", SLOW if "Timeout" in said else CRASHED, f"exit status {child.returncode}"]]
        keys = [key for key in keys if key not in done]


def page(found: dict[str, list[Any]]) -> str:
    """Return the counts of all outcomes, and a table of the operators that are not right in all samples."""
    counts = Counter(row[1] for rows in found.values() for row in rows)
    right = sum(bool(rows) and {row[1] for row in rows} <= {RIGHT, SKIPPED} for rows in found.values())
    table: dict[tuple[int, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for key, rows in sorted(found.items()):
        for kind, outcome, why in rows:
            if outcome not in (RIGHT, SKIPPED):
                table[OUTCOMES.index(outcome), reason_of(outcome, why)][key].add(kind)
    for at, why in [key for key, operators in table.items() if len(operators) == 1 and key[0] == OUTCOMES.index(REFUSED)]:
        for key, kinds in table.pop((at, why)).items():
            table[at, "another reason"][key] |= kinds
    lines = []
    for (at, why), operators in sorted(table.items(), key=lambda each: (each[0][0], -len(each[1]), each[0][1])):
        names = [f"`{key}` ({', '.join(sorted(kinds))})" for key, kinds in operators.items()]
        lines.append(f"| {OUTCOMES[at]} | {why} | {', '.join(names).replace(' ()', '')} |")
    return "\n".join(
        [f"{len(found)} operators, {right} of them right in all samples.", ""]
        + ["| outcome | samples |", "|---|---|"]
        + [f"| {each} | {counts[each]} |" for each in OUTCOMES if counts[each]]
        + ["", "| outcome | reason | operators |", "|---|---|---|", *lines, ""]
    )


def reason_of(outcome: str, why: str) -> str:
    """Return the common form of a reason for several samples and operators."""
    if outcome in (EDGES, WRONG, CHECKED):
        if "does not run" in why:
            return "ONNX Runtime fails when it runs the graph"
        return "another type or shape" if "torch." in why or "results for" in why else "other values"
    if "No ONNX function found" in why:
        return "torch.onnx has no translation"
    if "Type Error: Type" in why or "Could not find an implementation" in why:
        return "ONNX or ONNX Runtime does not have an operator for the type"
    if "ShapeInferenceError" in why:
        return "ONNX Runtime's shape inference fails, mostly for empty tensors or scalars"
    if "nbacked" in why or "DataDependent" in why or "data-dependent" in why:
        return "sizes or branches depend on values"
    text = re.sub(r", at /.*|; (onnx_options|oe\.).*|, in forward.*", "", why)
    text = re.sub(r"^ExportError: (torch\.\w+: )?|0x[0-9a-f]+|/\S*/|[uz]\d+", "", text)
    return text.replace("|", "\\|").replace("<", "&lt;")[:100]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operators", default="")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--values", type=int, default=3)
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
        for key, rows in swept(left[at : at + AT_ONCE], options):
            found[key] = rows
            if options.json:
                options.json.write_text(json.dumps(found))
    chosen = {key: found[key] for key in keys}
    if options.page:
        head, mark, _ = options.page.read_text().partition("<!-- sweep -->\n")
        options.page.write_text(head + mark + page(chosen))
    wrong = [(key, *row) for key, rows in chosen.items() for row in rows if row[1] in (WRONG, CRASHED)]
    for each in wrong:
        print("WRONG", *each)
    print(f"{len(chosen)} operators:", dict(Counter(row[1] for rows in chosen.values() for row in rows)))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
