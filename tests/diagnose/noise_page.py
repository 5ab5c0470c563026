"""Write the page of the campaign `noise`, which shows what noise in one weight was found."""

from pathlib import Path

HEAD = """# Noise in one weight, beside masked outputs

Small models of docs/constructs.md are exported once each. `oe.validate` and
`oe.diagnose` must find nothing wrong with the graph as it is, beside the
module that it was exported from. Then the first output is masked: a part of its elements (25, 50 or
95 %, drawn by a seed) is replaced on both sides by the lowest float32, -1e9, -1e4 or -inf, or has
-1e9 or -1e4 added. That, too, must agree.

Then one weight gets noise: each element w becomes w * (1 + 0.05 n), where n is standard normal. The
reference stays right. `oe.validate` must find the plain and the masked graph wrong, and
`oe.diagnose(strategy="failing")` the plain one. A seed draws the weight among all of the graph's
with 4 or more elements. One that cannot reach the output (the row of a word that no input has, a
bias of keys that softmax cancels) is no fault, and another is drawn: ONNX Runtime judges this, by a
change of less than 1e-6 of the largest element. The column "controls" counts these.

"Change" is the largest change of an element that is not masked, as a part of the largest element of
the output. All of it takes 23 minutes beside other work (2 cores).

    sh tests/campaign.sh noise                                  all of them, and this page anew

"""
TABLE = """| model | weight | change | masked by | share | controls | sound | noise |
|---|---|---|---|---|---|---|---|
"""
SOUND = ("sound", "masked", "diagnosed")
NOISE = ("noise", "noise_masked", "noise_diagnosed")


def sound(row: object) -> int:
    """Return the number of right verdicts on correct models."""
    return sum(getattr(row, each) == "ok" for each in SOUND)


def found(row: object) -> int:
    """Return the number of right verdicts on the noise."""
    return sum(getattr(row, each).startswith("found") for each in NOISE)


def is_right(row: object) -> bool:
    return not row.error and sound(row) == len(SOUND) and found(row) == len(NOISE)


def line(row: object) -> str:
    cells = [row.model, f"`{row.weight}`", f"{row.change:.0e}", row.fill, f"{row.share:.2f}",
             len(row.controls), f"{sound(row)}/{len(SOUND)}", f"{found(row)}/{len(NOISE)}"]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |\n"


def told(row: object) -> str:
    """Return the cases with a wrong verdict."""
    wrong = [f"{each}: {getattr(row, each)}" for each in SOUND if getattr(row, each) != "ok"]
    wrong += [each for each in NOISE if not getattr(row, each).startswith("found")]
    return f"* {row.model}: {row.error.splitlines()[-1] if row.error else '; '.join(wrong)}\n"


def write(page: Path, rows: list) -> None:
    sums = [
        f"{sum(getattr(row, each) == 'ok' for row in rows)} of {len(rows)}" for each in SOUND
    ] + [f"{sum(getattr(row, each).startswith('found') for row in rows)} of {len(rows)}"
         for each in NOISE]  # fmt: skip
    summary = f"""
| | `validate` | `validate`, masked | `diagnose` |
|---|---|---|---|
| sound: agrees | {sums[0]} | {sums[1]} | {sums[2]} |
| noise: found | {sums[3]} | {sums[4]} | {sums[5]} |
"""
    misses = "".join(told(row) for row in rows if not is_right(row))
    end = f"\n## What was judged wrong\n\n{misses}" if misses else ""
    page.write_text(HEAD + TABLE + "".join(map(line, rows)) + summary + end)
