"""Makes tiny models of GGUF architectures, as the converter of llama.cpp stores them.

Each maker returns the weights under the names of transformers; `stored` applies the converter's
rules to get the tensors of a file. The library implements the inverse of these rules.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
from gguf_files import Array

WIDTH, HEADS, KV_HEADS, SIZE, INNER, VOCABULARY, LAYERS, EXPERTS = 16, 4, 2, 6, 12, 10, 2, 3

Shapes = dict[str, tuple[int, ...]]


class Made(NamedTuple):
    metadata: dict[str, Any]
    weights: dict[str, Array]


def _attention(bias: bool = False, out_bias: bool = False, norms: bool = False) -> Shapes:
    queries, keys = HEADS * SIZE, KV_HEADS * SIZE
    shapes: Shapes = {
        "self_attn.q_proj.weight": (queries, WIDTH),
        "self_attn.k_proj.weight": (keys, WIDTH),
        "self_attn.v_proj.weight": (keys, WIDTH),
        "self_attn.o_proj.weight": (WIDTH, queries),
    }
    if bias:
        shapes |= {
            f"self_attn.{n}_proj.bias": (s,)
            for n, s in zip("qkv", (queries, keys, keys), strict=True)
        }
    if out_bias:
        shapes["self_attn.o_proj.bias"] = (WIDTH,)
    if norms:
        shapes |= {f"self_attn.{n}_norm.weight": (SIZE,) for n in "qk"}
    return shapes


def _norms(*names: str, bias: bool = False) -> Shapes:
    kinds = ("weight", "bias") if bias else ("weight",)
    return {f"{name}.{kind}": (WIDTH,) for name in names for kind in kinds}


_TWO = _norms("input_layernorm", "post_attention_layernorm")
_FOUR = _TWO | _norms("pre_feedforward_layernorm", "post_feedforward_layernorm")
_MLP: Shapes = {
    "mlp.gate_proj.weight": (INNER, WIDTH),
    "mlp.up_proj.weight": (INNER, WIDTH),
    "mlp.down_proj.weight": (WIDTH, INNER),
}
_PLAIN: Shapes = {"mlp.c_fc.weight": (INNER, WIDTH), "mlp.c_proj.weight": (WIDTH, INNER)}
_EXPERTS: Shapes = {
    f"mlp.experts.{e}.{name[4:]}": shape for e in range(EXPERTS) for name, shape in _MLP.items()
} | {"mlp.gate.weight": (EXPERTS, WIDTH)}
_MIXTRAL: Shapes = {
    f"block_sparse_moe.experts.{e}.{name}.weight": shape
    for e in range(EXPERTS)
    for name, shape in zip(("w1", "w3", "w2"), _MLP.values(), strict=True)
} | {"block_sparse_moe.gate.weight": (EXPERTS, WIDTH)}
_SHARED: Shapes = {f"mlp.shared_expert.{name[4:]}": shape for name, shape in _MLP.items()}
_GPT_OSS: Shapes = {
    "self_attn.sinks": (HEADS,),
    "mlp.router.weight": (EXPERTS, WIDTH),
    "mlp.router.bias": (EXPERTS,),
    "mlp.experts.gate_up_proj": (EXPERTS, WIDTH, 2 * INNER),
    "mlp.experts.gate_up_proj_bias": (EXPERTS, 2 * INNER),
    "mlp.experts.down_proj": (EXPERTS, INNER, WIDTH),
    "mlp.experts.down_proj_bias": (EXPERTS, WIDTH),
}
_PHI3: Shapes = {
    "self_attn.qkv_proj.weight": ((HEADS + 2 * KV_HEADS) * SIZE, WIDTH),
    "self_attn.o_proj.weight": (WIDTH, HEADS * SIZE),
    "mlp.gate_up_proj.weight": (2 * INNER, WIDTH),
    "mlp.down_proj.weight": (WIDTH, INNER),
}
_GPT2: Shapes = {
    "attn.c_attn.weight": (WIDTH, 3 * WIDTH),
    "attn.c_attn.bias": (3 * WIDTH,),
    "attn.c_proj.weight": (WIDTH, WIDTH),
    "attn.c_proj.bias": (WIDTH,),
    "mlp.c_fc.weight": (WIDTH, INNER),
    "mlp.c_fc.bias": (INNER,),
    "mlp.c_proj.weight": (INNER, WIDTH),
    "mlp.c_proj.bias": (WIDTH,),
}
_SHARED_GATE: Shapes = {"mlp.shared_expert_gate.weight": (1, WIDTH)}

# The shapes of a layer's weights, and whether the head is tied.
LAYER: dict[str, Shapes] = {
    "llama": _TWO | _attention() | _MLP,
    "llama with biases": _TWO | _attention(bias=True, out_bias=True) | _MLP,
    "mixtral": _TWO | _attention() | _MIXTRAL,
    "granite": _TWO | _attention() | _MLP,
    "qwen2": _TWO | _attention(bias=True) | _MLP,
    "qwen2moe": _TWO | _attention(bias=True) | _EXPERTS | _SHARED | _SHARED_GATE,
    "qwen3": _TWO | _attention(norms=True) | _MLP,
    "qwen3moe": _TWO | _attention(norms=True) | _EXPERTS,
    "gemma": _TWO | _attention() | _MLP,
    "gemma2": _FOUR | _attention() | _MLP,
    "gemma3": _FOUR | _attention(norms=True) | _MLP,
    "phi3": _TWO | _PHI3,
    "gpt2": _norms("ln_1", "ln_2", bias=True) | _GPT2,
    "starcoder2": _norms("input_layernorm", "post_attention_layernorm", bias=True)
    | _attention(bias=True, out_bias=True)
    | _PLAIN
    | {"mlp.c_fc.bias": (INNER,), "mlp.c_proj.bias": (WIDTH,)},
    "gpt-oss": _TWO | _attention(bias=True, out_bias=True) | _GPT_OSS,
}
TIED = ("gemma", "gemma2", "gemma3", "gpt2", "starcoder2")
PERMUTED = (
    "llama", "llama with biases", "mixtral",
    "arcee", "granite", "minicpm", "olmo", "smollm3", "xverse",
)  # fmt: skip
WITH_EXPERTS = ("mixtral", "qwen2moe", "qwen3moe", "gpt-oss")


def make(kind: str, width: int = WIDTH) -> Made:
    """Make a model; return its metadata, and its weights with transformers' names and layout."""
    architecture = "llama" if kind in ("mixtral", "llama with biases") else kind
    numbers: dict[str, Any] = {
        "block_count": LAYERS,
        "context_length": 32,
        "embedding_length": width,
        "feed_forward_length": INNER,
        "attention.head_count": HEADS,
        "attention.head_count_kv": HEADS if kind == "gpt2" else KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    if kind != "gpt2":
        numbers |= {"attention.key_length": SIZE, "attention.value_length": SIZE}
    if kind in WITH_EXPERTS:
        numbers |= {"expert_count": EXPERTS, "expert_used_count": 2}
    metadata = {"general.architecture": architecture}
    metadata |= {f"{architecture}.{key}": value for key, value in numbers.items()}
    random = np.random.default_rng(len(kind))
    top: Shapes = {"model.embed_tokens.weight": (VOCABULARY, WIDTH), "model.norm.weight": (WIDTH,)}
    if kind == "gpt2":
        top = {
            "transformer.wte.weight": (VOCABULARY, WIDTH),
            "transformer.wpe.weight": (32, WIDTH),
            **_norms("transformer.ln_f", bias=True),
        }
    if kind == "starcoder2":
        top["model.norm.bias"] = (WIDTH,)
    if kind not in TIED:
        top["lm_head.weight"] = (VOCABULARY, WIDTH)
    layers = "transformer.h" if kind == "gpt2" else "model.layers"
    shapes = top | {
        f"{layers}.{i}.{name}": shape for i in range(LAYERS) for name, shape in LAYER[kind].items()
    }
    sizes = {n: [width if d == WIDTH else d for d in s] for n, s in shapes.items()}
    weights = {n: random.standard_normal(s).astype(np.float32) for n, s in sizes.items()}
    return Made(metadata, weights)


# The names of a layer's weights in llama.cpp.
_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.router": "ffn_gate_inp",
    "block_sparse_moe.gate": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
    "ln_1": "attn_norm",
    "ln_2": "ffn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "w1": "ffn_gate",
    "w2": "ffn_down",
    "w3": "ffn_up",
    "gate_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "down_proj": "ffn_down",
}
_TOP = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
}


def permuted(rows: Array, heads: int) -> Array:
    """Return the rows in the order in which llama.cpp rotates pairs of rows."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def stored(
    kind: str, weights: dict[str, Array], *, single_experts: bool = False
) -> dict[str, Array]:
    """Return the tensors of a GGUF file with these weights."""
    tensors: dict[str, Array] = {}
    stacks: dict[str, list[Array]] = {}
    for name, weight in weights.items():
        layer = re.fullmatch(r"(?:model\.layers|transformer\.h)\.(\d+)\.(.+)", name)
        if layer is None:
            base, suffix = name.rsplit(".", 1)
            value = weight + np.float32(1) if _adds_one(kind, base, suffix) else weight
            tensors[f"{_TOP[base]}.{suffix}"] = value
            continue
        prefix, rest = f"blk.{layer[1]}.", layer[2]
        if expert := re.fullmatch(r".*\.experts\.(\d+)\.(\w+)\.weight", rest):
            base = _NAMES[expert[2]]
            if single_experts:
                tensors[f"{prefix}{base}.{expert[1]}.weight"] = weight
            else:
                stacks.setdefault(f"{prefix}{base}_exps.weight", []).append(weight)
        elif ".experts." in rest or rest == "self_attn.sinks":
            tensors |= _of_gpt_oss(prefix, rest, weight)
        else:
            base, suffix = rest.rsplit(".", 1)
            gguf, value = _of_layer(kind, base, suffix, weight)
            tensors[f"{prefix}{gguf}.{suffix}"] = value
    return tensors | {name: np.stack(experts) for name, experts in stacks.items()}


def _adds_one(kind: str, base: str, suffix: str) -> bool:
    adds = kind.startswith("gemma") or kind == "nemotron"
    return adds and base.endswith("norm") and suffix == "weight"


def _of_layer(kind: str, base: str, suffix: str, weight: Array) -> tuple[str, Array]:
    name = _NAMES[base]
    if base == "post_attention_layernorm" and kind in ("gemma2", "gemma3", "gpt-oss"):
        name = "post_attention_norm"
    if kind in PERMUTED and name in ("attn_q", "attn_k"):
        weight = permuted(weight, HEADS if name == "attn_q" else KV_HEADS)
    if _adds_one(kind, base, suffix):
        weight = weight + np.float32(1)
    if kind == "gpt2" and weight.ndim == 2:
        weight = weight.T
    return name, weight[0] if base == "mlp.shared_expert_gate" else weight


def _of_gpt_oss(prefix: str, name: str, weight: Array) -> dict[str, Array]:
    if name == "self_attn.sinks":
        return {f"{prefix}attn_sinks.weight": weight}
    suffix = "bias" if name.endswith("_bias") else "weight"
    if "down" in name:
        value = weight if suffix == "bias" else weight.swapaxes(1, 2)
        return {f"{prefix}ffn_down_exps.{suffix}": value}
    return {
        f"{prefix}ffn_{half}_exps.{suffix}": weight[..., i::2]
        if suffix == "bias"
        else weight[..., i::2].swapaxes(1, 2)
        for i, half in enumerate(("gate", "up"))
    }
