import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


@pytest.fixture(scope="session")
def kept_conversions() -> Iterator[None]:
    from onnx_external.torch._conversions import conversions_kept

    with conversions_kept():
        yield


@pytest.fixture(autouse=True)
def conversions(request: pytest.FixtureRequest) -> None:
    """Make torch.onnx read its functions once for all tests, instead of 0.5 s per export."""
    if sys.modules.get("onnxscript"):
        request.getfixturevalue("kept_conversions")


@pytest.fixture(autouse=True)
def frozen(module_count: list[int]) -> None:
    """Freeze imported objects: collecting them would take a third of an export's time."""
    if len(sys.modules) > module_count[0] + 20:
        gc.collect()
        gc.freeze()
        module_count[0] = len(sys.modules)


@pytest.fixture(scope="session")
def module_count() -> list[int]:
    """Return a list with the number of modules at the last freeze."""
    return [0]


@pytest.fixture
def tiny() -> Path:
    """Return a graph without weights, and its checkpoint."""
    return FIXTURES / "tiny"


@pytest.fixture
def bad() -> Path:
    """Return a folder of damaged and malicious checkpoints."""
    return FIXTURES / "bad"


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Collect whether each save by the extension module is a dry run."""
    from onnx_external import _core

    found, plain = [], _core.save

    def save(*given: Any) -> str:
        found.append(given[-1]["dry_run"])
        return plain(*given)

    monkeypatch.setattr(_core, "save", save)
    return found
