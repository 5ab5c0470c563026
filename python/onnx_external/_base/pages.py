"""Formats reports as HTML pages."""

from __future__ import annotations

import json
from typing import Any

from .. import _core


class Paged:
    """A report that can be viewed in a browser."""

    _verified: str | None = None
    """The model, or its folder, whose tensors the page of a verification shows."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain dicts and lists."""
        raise NotImplementedError

    def html(self, title: str | None = None) -> str:
        """Return the report as one self-contained HTML page, which needs no network access.

        docs/cli.md describes the page. The page contains at most 16 MiB of the report, and says if
        anything is left out; `to_dict()` contains everything.

        Args:
            title: the heading. None: the model's path, or the kind of report if there is no path.
        """
        found = self.to_dict()
        known = title or found.get("model") or found.get("folder") or self._verified
        told = str(known or type(self).__name__).encode("utf-8", "replace").decode()  # no text?
        document = json.dumps(found, allow_nan=False)
        if self._verified is None:
            return _core.page(told, document)
        return _core.page(told, document, self._verified)
