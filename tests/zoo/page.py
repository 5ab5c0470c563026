"""Write and read the table of docs/constructs.md on saving, with which each run is compared."""

from pathlib import Path

import grouped
from architectures import ARCHITECTURES
from trial import GRAPHS, REFUSED, RIGHT, Outcome

# The reasons of refusals, by words in the first line. The first match counts.
REASONS = {
    "BatchNorm folded": "fused",
    "in another shape": "reshaped",
    "merged with a constant": "shared",
    "the size of a tensor that changes": "computed",
    "that change and are not in the graph": "computed",
    "several keys of the old checkpoint": "equal",
    "but key '": "reshaped",
    "computed at export": "computed",
    "would become outdated": "computed",
    "lacks": "missing",
    "without its constants": "missing",
    "missing from the checkpoint": "missing",
    "not used by the graph": "unused",
    "fits any slot": "missing",
    "--layout link": "link",
}

HIDDEN = ("default bare",)  # always refused

MARK = "saved"


def reason(outcome: Outcome) -> str:
    return next(
        (short for words, short in REASONS.items() if words in outcome.why), outcome.why[:60]
    )


def cell(outcomes: list) -> str:
    """Return the verdict on one graph, in a few words."""
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
    """Return the row of each architecture."""
    return grouped.rows_of(page, MARK)


def write(page: Path, results: dict) -> None:
    """Write the rows of the results; those of architectures that have none stay."""
    rows = rows_of(page) | {name: row(name, found) for name, found in results.items()}
    rows = {name: text for name, text in rows.items() if name in ARCHITECTURES}
    grouped.write(page, MARK, rows, [graph for graph in GRAPHS if graph not in HIDDEN])
