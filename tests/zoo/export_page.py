"""docs/zoo-export.md: what becomes of every architecture's folder, as the last full run found it."""

from pathlib import Path

from architectures import ARCHITECTURES
from folder_trial import Outcome
from trial import REFUSED

HEAD = """# The zoo, from its folders

Each architecture of [the zoo](zoo.md) is saved with `save_pretrained`, and that folder goes through
`oe.transformers.export(folder, out)`, without weights in memory. `tests/zoo` judges each graph: it
must be verified, every parameter must have the bytes that `from_pretrained` gives it, and ONNX
Runtime must compute what the loaded model computes, for the inputs that `generate()` really gives
(prefill, one step of decoding, two at once), with 3 rows of 11 words and 1 row of 5. The export saw
2 rows of 8 words. The judge must see that other weights, and other inputs, give other numbers.
Nothing may be left in the output folder of what is refused.

    sh tests/campaign.sh zoo                                       all of them, and this page anew

| column | |
|---|---|
| graphs | those that were made, all of them right |
| do not vary | dimensions of inputs that the trace has fixed, and that keep their size here |
| difference | the largest to torch, as a part of the output's largest value; 1e-4 is allowed |

"""

TABLE = """| architecture | graphs | do not vary | difference |
|---|---|---|---|
"""

BFLOAT16 = """
## Folders of bfloat16

The graphs that keep the folder's type behind a Cast are compared byte by byte. With
`dtype="float32"` the weights are converted while they are written, and ONNX Runtime
must compute what `from_pretrained(dtype=torch.float32)` computes (1e-4).

| architecture | graphs with the bytes of bfloat16 | do not vary | difference in float32 |
|---|---|---|---|
"""

FAILED = """
## What is refused

| architecture | error |
|---|---|
"""


def _below(far: float) -> str:
    power = next(power for power in (7, 6, 5, 4) if far < 10.0**-power or power == 4)
    return f"< 1e-{power}"


def row(name: str, found: list[Outcome]) -> str:
    """The row of an architecture, or of its folder of bfloat16."""
    refused = [outcome.why for outcome in found if outcome.verdict == REFUSED]
    if refused:
        return f"| {name} | {refused[0].replace('|', '/')} |"
    graphs = list(dict.fromkeys(outcome.graph for outcome in found))
    fixed = {f"{each.split(' = ')[0]} of {o.graph}" for o in found for each in o.fixed}
    fixed = ", ".join(f"`{each.replace(' of ', '` of ')}" for each in sorted(fixed)) or "none"
    return f"| {name} | {', '.join(graphs)} | {fixed} | {_below(max(o.far for o in found))} |"


def same(one: str, other: str | None) -> bool:
    """Whether rows say the same, apart from the difference, which depends on the machine."""
    return other is not None and one.split("|")[:4] == other.split("|")[:4]


def rows_of(page: Path) -> dict:
    """The row of each architecture."""
    lines = page.read_text().splitlines() if page.exists() else []
    return {line.split("|")[1].strip(): line for line in lines if line.startswith("| ")}


def write(page: Path, results: dict) -> None:
    """Rows of architectures that have no results stay."""
    rows = rows_of(page) | {name: row(name, found) for name, found in results.items()}
    rows = {name: rows[name] for name in sorted(rows) if name.removesuffix(SUFFIX) in ARCHITECTURES}
    made = {name: text for name, text in rows.items() if text.count("|") > 3}
    parts = [HEAD + TABLE, *_lines(made, "", SUFFIX), BFLOAT16, *_lines(made, SUFFIX), FAILED]
    page.write_text("".join(parts + [f"{rows[name]}\n" for name in rows if name not in made]))


def _lines(rows: dict, ending: str, but: str = "") -> list:
    return [
        f"{text}\n"
        for name, text in rows.items()
        if name.endswith(ending) and not (but and name.endswith(but))
    ]


SUFFIX = "_bfloat16"
