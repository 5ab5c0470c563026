"""Reports as HTML pages."""

from __future__ import annotations

import json
from typing import Any

from .. import _core


class Paged:
    """A report that can be viewed in a browser."""

    _verified: str | None = None
    """The model, or its folder, whose tensors are on the page of a verification."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists."""
        raise NotImplementedError

    def html(self, title: str | None = None) -> str:
        """Return the report as one self-contained HTML page, which needs no network.

        docs/cli.md describes it. A page contains at most 16 MiB of the report, and notes what it
        leaves out; `to_dict()` has everything.

        Args:
            title: the heading; None for the model's path, or else the kind of report.
        """
        found = self.to_dict()
        known = title or found.get("model") or found.get("folder") or self._verified
        told = str(known or type(self).__name__).encode("utf-8", "replace").decode()  # no text?
        document = json.dumps(found, allow_nan=False)
        if self._verified is None:
            return _core.page(told, document)
        return _core.page(told, document, self._verified)
