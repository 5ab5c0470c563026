"""Tests of the config.json that is made from the keys and tensors of GGUF files."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_external as oe
from onnx_external._folders.gguf.config import config_of
from onnx_external._folders.gguf.metadata import Metadata

FILE = Path("m.gguf")
EMBEDDING = {"model.embed_tokens.weight": (300, 64)}
ATTENTION = "model.layers.0.self_attn"
MLP = "model.layers.0.mlp"


def keys(architecture: str, **more: Any) -> dict[str, Any]:
    """Return the metadata of a decoder; `__` in a keyword stands for a dot."""
    own = {
        "context_length": 512,
        "embedding_length": 64,
        "block_count": 6,
        "feed_forward_length": 96,
        "attention__head_count": 4,
        "attention__head_count_kv": 2,
        "attention__layer_norm_rms_epsilon": float(np.float32(1e-5)),
        **more,
    }
    named = {f"{architecture}.{name.replace('__', '.')}": each for name, each in own.items()}
    return {"general.architecture": architecture, **named}


def made(given: dict[str, Any], **shapes: tuple[int, ...]) -> dict[str, Any]:
    return config_of(Metadata(FILE, given), EMBEDDING | shapes)


def with_tensors(given: dict[str, Any], *names: str) -> dict[str, Any]:
    return config_of(Metadata(FILE, given), EMBEDDING | dict.fromkeys(names, (64,)))


def test_sizes_come_from_keys_and_the_vocabulary_from_the_embeddings() -> None:
    found = made(keys("llama", vocab_size=512))
    assert (found["model_type"], found["architectures"]) == ("llama", ["LlamaForCausalLM"])
    assert (found["hidden_size"], found["intermediate_size"]) == (64, 96)
    assert (found["num_attention_heads"], found["num_key_value_heads"]) == (4, 2)
    assert (found["head_dim"], found["vocab_size"], found["num_hidden_layers"]) == (16, 300, 6)
    assert found["rms_norm_eps"] == 1e-5
    assert found["rope_parameters"] == {"rope_theta": 10000.0, "rope_type": "default"}
    assert found["tie_word_embeddings"] is True
    assert with_tensors(keys("llama"), "lm_head.weight")["tie_word_embeddings"] is False


def test_a_list_of_one_number_for_each_layer_counts_if_all_are_the_same() -> None:
    assert made(keys("llama", attention__head_count_kv=[2] * 6))["num_key_value_heads"] == 2
    with pytest.raises(oe.ExportError, match="head_count_kv differs from layer to layer"):
        made(keys("llama", attention__head_count_kv=[2, 2, 1, 2, 2, 2]))


def test_tokens_that_the_vocabulary_does_not_have_are_left_out() -> None:
    tokens = {f"tokenizer.ggml.{name}_token_id": 7 for name in ("bos", "eos")}
    found = made(keys("llama") | tokens | {"tokenizer.ggml.padding_token_id": 300})
    assert (found["bos_token_id"], found["eos_token_id"], found["pad_token_id"]) == (7, 7, None)


def test_biases_of_llama_are_those_that_the_file_has() -> None:
    attention = [f"{ATTENTION}.{each}_proj.bias" for each in "qkvo"]
    mlp = [f"{MLP}.{each}_proj.bias" for each in ("gate", "up", "down")]
    found = with_tensors(keys("llama"), *attention, *mlp)
    assert (found["attention_bias"], found["mlp_bias"]) == (True, True)
    assert with_tensors(keys("llama"))["attention_bias"] is False
    # Without the bias of the output, the attention is that of Qwen 2.
    assert with_tensors(keys("llama"), *attention[:3])["model_type"] == "qwen2"


def test_llama_with_experts_is_mixtral_and_with_a_window_mistral() -> None:
    found = made(keys("llama", expert_count=8, expert_used_count=2))
    assert found["model_type"] == "mixtral"
    assert (found["num_local_experts"], found["num_experts_per_tok"]) == (8, 2)
    found = made(keys("llama", attention__sliding_window=128))
    assert (found["model_type"], found["sliding_window"]) == ("mistral", 128)


@pytest.mark.parametrize(("architecture", "normed"), [("qwen2moe", False), ("qwen3moe", True)])
def test_weights_of_experts_are_normed_by_the_architecture(architecture: str, normed: bool) -> None:
    given = keys(
        architecture,
        expert_count=8,
        expert_used_count=2,
        expert_feed_forward_length=32,
        expert_shared_feed_forward_length=48,
    )
    assert made(given)["norm_topk_prob"] is normed
    assert made(given)["moe_intermediate_size"] == 32
    given[f"{architecture}.expert_weights_norm"] = not normed
    assert made(given)["norm_topk_prob"] is not normed


def test_gemma_2_has_softcaps_and_every_other_layer_slides() -> None:
    given = keys(
        "gemma2",
        attention__key_length=32,
        attention__value_length=32,
        attn_logit_softcapping=50.0,
        final_logit_softcapping=float(np.float32(30.1)),
        attention__sliding_window=8,
    )
    found = made(given)
    assert (found["attn_logit_softcapping"], found["final_logit_softcapping"]) == (50.0, 30.1)
    assert found["layer_types"] == ["sliding_attention", "full_attention"] * 3
    assert (found["head_dim"], found["query_pre_attn_scalar"]) == (32, 32)
    largest = made(given | {"gemma2.block_count": 46})
    assert largest["query_pre_attn_scalar"] == 64 // 4


def test_gemma_3_has_two_rotary_embeddings_of_which_one_is_scaled() -> None:
    scaling = {"rope__scaling__type": "linear", "rope__scaling__factor": 8.0}
    found = made(keys("gemma3", rope__freq_base=1e6, attention__sliding_window=8, **scaling))
    assert found["rope_parameters"] == {
        "full_attention": {"rope_theta": 1e6, "rope_type": "linear", "factor": 8.0},
        "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
    }
    assert found["layer_types"] == ["sliding_attention"] * 5 + ["full_attention"]
    assert found["final_logit_softcapping"] is None


@pytest.mark.parametrize("pattern", [3, [True, True, False, True, True, False]])
def test_a_file_may_say_which_layers_slide(pattern: Any) -> None:
    found = made(keys("gemma3", attention__sliding_window_pattern=pattern))
    assert found["layer_types"] == ["sliding_attention", "sliding_attention", "full_attention"] * 2
    with pytest.raises(oe.FormatError, match="2 values for 6 layers"):
        made(keys("gemma3", attention__sliding_window_pattern=[True, False]))


def test_gpt_oss_does_not_round_the_range_of_yarn() -> None:
    found = made(
        keys(
            "gpt-oss",
            rope__scaling__type="yarn",
            rope__scaling__factor=32.0,
            rope__scaling__original_context_length=64,
            rope__freq_base=150000.0,
            expert_count=4,
            expert_used_count=2,
            expert_feed_forward_length=80,
        )
    )
    assert found["rope_parameters"] == {
        "rope_theta": 150000.0,
        "rope_type": "yarn",
        "factor": 32.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
    }
    assert (found["intermediate_size"], found["num_local_experts"]) == (80, 4)
    qwen = made(keys("qwen3", rope__scaling__type="yarn", rope__scaling__factor=4.0))
    assert "truncate" not in qwen["rope_parameters"]


def test_phi_3_has_factors_for_long_and_short_texts_and_may_rotate_a_part() -> None:
    long, short = [1.0, 1.9, 2.8, 3.7, 4.6, 5.5], [1.0, 1.05, 1.1, 1.15, 1.2, 1.25]
    given = keys("phi3", rope__dimension_count=12, rope__scaling__original_context_length=256)
    factors = {"long": long, "short": short}
    for name, each in factors.items():
        given[f"rope_factors_{name}.weight"] = [float(np.float32(one)) for one in each]
    usual = math.sqrt(1 + math.log(512 / 256) / math.log(256))
    rope = made(given | {"phi3.rope.scaling.attn_factor": float(np.float32(usual))})
    assert rope["rope_parameters"] == {
        "rope_theta": 10000.0,
        "rope_type": "longrope",
        "long_factor": long,
        "short_factor": short,
        "original_max_position_embeddings": 256,
        "partial_rotary_factor": 0.75,
    }
    other = made(given | {"phi3.rope.scaling.attn_factor": 1.5})["rope_parameters"]
    assert other["attention_factor"] == 1.5
    del given["rope_factors_short.weight"]
    with pytest.raises(oe.FormatError, match="only one kind"):
        made(given)


def divisors_of_llama3(factor: float, low: float, high: float, original: int) -> list[float]:
    """Return the divisors that a converter writes for heads of size 64 and a base of 500000."""
    found = []
    for number in range(32):
        wave = 2 * math.pi * 500000.0 ** (number / 32)
        smooth = (original / wave - low) / (high - low)
        middle = 1 / ((1 - smooth) / factor + smooth)
        each = 1.0 if wave < original / high else factor if wave > original / low else middle
        found.append(float(np.float32(each)))
    return found


@pytest.mark.parametrize("numbers", [(8.0, 1.0, 4.0, 8192), (32.0, 1.0, 4.0, 8192)])
def test_divisors_of_frequencies_lead_back_to_the_settings_of_llama_3(numbers: Any) -> None:
    given = keys("llama", rope__freq_base=500000.0, attention__key_length=64)
    given |= {"llama.attention.value_length": 64}
    given["rope_freqs.weight"] = divisors_of_llama3(*numbers)
    rope = made(given)["rope_parameters"]
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    assert rope["rope_type"] == "llama3" and tuple(rope[name] for name in names) == numbers


def test_other_divisors_are_kept() -> None:
    divisors = [1.0, 1.5, 1.25, 2.0, 3.0, 2.5, 4.0, 8.0]
    rope = made(keys("llama") | {"rope_freqs.weight": divisors})["rope_parameters"]
    assert (rope["rope_type"], rope["attention_factor"]) == ("longrope", 1.0)
    assert rope["long_factor"] == rope["short_factor"] == divisors
    plain = made(keys("llama") | {"rope_freqs.weight": [1.0] * 8})["rope_parameters"]
    assert plain["rope_type"] == "default"


@pytest.mark.parametrize("name", ["rope__scaling__factor", "rope__scale_linear"])
def test_a_factor_without_a_type_is_linear(name: str) -> None:
    rope = made(keys("llama", **{name: 4.0}))["rope_parameters"]
    assert (rope["rope_type"], rope["factor"]) == ("linear", 4.0)


def test_gpt_2_and_starcoder_2_have_norms_of_their_own() -> None:
    norm = {"attention__layer_norm_epsilon": float(np.float32(1e-5))}
    found = config_of(Metadata(FILE, keys("gpt2", **norm)), {"transformer.wte.weight": (300, 64)})
    assert (found["n_embd"], found["n_layer"], found["n_head"], found["n_positions"]) == (
        64, 6, 4, 512,
    )  # fmt: skip
    assert found["layer_norm_epsilon"] == 1e-5
    found = with_tensors(keys("starcoder2", **norm), f"{ATTENTION}.q_proj.bias")
    assert (found["norm_epsilon"], found["use_bias"]) == (1e-5, True)


REFUSED = [
    ({"general.architecture": "zebra"}, oe.ExportError, "'zebra'"),
    ({"general.architecture": ["llama"]}, oe.FormatError, "general.architecture"),
    ({"llama.block_count": "2"}, oe.FormatError, "block_count: '2'"),
    ({"llama.block_count": 0}, oe.FormatError, "block_count: 0"),
    ({"llama.block_count": None}, oe.FormatError, "block_count: missing"),
    ({"llama.attention.layer_norm_rms_epsilon": None}, oe.FormatError, "rms_epsilon: missing"),
    ({"llama.rope.freq_base": math.nan}, oe.FormatError, "freq_base: nan"),
    ({"llama.attention.head_count": 3}, oe.FormatError, "3 heads do not divide a width of 64"),
    ({"llama.attention.value_length": 8}, oe.ExportError, "keys and the values"),
    ({"llama.rope.dimension_count": 8}, oe.ExportError, "rope.dimension_count is 8"),
    ({"llama.rope.scaling.type": "other"}, oe.ExportError, "rope.scaling.type is 'other'"),
    ({"rope_freqs.weight": [1.0, 2.0]}, oe.FormatError, "2 factors for 8 frequencies"),
    ({"rope_freqs.weight": [-1.0] * 8}, oe.FormatError, "expected positive numbers"),
    (
        {"rope_freqs.weight": [2.0] * 8, "llama.rope.scaling.factor": 2.0},
        oe.ExportError,
        "rope_freqs.weight and a rope.scaling of the type linear",
    ),
]


@pytest.mark.parametrize(("change", "kind", "text"), REFUSED)
def test_what_cannot_be_described_is_an_error(
    change: dict[str, Any], kind: type[oe.Error], text: str
) -> None:
    given = {name: each for name, each in (keys("llama") | change).items() if each is not None}
    with pytest.raises(kind, match=text) as caught:
        made(given)
    assert str(caught.value).startswith("m.gguf: ")


def test_a_file_without_embeddings_has_no_language_model() -> None:
    with pytest.raises(oe.FormatError, match="token_embd"):
        config_of(Metadata(FILE, keys("llama")), {})


def test_settings_that_nothing_reads_are_listed() -> None:
    given = keys("llama", logit_scale=0.5, expert_group_count=0, tensor_data_layout="reference")
    file = Metadata(FILE, given)
    config_of(file, EMBEDDING)
    assert file.unknown() == ["llama.logit_scale"]


def test_granite_and_minicpm_have_factors() -> None:
    scales = {"embedding_scale": 12.0, "residual_scale": 0.25, "logit_scale": 8.0}
    for architecture in ("granite", "minicpm"):
        found = made(keys(architecture, **scales))
        assert (found["embedding_multiplier"], found["residual_multiplier"]) == (12.0, 0.25)
        assert (found["logits_scaling"], found["attention_multiplier"]) == (8.0, 0.25)
    assert made(keys("granite", attention__scale=0.5))["attention_multiplier"] == 0.5
    with pytest.raises(oe.FormatError, match="embedding_scale: missing"):
        made(keys("minicpm"))


def test_relatives_of_llama_have_what_their_classes_differ_in() -> None:
    norm = {"attention__layer_norm_epsilon": float(np.float32(1e-5))}
    assert made(keys("arcee"))["hidden_act"] == "relu2"
    assert made(keys("smollm3"))["no_rope_layer_interval"] == 4
    assert made(keys("olmo", attention__clamp_kqv=8.0, **norm))["clip_qkv"] == 8.0
    found = made(keys("nemotron", rope__dimension_count=8, **norm))
    assert (found["rope_parameters"]["partial_rotary_factor"], found["norm_eps"]) == (0.5, 1e-5)
    with pytest.raises(oe.ExportError, match="OLMo"):
        made(keys("olmo", attention__layer_norm_epsilon=1e-6))
