"""Write the page of the campaign `repeat`: which graphs of the zoo have repeated layers."""

from dataclasses import dataclass
from pathlib import Path

from architectures import ARCHITECTURES

REPEATED, IN_FULL, WRONG = "repeated", "in full", "WRONG"

HEAD = """# The zoo with repeated layers

Architectures of docs/constructs.md, each with more layers (of each stage) than two, are exported
from a folder twice: with repeated layers, and with a full trace.
The two graphs must have the same inputs, outputs, weights, nodes, forms and metadata, and the
repeated one must be right on ONNX Runtime.

    sh tests/campaign.sh repeat             all of them, eight layers deep, and this page anew

Models that are traced in full have no list of layers that are alike, or what they do between or
beside their layers is not shown by fewer of them.
"""
STATIC, VARY = "For the sizes of the example", "With sizes that vary"
TITLES = "| architecture | outcome | layers | repeated | traced in full | why, or what is wrong |"


@dataclass(frozen=True)
class Verdict:
    """The verdict on an architecture."""

    name: str
    kind: str
    repeated: tuple[str, ...]
    """Graphs."""
    whole: tuple[str, ...]
    """Those that were traced in full."""
    why: str
    """Why they were, or what is wrong."""

    def line(self) -> str:
        return f"{self.name}  {self.kind}  {', '.join(self.repeated)}  {self.why}"


def _row(found: Verdict, depth: int) -> str:
    why = found.why.replace("traced in full, not repeated: ", "").replace("|", "/")
    verdict = "repeated, equal" if found.kind == REPEATED else found.kind
    graphs = ", ".join(found.repeated) or "none", ", ".join(found.whole) or "none"
    return f"| {' | '.join((found.name, verdict, str(depth), *graphs, why[:300] or 'none'))} |"


def _tables(page: Path) -> dict[str, dict[str, str]]:
    """Return the rows of the page, by heading and architecture."""
    found: dict[str, dict[str, str]] = {STATIC: {}, VARY: {}}
    heading = ""
    for line in page.read_text().splitlines() if page.exists() else []:
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        elif line.startswith("| ") and line != TITLES and heading in found:
            found[heading][line.split("|")[1].strip()] = line
    return found


def _counts(rows: dict[str, str]) -> str:
    kinds = [row.split("|")[2].strip() for row in rows.values()]
    equal = sum(kind.startswith(REPEATED) for kind in kinds)
    return (
        f"{len(rows)} of {len(ARCHITECTURES)} were compared: {equal} are repeated and equal, "
        f"{kinds.count(IN_FULL)} traced in full, {kinds.count(WRONG)} wrong."
    )


def write(page: Path, found: list[Verdict], depth: int, static: bool) -> None:
    """Put rows into the page; those of other architectures stay.

    Args:
        page: the page.
        found: verdicts.
        depth: how many layers the models had.
        static: whether they are for the sizes of the example.
    """
    tables = _tables(page)
    tables[STATIC if static else VARY].update({each.name: _row(each, depth) for each in found})
    lines = [HEAD.rstrip("\n")]
    for heading, rows in tables.items():
        lines += ["", f"## {heading}", "", _counts(rows), "", TITLES, "|---|---|---|---|---|---|"]
        lines += [rows[name] for name in sorted(rows)]
    page.write_text("\n".join(lines) + "\n")
