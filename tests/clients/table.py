"""Writes the table of docs/consumers.md with the result of each client for each model."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

Cells = dict[tuple[str, str], str]
"""By client with its version, and model."""
BEGIN, END = "<!-- tests/clients/clients.py -->\n", "<!-- end -->\n"
NOT_FOR = "-"
WRONG = "no: "
_LONGEST = 90
_NOTED = re.compile(r"no \((\d+)\)")


def renew(page: Path, cells: Mapping[tuple[str, str], str], clients: Sequence[str], models: Sequence[str]) -> None:
    """Write the cells into the table of a page. Cells of other clients and models stay.

    Cells from another version of a client are removed.
    """
    before, _, rest = page.read_text().partition(BEGIN)
    old, _, after = rest.partition(END)
    found = {**read(old), **cells}
    page.write_text(f"{before}{BEGIN}{_table(found, clients, models)}{END}{after}")


def read(text: str) -> Cells:
    """Return the cells of a table."""
    first, *rows = [_split(line) for line in text.splitlines() if line.startswith("| ")] or [[""]]
    notes = dict(re.findall(r"^(\d+)\. (.*)$", text, re.M))
    found = {}
    for *row, models in rows:
        for client, cell in zip(first, row, strict=False):
            noted = _NOTED.fullmatch(cell)
            for model in models.split(", "):
                found[client, model] = f"{WRONG}{notes[noted[1]]}" if noted else cell
    return found


def _split(line: str) -> list[str]:
    return [each.strip() for each in line.strip("|").split("|")]


def _table(cells: Cells, clients: Sequence[str], models: Sequence[str]) -> str:
    """Return the table and the reasons below it."""
    notes: list[str] = []
    lines = [f"| {' | '.join(clients)} | models |", "|" + "---|" * (len(clients) + 1)]
    alike: dict[str, list[str]] = {}
    for model in models:
        row = [_shown(cells.get((client, model), NOT_FOR), notes) for client in clients]
        alike.setdefault(" | ".join(row), []).append(model)
    alike.pop(" | ".join([NOT_FOR] * len(clients)), None)  # models that no client has opened yet
    lines += [f"| {row} | {', '.join(names)} |" for row, names in alike.items()]
    reasons = [f"{number}. {note}" for number, note in enumerate(notes, 1)]
    return "\n".join([*lines, *([""] if reasons else []), *reasons, ""])


def _shown(cell: str, notes: list[str]) -> str:
    if not cell.startswith(WRONG):
        return cell
    note = cell.removeprefix(WRONG)[:_LONGEST]
    if note not in notes:
        notes.append(note)
    return f"no ({notes.index(note) + 1})"
