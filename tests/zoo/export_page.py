"""Write and read the table of docs/constructs.md on exporting, with which each run is compared."""

from pathlib import Path

import grouped
from architectures import ARCHITECTURES
from folder_trial import Outcome
from trial import REFUSED

MARK = "exported"
SUFFIX = "_bfloat16"


def row(name: str, found: list[Outcome]) -> str:
    """Return the row of an architecture, or of its folder in bfloat16."""
    refused = [outcome.why for outcome in found if outcome.verdict == REFUSED]
    if refused:
        return f"| {name} | {refused[0].replace('|', '/')} |"
    graphs = list(dict.fromkeys(outcome.graph for outcome in found))
    fixed = {f"{each.split(' = ')[0]} of {o.graph}" for o in found for each in o.fixed}
    fixed = ", ".join(f"`{each.replace(' of ', '` of ')}" for each in sorted(fixed)) or "none"
    return f"| {name} | {', '.join(graphs)} | {fixed} |"


def rows_of(page: Path) -> dict:
    """Return the row of each architecture."""
    return grouped.rows_of(page, MARK)


def write(page: Path, results: dict) -> None:
    """Write the rows of the results; those of architectures that have none stay."""
    rows = rows_of(page) | {name: row(name, found) for name, found in results.items()}
    known = {name: each for name, each in rows.items() if name.removesuffix(SUFFIX) in ARCHITECTURES}
    grouped.write(page, MARK, known, ["graphs", "sizes that do not vary"])
