"""Applies the patches that transformers ships for exports."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator
from typing import Any

from .report import AppliedPatch, places_of


def _targets(backend: str) -> Iterator[tuple[Any, str, str]]:
    from transformers.exporters import utils

    for path, attribute, _ in utils._PATCHES.get(backend, []):
        package, _, _ = path.partition(".")
        if package not in sys.modules:
            continue
        owner = utils.import_dotted_path(path, missing_ok=True)
        if owner is not None:
            yield owner, attribute, f"{path}.{attribute}"


@contextlib.contextmanager
def transformers_patched(applied: list[AppliedPatch]) -> Iterator[None]:
    """Apply transformers' own patches, if a version that has them is imported.

    Args:
        applied: the list to which an entry for each applied patch is appended.
    """
    if "transformers" not in sys.modules:  # a module that needs them has imported it
        yield
        return
    try:
        from transformers.exporters import (
            exporter_dynamo,  # noqa: F401  # registers its patches
            utils,
        )
    except ImportError:  # older than 5
        yield
        return
    with utils.apply_patches("dynamo"):
        for owner, attribute, name in _targets("dynamo"):
            code = getattr(inspect.unwrap(getattr(owner, attribute)), "__code__", None)
            why = "transformers replaces it while it exports"
            applied.append(AppliedPatch("transformers", name, why, places_of(code)))
        yield
