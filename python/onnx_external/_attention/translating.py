"""Translation of the attention operator to one node: of ONNX Runtime, or of ONNX 23."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal, TypeAlias

from ..torch._exact_translations import operators
from .operator import cached_attention

Form: TypeAlias = Literal["fused", "lengths", "standard", "traced"]
"""The form of a decoder's attention; see `oe.transformers.export`."""
ATTENTION = "onnx_external.attention"
"""The metadata of a model that names the form of its attention."""
STANDARD_OPSET = 23
"""The first version of ONNX that has Attention."""
DOMAIN = "com.microsoft"
NAME = "GroupQueryAttention"


def translations(form: Form) -> dict[Any, Callable[..., Any]]:
    """Return torch.onnx.export's translation of the operator."""
    made = _standard if form == "standard" else _grouped
    return {torch_operator(): made}


def torch_operator() -> Any:
    """Return the operator as it appears in a traced program."""
    import torch

    assert cached_attention is not None
    return torch.ops.onnx_external.cached_attention.default


def _grouped(
    query: Any,
    key: Any,
    value: Any,
    past_key: Any,
    past_value: Any,
    bias: Any,
    last: Any,
    total: Any,
    sinks: Any,
    scale: float,
    softcap: float,
    window: int,
) -> Sequence[Any]:
    """Make a GroupQueryAttention, which takes the heads of a token side by side."""
    op = operators()
    heads, size = query.shape[1], query.shape[3]
    options: dict[str, Any] = {"num_heads": heads, "kv_num_heads": key.shape[1], "scale": scale}
    if softcap:
        options["softcap"] = softcap
    if window >= 0:
        options["local_window_size"] = window
    given = [_side_by_side(each) for each in (query, key, value)]
    more = [None, None, None, bias, sinks]
    while more and more[-1] is None:
        more.pop()
    result, *present = _node()(*given, past_key, past_value, last, total, *more, **options)
    result.dtype = query.dtype
    return [op.Reshape(result, op.Constant(value_ints=[0, 0, heads, size])), *present]


def _side_by_side(states: Any) -> Any:
    op = operators()
    width = states.shape[1] * states.shape[3]
    by_token = op.Transpose(states, perm=[0, 2, 1, 3])
    return op.Reshape(by_token, op.Constant(value_ints=[0, 0, width]))


def _standard(
    query: Any,
    key: Any,
    value: Any,
    past_key: Any,
    past_value: Any,
    bias: Any,
    last: Any,
    total: Any,
    sinks: Any,
    scale: float,
    softcap: float,
    window: int,
) -> Sequence[Any]:
    """Make an Attention of ONNX 23, whose mask is the bias."""
    from onnxscript import opset23

    options: dict[str, Any] = {"scale": scale, **({"softcap": softcap} if softcap else {})}
    given = (query, key, value, bias, past_key, past_value)
    result, longer_key, longer_value, *_ = opset23.Attention(*given, **options)
    result.dtype = query.dtype
    return [operators().Transpose(result, perm=[0, 2, 1, 3]), longer_key, longer_value]


@cache
def _node() -> Any:
    """Return a function that makes a GroupQueryAttention node, for which onnx has no schema."""
    import onnx
    from onnxscript import values

    defs = onnx.defs
    parameter, attribute = defs.OpSchema.FormalParameter, defs.OpSchema.Attribute
    kind = defs.OpSchema.FormalParameterOption
    taken = [
        ("query", "T"), ("key", "T"), ("value", "T"), ("past_key", "T"), ("past_value", "T"),
        ("seqlens_k", "M"), ("total_sequence_length", "M"), ("cos_cache", "T"), ("sin_cache", "T"),
        ("position_ids", "P"), ("attention_bias", "T"), ("head_sink", "T"),
    ]  # fmt: skip
    floats = ["tensor(float)", "tensor(float16)", "tensor(bfloat16)"]
    schema = defs.OpSchema(
        NAME,
        DOMAIN,
        1,
        inputs=[parameter(name, of, param_option=kind.Optional) for name, of in taken],
        outputs=[parameter(name, "T") for name in ("output", "present_key", "present_value")],
        type_constraints=[
            ("T", floats, ""),
            ("M", ["tensor(int32)"], ""),
            ("P", ["tensor(int64)"], ""),
        ],
        attributes=[
            attribute("num_heads", defs.OpSchema.AttrType.INT, "", required=True),
            attribute("kv_num_heads", defs.OpSchema.AttrType.INT, "", required=True),
            attribute("scale", defs.OpSchema.AttrType.FLOAT, "", required=False),
            attribute("softcap", defs.OpSchema.AttrType.FLOAT, "", required=False),
            attribute("local_window_size", defs.OpSchema.AttrType.INT, "", required=False),
        ],
    )
    return values.Op(values.Opset(DOMAIN, 1), NAME, schema)
