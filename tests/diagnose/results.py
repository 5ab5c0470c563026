"""Write the page of the campaign `diagnose`, which shows which planted faults oe.diagnose found.

usage: results.py PAGE ROWS.json...      writes the page from rows of campaign.py --rows
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

from faults import KINDS

HEAD = """# Faults that were planted, and what diagnose says

Small models of docs/constructs.md are exported from their folders by `oe.transformers.export`. On
the graphs as they are, `oe.diagnose` must find nothing wrong, for both input
sets. Then faults are planted, one at a time, in the model file or its data; the reference stays
right. A seed draws the module first and then the place in it, over all modules and graphs
(`tests/diagnose/faults.py`).

| fault | |
|---|---|
| element | twice its root mean square, at least 2, is added to one element of a weight |
| swap | two weights of one shape are in each other's place |
| transpose | a square weight is transposed |
| setting | an epsilon, axis, permutation or constant of one node is another |
| operator | a node computes another function: Sub for Add, Cos for Sin |
| overflow | a value beyond 65,504 is cast to float16 and back |

For `overflow` a weight of some module is made so large, in the reference and the graph alike, that
values exceed what float16 holds. That graph, too, is checked to be right.

What is right is judged without diagnose: ONNX Runtime computes every value of the whole graph,
with the fault and without it, and the module that must be named is the innermost one of the faulty
node or weight if one of its outputs differs by more than twice the tolerance. Of two swapped
weights it is the module that returns first, and both must be among those that the report lists as
wrong. A fault that shows nowhere (the row of a word that no input has, a constant of a mask) is
drawn anew; the last column counts these.

    sh tests/campaign.sh diagnose                                all of them, and this page anew

"""
COLUMNS = ["sound", *KINDS]
TABLE = f"""| model | {" | ".join(COLUMNS)} | hidden |
|---|{"---|" * len(COLUMNS)}---|
"""
MISSES = """
## What is not named

"""
MISSES_TABLE = """| model | fault | must be named | is named |
|---|---|---|---|
"""


def counts(rows: list) -> str:
    found: dict[str, int] = {}
    for row in rows:
        found[row.verdict] = found.get(row.verdict, 0) + 1
    return ", ".join(f"{number} {verdict}" for verdict, number in sorted(found.items()))


def column(row: object) -> str:
    return row.kind.partition(",")[0]


def is_right(row: object) -> bool:
    return row.verdict == "hit" and row.listed


def cell(rows: list, kind: str) -> str:
    """Return the number of right results and of all results."""
    found = [row for row in rows if column(row) == kind and row.verdict != "no place"]
    right = sum(map(is_right, found))
    return f"{right}/{len(found)}" if found else "-"


def line(name: str, rows: list) -> str:
    hidden = sum(len(row.hidden) for row in rows)
    cells = " | ".join(cell(rows, kind) for kind in COLUMNS)
    return f"| {name} | {cells} | {hidden} |\n"


def miss(row: object) -> str:
    what = row.kind if row.kind.startswith("sound") else f"{row.kind} of {row.place}"
    told = "nothing" if row.found is None else row.found or "the model itself"
    if row.verdict in ("error", "wrong"):
        told = row.sentence.splitlines()[-1]
    elif row.verdict == "hit":
        told += ", but not the other"
    name = f"{row.model} ({row.graph})"
    return f"| {name} | {what} | {row.expected or 'nothing'} | {told.replace('|', '/')} |\n"


def write(page: Path, rows: list) -> None:
    names = sorted({row.model for row in rows})
    lines = [line(name, [row for row in rows if row.model == name]) for name in names]
    misses = [miss(row) for row in rows if row.verdict != "no place" and not is_right(row)]
    more = sum(bool(row.others) for row in rows)
    told = f"\n{more} of {len(rows)} reports list modules without a fault behind the first one.\n"
    end = MISSES_TABLE + "".join(misses) if misses else "Every fault that shows is named.\n"
    page.write_text(HEAD + TABLE + "".join([*lines, line("all", rows)]) + told + MISSES + end)


if __name__ == "__main__":
    found = [SimpleNamespace(**each) for path in sys.argv[2:] for each in json.load(open(path))]
    write(Path(sys.argv[1]), found)
