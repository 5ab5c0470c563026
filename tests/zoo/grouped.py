"""Reads and writes tables of docs/constructs.md, in which architectures with the same outcome share a row."""

from pathlib import Path


def rows_of(page: Path, mark: str) -> dict:
    """Return a separate row for each architecture: `| name | cells |`."""
    rows = {}
    for line in _parts(page, mark)[1].splitlines():
        *cells, names = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and names != "architectures":
            rows |= {name: f"| {name} | {' | '.join(cells)} |" for name in names.split(", ")}
    return rows


def write(page: Path, mark: str, rows: dict, columns: list) -> None:
    """Put rows between the marks of the page; those with one cell are errors, in a second table."""
    groups: dict = {}
    for name, row in sorted(rows.items()):
        cells = row.removeprefix(f"| {name} | ").removesuffix(" |")
        groups.setdefault(cells, []).append(name)
    by_size = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    made = [group for group in by_size if " | " in group[0]]
    failed = [group for group in by_size if " | " not in group[0]]
    tables = _table(columns, made) + ("\n" + _table(["error"], failed) if failed else "")
    before, _, after = _parts(page, mark)
    page.write_text(before + tables + after)


def _table(columns: list, groups: list) -> str:
    head = f"| {' | '.join(columns)} | architectures |\n{'|---' * (len(columns) + 1)}|\n"
    return head + "".join(f"| {cells} | {', '.join(names)} |\n" for cells, names in groups)


def _parts(page: Path, mark: str) -> tuple[str, str, str]:
    """Return the page before, between and after the marks. The marks belong to the outer parts."""
    begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->\n"
    before, _, rest = page.read_text().partition(begin)
    between, _, after = rest.partition(end)
    return before + begin, between, end + after
