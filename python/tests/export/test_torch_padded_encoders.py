"""Tests that graphs of nn.TransformerEncoder return zeros for padding, as in eval mode."""

from pathlib import Path
from typing import Any

import pytest

import onnx_external as oe

torch = pytest.importorskip("torch", minversion="2.9")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")


class Encoder(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self, norm: bool = False, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        last = torch.nn.LayerNorm(8) if norm else None
        self.layers = torch.nn.TransformerEncoder(layer, 2, norm=last, **options)

    def forward(self, x: Any, mask: Any) -> Any:
        return self.layers(x, src_key_padding_mask=mask)


def padded(*lengths: int, most: int = 5) -> Any:
    """Return token rows, and the mask of the padding after them."""
    return torch.rand(len(lengths), most, 8), torch.arange(most) >= torch.tensor(lengths)[:, None]


def masks() -> Any:
    x, mask = padded(3, 5, 1)
    yield x, mask
    yield x, torch.zeros_like(mask)  # no padding
    yield x, mask.flip(1)  # padding before the tokens, so no position is dropped
    yield padded(3, 0, 5)  # a row of padding only
    yield padded(1, most=1)
    yield x, torch.zeros(mask.shape).masked_fill(mask, float("-inf"))


@pytest.mark.parametrize(
    "options", [{}, {"norm": True}, {"enable_nested_tensor": False}, {"mask_check": False}]
)
def test_a_trace_computes_what_eval_mode_computes(options: Any) -> None:
    from onnx_external._tracing.padded_encoders import padding_is_zero

    module = Encoder(**options).eval()
    for number, (x, mask) in enumerate(masks()):
        if number in (2, 3) and options.keys() & {"mask_check", "enable_nested_tensor"}:
            continue  # the option does not concern these
        with torch.no_grad():
            wanted = module(x, mask)
            with padding_is_zero():
                found = module(x, mask)
        assert torch.allclose(found, wanted, atol=1e-5), number
        if number == 0 and not options:
            assert (wanted[mask] == 0).all() and (wanted[~mask] != 0).all()
    assert (module.layers.norm is None) == ("norm" not in options)


def test_an_encoder_with_padding_is_exported(tmp_path: Path) -> None:
    module, sets = Encoder(norm=True).eval(), [padded(4, 7, most=7), padded(2, most=3)]
    report = oe.torch.export(
        module, padded(3, 5, 1), tmp_path / "model.onnx", input_sets=sets, fsync=False
    )
    assert report.checked == 3 and report.notes == []
    other = padded(1, 2, 6, 4, most=6)
    front = other[0], other[1].flip(1)
    assert oe.validate(tmp_path / "model.onnx", module, [other, front]).ok
    assert oe.diagnose_export(module, [other]).ok
