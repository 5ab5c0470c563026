"""Tests of the operator for fused attention in all its forms, compared with a loop in numpy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", minversion="2.11")
pytest.importorskip("transformers", minversion="5.20")
onnxruntime = pytest.importorskip("onnxruntime", minversion="1.27")

from onnx_external._attention.operator import cached_attention  # noqa: E402
from onnx_external._attention.translating import translations  # noqa: E402

_LOWEST = float(np.finfo(np.float32).min)
_HEADS, _OTHERS, _SIZE, _SCALE = 6, 2, 8, 0.3


class _Attention(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, softcap: float, window: int, names: tuple[str, ...]) -> None:
        super().__init__()
        self._options, self._names = (softcap, window), names

    def forward(self, *given: Any) -> Any:
        found = dict(zip(self._names, given, strict=True))
        bias, sinks = found.pop("bias", None), found.pop("sinks", None)
        last, total = found.pop("last"), found.pop("total")
        return cached_attention(*found.values(), bias, last, total, sinks, _SCALE, *self._options)


def _inputs(rows: int, new: int, past: int, kind: str, extreme: float) -> dict[str, Any]:
    """Return inputs by name, with scores of the given size and differently padded rows."""
    draw = np.random.default_rng(rows + 10 * new + 100 * past)
    sizes = {"query": (_HEADS, new), "key": (_OTHERS, new), "value": (_OTHERS, new)}
    sizes |= {"past_key": (_OTHERS, past), "past_value": (_OTHERS, past)}
    found = {
        name: draw.standard_normal((rows, heads, count, _SIZE)).astype(np.float32)
        for name, (heads, count) in sizes.items()
    }
    found["query"] *= extreme
    total = past + new
    if kind != "lengths":
        mask = np.ones((rows, 1, new, total), bool) & (np.tri(total, dtype=bool)[past:])
        mask[0, :, :, : min(2, total - 1)] &= total > 3  # like padding in the middle of a row
        mask[-1, :, :, :1] = False  # like padding before a row
        found["bias"] = np.where(mask, np.float32(0), np.float32(_LOWEST))
        found["bias"] = found["bias"] + draw.standard_normal((1, _HEADS, 1, total)).astype("f4")
    found["last"] = np.full(rows, total - 1, np.int32)
    found["total"] = np.array(total, np.int32)
    if kind == "sinks":
        found["sinks"] = np.linspace(-3, 20, _HEADS).astype(np.float32)
    return found


def _by_hand(given: dict[str, Any], softcap: float, window: int) -> Any:
    """Compute attention token by token in float64; NaN for tokens that attend to nothing."""
    query, bias = given["query"].astype(float), given.get("bias")
    keys = np.concatenate([given["past_key"], given["key"]], 2).astype(float)
    values = np.concatenate([given["past_value"], given["value"]], 2).astype(float)
    past, (rows, heads, new, size) = given["past_key"].shape[2], query.shape
    found = np.full((rows, new, heads, size), np.nan)
    for row, head, token in np.ndindex(rows, heads, new):
        place, other = past + token, head * _OTHERS // _HEADS
        seen = [at for at in range(place + 1) if window < 0 or at > place - window]
        added = np.zeros(place + 1)
        if bias is not None:
            added = np.broadcast_to(bias, (rows, heads, new, past + new))[row, head, token]
            seen = [at for at in seen if added[at] > _LOWEST / 2]
        if not seen:
            continue
        scores = keys[row, other, seen] @ query[row, head, token] * _SCALE
        scores = np.tanh(scores / softcap) * softcap if softcap else scores
        scores = scores + added[seen]
        weights = np.exp(scores - scores.max())
        whole = weights.sum()
        if "sinks" in given:
            whole += np.exp(float(given["sinks"][head]) - scores.max())
        found[row, token, head] = weights / whole @ values[row, other, seen]
    return found, keys, values


def _check(got: Any, wanted: Any) -> None:
    result, keys, values = (np.asarray(each) for each in got)
    seen = ~np.isnan(wanted[0])
    assert seen.mean() > 0.5
    assert np.abs(result - wanted[0])[seen].max() < 2e-5
    assert np.array_equal(keys, wanted[1].astype("f4"))
    assert np.array_equal(values, wanted[2].astype("f4"))


def _session(form: Any, kind: str, softcap: float, window: int, folder: Path) -> Any:
    example = {n: torch.from_numpy(v) for n, v in _inputs(2, 3, 4, kind, 1.0).items()}
    varies = torch.export.Dim.AUTO
    dims = {name: {0: varies, 2: varies} for name in example}
    dims |= {"bias": {0: varies, 2: varies, 3: varies}, "last": {0: varies}, "total": {}}
    dims |= {"sinks": {}}
    program = torch.onnx.export(
        _Attention(softcap, window, tuple(example)).eval(),
        tuple(example.values()),
        dynamo=True,
        verbose=False,
        input_names=list(example),
        dynamic_shapes=(tuple(dims[name] for name in example),),
        custom_translation_table=translations(form),
        opset_version=23 if form == "standard" else 20,
    )
    program.save(folder / "model.onnx")
    return onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])


CASES = [
    ("fused", "plain", 0.0),
    ("fused", "sinks", 0.0),
    ("fused", "plain", 5.0),
    ("standard", "plain", 5.0),
    ("lengths", "lengths", 0.0),
    ("lengths", "lengths", 5.0),
]
SIZES = [(2, 5, 0), (1, 4, 3), (3, 1, 6), (1, 1, 1)]


@pytest.mark.parametrize(("form", "kind", "softcap"), CASES)
def test_each_form_gives_what_a_loop_gives(
    form: str, kind: str, softcap: float, tmp_path: Path
) -> None:
    window = 3 if form == "lengths" else -1
    session = _session(form, kind, softcap, window, tmp_path)
    taken = {each.name for each in session.get_inputs()}
    for sizes in SIZES:
        for extreme in (1.0, 40.0):
            given = _inputs(*sizes, kind, extreme)
            feed = {name: value for name, value in given.items() if name in taken}
            wanted = _by_hand(given, softcap, window)
            _check(session.run(None, feed), wanted)
            tensors = [torch.from_numpy(each) for each in given.values()]
            _check(_Attention(softcap, window, tuple(given))(*tensors), wanted)


def test_a_token_that_sees_nothing_gets_zeros() -> None:
    given = _inputs(2, 5, 0, "plain", 1.0)
    tensors = [torch.from_numpy(each) for each in given.values()]
    result, _, _ = _Attention(0.0, -1, tuple(given))(*tensors)
    assert not result[-1, 0].any() and result[-1, 1].any()
