"""docs/zoo-repeat.md: which graphs of the zoo have repeated layers, as the last runs found it."""

from dataclasses import dataclass
from pathlib import Path

from architectures import ARCHITECTURES

REPEATED, IN_FULL, WRONG = "repeated", "in full", "WRONG"

HEAD = """# The zoo with repeated layers

Architectures of [the zoo](zoo.md), each with more layers (of each stage) than two, are exported
from a folder twice: with [repeated layers](python-export.md#deep-models), and with a full trace.
The two graphs must have the same inputs, outputs, weights, nodes, forms and metadata, and the
repeated one must be right on ONNX Runtime. "Static" is for the sizes of the example only.

    sh tests/campaign.sh repeat             all of them, eight layers deep, and this page anew

"""


@dataclass(frozen=True)
class Verdict:
    """What became of an architecture."""

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


def _row(found: Verdict, how: str) -> str:
    why = found.why.replace("traced in full, not repeated: ", "").replace("|", "/")
    verdict = "repeated, equal" if found.kind == REPEATED else found.kind
    graphs = ", ".join(found.repeated) or "none", ", ".join(found.whole) or "none"
    return f"| {' | '.join((found.name, verdict, how, *graphs, why[:300] or 'none'))} |"


def write(page: Path, found: list, how: str) -> None:
    """Put rows into the page; those of other architectures stay.

    Args:
        page: the page.
        found: verdicts.
        how: how many layers the models had, and whether sizes varied.
    """
    lines = page.read_text().splitlines() if page.exists() else []
    rows = {line.split("|")[1].strip(): line for line in lines if line.startswith("| ")}
    rows.pop("architecture", None)
    rows |= {each.name: _row(each, how) for each in found}
    kinds = [row.split("|")[2].strip() for row in rows.values()]
    equal = sum(kind.startswith(REPEATED) for kind in kinds)
    counts = f"{len(rows)} of {len(ARCHITECTURES)} were compared: {equal} are repeated and equal, "
    counts += f"{kinds.count(IN_FULL)} traced in full, {kinds.count(WRONG)} wrong.\n\n"
    titles = "| architecture | outcome | models | repeated | traced in full | why, or what is wrong |"
    table = [titles, "|---|---|---|---|---|---|", *(rows[name] for name in sorted(rows))]
    page.write_text(HEAD + counts + "\n".join(table) + "\n")
