"""Loads patches that another package ships, written as classes (see `custom`)."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

from ..._base.errors import InvalidArgumentError
from .custom import MethodPatch, Skipped, method_patches, patches_in

_PLACES = {"onnx_diagnostic": "onnx_diagnostic.torch_export_patches.patches"}
"""The supported packages, and the modules that contain their patches."""


def patches_of(source: str) -> tuple[list[MethodPatch], list[Skipped]]:
    """Return the patches in a package, and those that do not fit the installed versions.

    Args:
        source: the name of the package.

    Raises:
        InvalidArgumentError: the package is unknown, or not installed.
    """
    if source not in _PLACES:
        raise InvalidArgumentError(f"source: expected {' or '.join(_PLACES)}, not {source!r}")
    try:
        place = importlib.import_module(_PLACES[source])
    except Exception as error:  # whatever it needs, or does while it is imported
        raise InvalidArgumentError(
            f"source: {source} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    skipped: list[Skipped] = []
    found = (each for module in _modules(place, skipped) for each in patches_in(module))
    methods, others = method_patches(dict.fromkeys(found), strict=False)
    return methods, skipped + others


def _modules(place: ModuleType, skipped: list[Skipped]) -> Iterator[ModuleType]:
    """Yield the modules of a package, except modules for other versions that fail to import."""
    yield place
    for each in pkgutil.iter_modules(getattr(place, "__path__", ())):
        name = f"{place.__name__}.{each.name}"
        try:
            yield importlib.import_module(name)
        except Exception as error:  # of whatever kind
            skipped.append(Skipped(name, f"it cannot be imported: {error}"))
