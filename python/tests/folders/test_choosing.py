"""Tests of the choice between one graph and two for a decoder."""

from types import SimpleNamespace
from typing import Any

import pytest

import onnx_external as oe

pytest.importorskip("torch", minversion="2.11")
pytest.importorskip("transformers", minversion="5.20")
pytest.importorskip("onnxscript")

from onnx_external.transformers import _choosing


class Refusing:
    """Tracing methods that all fail."""

    tracing = SimpleNamespace(loaded=SimpleNamespace(model=None))

    def graph(self, name: str, part: Any) -> Any:
        raise oe.ExportError(f"{name}: it decides by a value")


@pytest.mark.parametrize(
    ("prompt", "asked", "told"),
    [({"input_ids": 1}, None, True), ({"input_ids": 1}, "one", False), (None, None, False)],
)
def test_the_refusal_of_a_graph_for_everything_names_two_graphs(
    prompt: Any, asked: Any, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: Any = Refusing()
    inputs: Any = None
    choice = _choosing.Choice(ways, inputs, asked)
    parts = {"model": SimpleNamespace(prompt=prompt, given={})}
    monkeypatch.setattr(choice, "_modules", lambda _: parts)
    monkeypatch.setattr(_choosing, "refuse_unseen", lambda *_: None)
    with pytest.raises(oe.ExportError, match="it decides by a value") as caught:
        choice.trace()
    assert ("graphs='two': a graph for the prompt" in str(caught.value)) == told
