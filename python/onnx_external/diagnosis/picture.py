"""A picture of the modules of a diagnosis: a tree whose leaves are the rows of a table.

A module is a box beside those inside of it, so it is as high as all their rows together. What the
picture says does not depend on colors alone: boxes have marks and numbers, too.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

from .picture_text import FONT, escaped, shortened, text_width, tooltip, wrapped
from .picture_tree import SHADES, WRONG, Node, Pictured, tree_of

__all__ = ["SVG_START", "picture"]

SVG_START = '<svg xmlns="http://www.w3.org/2000/svg"'

_MARGIN, _LEFT, _LINE = 16, 30, 13
_ROW = 18
_NARROWEST, _WIDEST, _ALL_COLUMNS = 24, 150, 1000
_CLASS = 84
_REPEAT = 36 * _ROW
"""A box that is higher than a screen has its name several times."""
_OVERVIEW_FROM = 40
"""Rows, about a screen."""
_OVERVIEW_HEIGHT = 60
_NARROWEST_PICTURE = 960


class _Drawing:
    """One picture."""

    def __init__(self, report: Pictured) -> None:
        self._report = report
        self._nodes = tree_of(report.modules)
        self._rows = sum(not node.inside for node in self._nodes)
        name = None if report.first is None else report.first.name
        self._first = next((node for node in self._nodes if node.module.name == name), None)
        self._columns = self._place_columns()
        self._table = self._place_table()
        self._right = max(self._table[-1], _NARROWEST_PICTURE)
        self._out: list[str] = []

    def _place_columns(self) -> list[int]:
        """Where each depth of the tree begins."""
        widths = [0.0] * (1 + max((node.depth for node in self._nodes), default=0))
        for node in self._nodes:
            if node.inside:
                more = min(max(text_width(node.module.cls), text_width(node.times)), _CLASS)
                width = max(text_width(node.title, True), more) + 16
                widths[node.depth] = max(widths[node.depth], width)
        widest = max(_NARROWEST, min(_WIDEST, _ALL_COLUMNS // len(widths)))
        places = [_LEFT]
        for width in widths:
            places.append(places[-1] + math.ceil(min(max(width, _NARROWEST), widest)))
        return places

    def _place_table(self) -> list[int]:
        """Where the columns beside the tree begin, and the last one ends."""
        leaves = [node for node in self._nodes if not node.inside]
        name = max(
            (self._columns[n.depth] + min(text_width(n.title), 260) for n in leaves), default=0
        )
        places = [math.ceil(name) + 22]
        cells = [[node.module.cls, *(node.figures or ["", "", ""])] for node in leaves]
        titles = ["class", "difference : tolerance", "largest difference", "output"]
        for number, title in enumerate(titles):
            longest = max((text_width(each[number]) for each in cells), default=0)
            width = max(min(longest, 230), text_width(title))
            places.append(places[-1] + math.ceil(width) + 18)
        self._titles = titles
        return places

    def draw(self) -> str:
        """Return the document."""
        y = self._add_heading()
        y = self._add_legend(y)
        if self._rows > _OVERVIEW_FROM:
            y = self._add_overview(y)
        y = self._add_tree(y)
        return "".join([*self._start(self._right + _MARGIN, y + _MARGIN), *self._out, "</svg>\n"])

    def _start(self, width: int, height: int) -> Iterator[str]:
        title = escaped(f"{self._file}: {shortened(self._report.sentence, 3000)}")
        yield (
            f'{SVG_START} width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'role="img">\n<title>{title}</title>\n<style>\n'
            "text{font-family:'Segoe UI',Roboto,Helvetica,Arial,'DejaVu Sans',sans-serif;"
            f"font-size:{FONT}px;fill:#1b2631}}\n"
            ".t{stroke:#fff;stroke-width:.8} .h{font-weight:600} .q{fill-opacity:.7} "
            ".first{fill:none;stroke:#1b2631;stroke-width:2.5} a text{fill:#0b4f8a} "
            ".edge{fill:none;stroke:#9fb0bd;stroke-width:.6}\n"
        )
        used = {node.shade for node in self._nodes} | {node.worst for node in self._nodes}
        for key in sorted(used):
            shade = SHADES[key]
            fill = f"url(#p{key})" if shade.stripes else shade.color
            yield f".k{key}{{fill:{fill}}}"
            if shade.stripes:  # bars and overviews are too small for stripes
                yield f" path.k{key}{{fill:{shade.stripes}}}"
            yield f" .t{key} text{{fill:{shade.text}}}\n" if shade.text == "#fff" else "\n"
        yield "</style>\n"
        for key in sorted(used):
            shade = SHADES[key]
            if shade.stripes:
                turn = 45 if key == "x" else -45
                yield (
                    f'<pattern id="p{key}" width="7" height="7" patternUnits="userSpaceOnUse" '
                    f'patternTransform="rotate({turn})"><path fill="{shade.color}" d="M0 0h7v7h-7z"'
                    f'/><path fill="{shade.stripes}" d="M0 0h1.5v7h-1.5z"/></pattern>\n'
                )
        yield '<rect width="100%" height="100%" fill="#fff"/>\n'

    @property
    def _file(self) -> str:
        """The model's name and its folder's."""
        return "/".join(self._report.model.replace(os.sep, "/").split("/")[-2:])

    def _add_text(self, x: float, y: float, text: str, attributes: str = "") -> None:
        self._out.append(f'<text{attributes} x="{x:g}" y="{y:g}">{escaped(text)}</text>\n')

    def _add_heading(self) -> int:
        room = self._right - _MARGIN
        name = shortened(self._file, room * FONT / 19)
        self._add_text(_MARGIN, 30, name, ' class="h" style="font-size:18px"')
        y = 36
        self._out.append('<a href="#first">' if self._first is not None else "<g>")
        for line in wrapped(self._report.sentence, room * FONT / 13, 4):
            y += 17
            self._add_text(_MARGIN, y, line, ' style="font-size:13px"')
        self._out.append("</a>\n" if self._first is not None else "</g>\n")
        return y

    def _add_legend(self, y: int) -> int:
        x, y = _MARGIN, y + 14
        items = []
        for key, shade in SHADES.items():
            count = sum(node.shade == key for node in self._nodes)
            if count:
                items.append((key, f"{shade.told}: {count}"))
        if self._first is not None:
            items.append(("first", "the first that goes wrong"))
        for key, told in items:
            width = 17 + math.ceil(text_width(told)) + 16
            if x + width > self._right and x > _MARGIN:
                x, y = _MARGIN, y + 18
            kind = key if key == "first" else f"k{key}"
            self._out.append(f'<rect class="{kind}" x="{x}" y="{y}" width="12" height="12"/>')
            if key == "i":
                bar = max((n.worst for n in self._nodes if n.shade == "i"), key=WRONG.find)
                self._out.append(f'<path class="k{bar}" d="M{x} {y}h4v12h-4z"/>')
            elif key in "abcdnsx":
                self._out.append(f'<path class="edge" d="M{x} {y}h12v12h-12z"/>')
            self._add_text(x + 17, y + 10, told)
            x += width
        return y + 12

    def _add_overview(self, y: int) -> int:
        """All modules on one screen, from left to right as they stand below."""
        y += 22
        self._add_text(_MARGIN, y, "All modules, from left to right:", ' class="q"')
        y += 12
        levels = len(self._columns) - 1
        level = max(1.5, min(8.0, _OVERVIEW_HEIGHT / levels))
        scale = (self._right - _MARGIN) / self._rows
        height = level * levels
        parts: dict[str, list[str]] = {}
        for node in self._nodes:
            key = node.shade
            width = max(scale * node.rows, 2.0 if key in WRONG else 0.0)
            top = y + level * node.depth
            high = level if node.inside else y + height - top
            box = (
                f"M{_MARGIN + scale * node.row:.1f} {top:.1f}h{width:.2f}v{high:.1f}h-{width:.2f}z"
            )
            parts.setdefault(key, []).append(box)
        for key in sorted(parts, key=WRONG.find):  # what is wrong comes last
            self._out.append(f'<path class="k{key}" d="{"".join(parts[key])}"/>\n')
        if self._first is not None:
            x = _MARGIN + scale * (self._first.row + self._first.rows / 2)
            self._out.append(f'<path d="M{x:.1f} {y - 1}l-4 -7h8z"/>\n')
        return math.ceil(y + height)

    def _add_tree(self, y: int) -> int:
        y += 24
        if not self._nodes:
            self._add_text(_MARGIN, y, "no modules", ' class="q"')
            return y
        for x, title in zip(self._table, self._titles, strict=False):
            self._add_text(x, y, title, ' class="q"')
        y += 6
        for node in self._nodes:
            self._add_box(node, y + _ROW * node.row)
        if self._first is not None:
            node = self._first
            x, top, high = self._columns[node.depth], y + _ROW * node.row, _ROW * node.rows
            wide = self._box_width(node)
            self._out.append(
                f'<path d="M{x - 12} {top + 4}l9 5l-9 5z"/>\n<rect id="first" class="first" '
                f'x="{x}" y="{top}" width="{wide}" height="{high}"/>\n'
            )
        return y + _ROW * self._rows

    def _box_width(self, node: Node) -> int:
        end = self._columns[node.depth + 1] if node.inside else self._right
        return end - self._columns[node.depth]

    def _add_box(self, node: Node, y: int) -> None:
        x, high, key = self._columns[node.depth], _ROW * node.rows, node.shade
        self._out.append(
            f'<g class="t{key}"><title>{escaped(tooltip(node))}</title>'
            f'<rect class="t k{key}" x="{x}" y="{y}" width="{self._box_width(node)}" '
            f'height="{high}"/>'
        )
        if node.bar:
            self._out.append(f'<path class="k{node.bar}" d="M{x} {y}h5v{high}h-5z"/>')
        if node.inside:
            for top in range(y, y + high, _REPEAT):
                if top == y or y + high - top > 4 * _ROW:
                    self._add_label(node, x, top)
        else:
            self._add_row(node, x, y)
        self._out.append("</g>\n")

    def _add_label(self, node: Node, x: int, y: int) -> None:
        """The name of a module that has others inside, and more if there is space."""
        room = self._box_width(node) - 14
        more = [node.module.cls, node.times if node.figures else node.reason]
        lines = [shortened(node.title, room / 1.07, middle=True)]
        lines += [shortened(each, room) for each in more if each][: node.rows - 1]
        told = f'<text class="h" x="{x + 8}" y="{y + 13}">{escaped(lines[0])}</text>'
        for number, line in enumerate(lines[1:], 1):
            if line:
                at = y + 13 + _LINE * number
                told += f'<text class="q" x="{x + 8}" y="{at}">{escaped(line)}</text>'
        self._out.append(told)

    def _add_row(self, node: Node, x: int, y: int) -> None:
        """The name of a module, and its row of the table."""
        places, bold = self._table, ' class="h"' if node.shade in WRONG else ""
        cells = [shortened(node.title, places[0] - x - 12, middle=True), node.module.cls]
        if node.figures:
            cells += node.figures
        else:
            cells.append(node.reason)
        told = f'<text{bold} x="{x + 8}" y="{y + 13}">{escaped(cells[0])}'
        for number, cell in enumerate(cells[1:]):
            last = number == len(cells) - 2
            end = self._right if last else places[number + 1]
            shown = escaped(shortened(cell, end - places[number] - 8))
            told += f'<tspan class="q" x="{places[number]}">{shown}</tspan>' if shown else ""
        self._out.append(told + "</text>")


def picture(report: Pictured) -> str:
    """Return an SVG document: the modules of a report, and how far from right each is.

    It is well-formed whatever the names contain, has no scripts and no references to other files,
    and depends only on the report.
    """
    return _Drawing(report).draw()
