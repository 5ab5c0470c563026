from pathlib import Path

import pytest

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


@pytest.fixture
def tiny() -> Path:
    """A graph without weights, and its checkpoint."""
    return FIXTURES / "tiny"


@pytest.fixture
def bad() -> Path:
    """Damaged and hostile checkpoints."""
    return FIXTURES / "bad"
