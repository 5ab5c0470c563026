"""docs/zoo.md: what becomes of every architecture, as the last full run found it; each run is held to it."""

from pathlib import Path

from architectures import ARCHITECTURES
from trial import GRAPHS, REFUSED, RIGHT, Outcome

# What a refusal is about, by words of its first line; the first that fits.
REASONS = {
    "BatchNorm multiplied": "fused",
    "in another shape": "reshaped",
    "merged with a constant": "shared",
    "the size of one that changes": "computed",
    "nowhere in the graph and change": "computed",
    "several keys of the old checkpoint": "equal",
    "but key '": "reshaped",
    "computed at export": "computed",
    "would stay old": "computed",
    "lacks": "missing",
    "without its constants": "missing",
    "missing in the checkpoint": "missing",
    "not used by the graph": "unused",
    "fits any slot": "missing",
    "--layout link": "link",
}

HIDDEN = ("default bare",)  # always refused

HEAD = """# The zoo

Architectures of transformers 5, built from small configs with random weights, and exported by torch
2.13 (`torch.onnx.export(dynamo=True)`) with inputs of fixed sizes. `tests/zoo` saves each from all
its checkpoints, which have other weights than the graph had at export, in rotating layouts.
It judges every model: each initializer must have the bytes that torch's exporter writes when it
exports the new weights, and ONNX Runtime must compute what torch computes (1e-4 of the largest
value). Tied weights must lie in one place. No save is wrong; some are refused, and this page says
which.

    sh tests/campaign.sh zoo                                       all of them, and this page anew

| column | the graph |
|---|---|
| memory | as Python holds it, both without and with the optimizer, in all layouts |
| plain | exported with `optimize=False` |
| bare | the same, saved with `include_initializers=False` |
| default | exported with the default, which folds weights |
| learned | the default one with `--learn-map` and the weights at export |

A default export saved with `include_initializers=False` is refused: it lacks the constants, too.

Checkpoints: the folder of `save_pretrained` (shards); the same with `save_original_format=False`,
where that spells keys differently ("own folder"); a `.bin` of `torch.save`; a distributed
checkpoint; the module's state dict in memory, for the graph as onnx_ir loads it. What is saved from
memory is the `ONNXProgram` with the weights that it has, and its `ModelProto`. Names ending in
`_wide` have matrices of more than 8,192 elements, square projections and tied embeddings.

| a cell | means |
|---|---|
| right | every save was accepted and right |
| computed | refused: a value was computed from weights (a slice of position embeddings, 1 + weight) |
| missing | refused: the checkpoint, or the graph, lacks a tensor under the name that the other has |
| unused | refused: a parameter of a used module has no place in the graph |
| fused | refused: a BatchNorm was multiplied into a weight |
| reshaped | refused: the graph has a weight in another shape |
| shared | refused: a small weight that several nodes use may be merged with a constant |
| equal | refused: keys were equal at export and are not any more |
| X from folder | only that checkpoint is refused; the others are right |

"""

FAILED = """
## What torch's exporter cannot export

| architecture | error |
|---|---|
"""


def reason(outcome: Outcome) -> str:
    return next(
        (short for words, short in REASONS.items() if words in outcome.why), outcome.why[:60]
    )


def cell(outcomes: list) -> str:
    """What became of one graph, in a few words."""
    refused = {}
    for outcome in outcomes:
        if outcome.verdict == REFUSED:
            refused.setdefault(reason(outcome), set()).add(outcome.checkpoint)
    kinds = {outcome.checkpoint for outcome in outcomes}
    parts = [
        short if places == kinds else f"{short} from {', '.join(sorted(places))}"
        for short, places in sorted(refused.items())
    ]
    return "; ".join(parts) or RIGHT


def row(name: str, found: list) -> str:
    if not found[0].graph:
        return f"| {name} | {found[0].why.replace('|', '/')} |"
    cells = [
        cell([o for o in found if o.graph == graph]) for graph in GRAPHS if graph not in HIDDEN
    ]
    return f"| {name} | {' | '.join(cells)} |"


def rows_of(page: Path) -> dict:
    """The row of each architecture."""
    lines = page.read_text().splitlines() if page.exists() else []
    return {line.split("|")[1].strip(): line for line in lines if line.startswith("| ")}


def write(page: Path, results: dict) -> None:
    """Rows of architectures that have no results stay."""
    rows = rows_of(page) | {name: row(name, found) for name, found in results.items()}
    rows = {name: rows[name] for name in sorted(rows) if name in ARCHITECTURES}
    cells = {name: text.count("|") - 2 for name, text in rows.items()}
    made = [rows[name] for name in rows if cells[name] > 1]
    failed = [rows[name] for name in rows if cells[name] == 1]
    columns = [graph for graph in GRAPHS if graph not in HIDDEN]
    table = [f"| architecture | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|", *made]
    page.write_text(HEAD + "\n".join(table) + "\n" + FAILED + "\n".join(failed) + "\n")
