"""E: tiny models of transformers 5 classes with control flow, and inputs of several sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from entries import ENTRIES, Entry
from torch import nn

WORDS = 60


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(4, WORDS - 4, shape)


def texts(*sizes: tuple[int, int]) -> Callable[[], list[dict[str, torch.Tensor]]]:
    return lambda: [{"input_ids": ids(*size)} for size in sizes]


def masked(*sizes: tuple[int, int]) -> Callable[[], list[dict[str, torch.Tensor]]]:
    def make() -> list[dict[str, torch.Tensor]]:
        found = []
        for n, size in enumerate(sizes):
            mask = torch.ones(size, dtype=torch.int64)
            if n % 2 and size[1] > 2:
                mask[-1, -2:] = 0
            found.append({"input_ids": ids(*size), "attention_mask": mask})
        return found

    return make


def pairs(*sizes: tuple[int, int, int]) -> Callable[[], list[dict[str, torch.Tensor]]]:
    return lambda: [{"input_ids": ids(b, n), "decoder_input_ids": ids(b, m)} for b, n, m in sizes]


def images(*sizes: tuple[int, int, int], channels: int = 3) -> Callable[[], list[dict[str, torch.Tensor]]]:
    return lambda: [{"pixel_values": torch.randn(b, channels, h, w)} for b, h, w in sizes]


def waves(*sizes: tuple[int, int]) -> Callable[[], list[dict[str, torch.Tensor]]]:
    return lambda: [{"input_values": torch.randn(*size)} for size in sizes]


TEXT: dict[str, tuple[int, ...]] = {"input_ids": (0, 1)}
MASKED = {"input_ids": (0, 1), "attention_mask": (0, 1)}
PAIR = {"input_ids": (0, 1), "decoder_input_ids": (0, 1)}
IMAGE = {"pixel_values": (0, 2, 3)}
WAVE = {"input_values": (0, 1)}
THREE = texts((2, 7), (1, 4), (3, 12))

LAYERS = dict(
    vocab_size=WORDS, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
    max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
DECODER = LAYERS | dict(num_key_value_heads=2, head_dim=8, use_cache=False)
EXPERTS = DECODER | dict(
    num_experts=4, num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, output_router_logits=False,
    experts_implementation="eager",
)  # fmt: skip
BART = dict(
    vocab_size=WORDS, d_model=16, max_position_embeddings=64, use_cache=False, encoder_layers=1, decoder_layers=1,
    encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, pad_token_id=0,
    bos_token_id=1, eos_token_id=2, decoder_start_token_id=2,
)  # fmt: skip
T5 = dict(
    vocab_size=WORDS, d_model=16, d_ff=24, num_heads=2, d_kv=8, num_layers=2, num_decoder_layers=2, use_cache=False,
    pad_token_id=0, eos_token_id=1, decoder_start_token_id=0,
)  # fmt: skip
VISION = dict(
    hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=8
)
SWIN = dict(image_size=32, patch_size=4, depths=[2, 1], num_heads=[2, 4], embed_dim=8, window_size=4)
MAMBA = dict(vocab_size=WORDS, hidden_size=16, state_size=4, num_hidden_layers=2, use_cache=False)
SOUND = LAYERS | dict(
    conv_dim=[8, 8], conv_kernel=[10, 3], conv_stride=[5, 2], num_feat_extract_layers=2, num_conv_pos_embeddings=4,
    num_conv_pos_embedding_groups=2,
)  # fmt: skip


def add(
    name: str,
    title: str,
    model: str,
    settings: dict[str, Any],
    sets: Any,
    varying: Any,
    *,
    half: bool = False,
    patched: bool = False,
    refused: str | None = None,
) -> None:
    """Add a class to the zoo. `half` computes in float16."""

    def make() -> nn.Module:
        import transformers

        transformers.logging.set_verbosity_error()
        made = getattr(transformers, model)
        config = made.config_class(**settings)
        built = made(config).eval()
        return built.half() if half else built  # type: ignore[no-any-return]

    def make_sets() -> list[Any]:
        found = sets()
        if half:
            found = [{k: v.half() if v.is_floating_point() else v for k, v in one.items()} for one in found]
        return found  # type: ignore[no-any-return]

    ENTRIES[name] = Entry(name, f"{model}: {title}", make, make_sets, varying, refused, patched)


def boxes() -> list[dict[str, torch.Tensor]]:
    return [
        {"pixel_values": torch.randn(b, 3, 32, 32), "input_points": torch.rand(b, 1, n, 2) * 32}
        for b, n in ((1, 2), (2, 1), (1, 3))
    ]


def series() -> list[dict[str, torch.Tensor]]:
    return [{"past_values": torch.randn(b, 12, 2)} for b in (2, 1, 5)]


def patches(*grids: tuple[tuple[int, int, int], ...]) -> Callable[[], list[dict[str, torch.Tensor]]]:
    def make() -> list[dict[str, torch.Tensor]]:
        found = []
        for grid in grids:
            sizes = torch.tensor(grid)
            found.append({"hidden_states": torch.randn(int(sizes.prod(1).sum()), 3 * 2 * 4 * 4), "grid_thw": sizes})
        return found

    return make


add(
    "E01",
    "a clamp of halves in the encoder",
    "BartModel",
    BART,
    pairs((2, 6, 4), (1, 3, 7), (3, 8, 1)),
    PAIR,
    half=True,
)
add("E02", "a clamp, and a mask made of ids", "FSMTForConditionalGeneration",
    dict(langs=["en", "de"], src_vocab_size=WORDS, tgt_vocab_size=WORDS) | BART, pairs((2, 6, 4), (1, 3, 7)), PAIR)  # fmt: skip
add("E03", "a clamp of halves in every layer", "T5Model", T5, pairs((2, 6, 4), (1, 3, 7)), PAIR, half=True)
add("E04", "experts in a loop", "MixtralForCausalLM", EXPERTS, THREE, TEXT)
add("E05", "experts with a capacity", "SwitchTransformersModel",
    T5 | dict(num_experts=4, expert_capacity=8, num_sparse_encoder_layers=1, num_sparse_decoder_layers=1),
    pairs((2, 6, 4), (1, 3, 7)), PAIR)  # fmt: skip
add(
    "E06",
    "experts and a shared one",
    "Qwen2MoeForCausalLM",
    EXPERTS | dict(shared_expert_intermediate_size=24),
    THREE,
    TEXT,
)
add("E07", "experts, in halves of a projection", "GptOssForCausalLM", EXPERTS, THREE, TEXT)
add("E08", "hashed attention", "ReformerModel",
    dict(vocab_size=WORDS, hidden_size=16, attention_head_size=8, num_attention_heads=2, feed_forward_size=24, num_buckets=4,
         num_hashes=1, lsh_attn_chunk_length=4, local_attn_chunk_length=4, attn_layers=["local", "lsh"], axial_pos_embds=False,
        use_cache=False,
         max_position_embeddings=64, is_decoder=False, hash_seed=1), texts((2, 8), (1, 4), (1, 16)), TEXT)  # fmt: skip
add("E09", "pooled attention", "FunnelModel",
    dict(vocab_size=WORDS, block_sizes=[1, 1], num_decoder_layers=1, d_model=16, n_head=2, d_head=8, d_inner=24), THREE, TEXT)  # fmt: skip
add(
    "E10",
    "windows, padded if needed",
    "LongformerModel",
    LAYERS | dict(attention_window=4, sep_token_id=2),
    texts((2, 8), (1, 7), (1, 12)),
    TEXT,
)
add("E11", "windows in the encoder, padded if needed", "LEDModel",
    BART | dict(attention_window=4, max_encoder_position_embeddings=64, max_decoder_position_embeddings=64),
    pairs((1, 8, 4), (1, 7, 3), (2, 12, 5)), PAIR)  # fmt: skip
add("E12", "block-sparse attention beyond a length", "BigBirdModel",
    LAYERS | dict(attention_type="block_sparse", block_size=4, num_random_blocks=1), texts((1, 12), (2, 8), (1, 20)), TEXT)  # fmt: skip
add(
    "E13",
    "windows, padded and shifted by size",
    "SwinModel",
    SWIN,
    images((1, 32, 32), (2, 40, 64), (1, 48, 32)),
    IMAGE,
)
add(
    "E14",
    "windows, padded and shifted by size",
    "DonutSwinModel",
    SWIN,
    images((1, 32, 32), (2, 40, 64), (1, 46, 34)),
    IMAGE,
)
add("E15", "windows with cosine attention", "Swinv2Model", SWIN, images((1, 32, 32), (2, 24, 40)), IMAGE)
add(
    "E16",
    "positions interpolated if sizes differ",
    "Dinov2Model",
    VISION,
    images((1, 32, 32), (2, 40, 24), (1, 64, 64)),
    IMAGE,
)
add(
    "E17",
    "a vision transformer of fixed size",
    "ViTModel",
    VISION,
    images((1, 32, 32), (3, 32, 32)),
    {"pixel_values": (0,)},
)
add("E19", "points that prompt a mask", "SamModel",
    dict(vision_config=dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=32, patch_size=8,
                            output_channels=8,
            num_pos_feats=4, mlp_dim=24, window_size=2, global_attn_indexes=[0]),
         prompt_encoder_config=dict(hidden_size=8, image_size=32, patch_size=8, mask_input_channels=4),
         mask_decoder_config=dict(hidden_size=8, mlp_dim=16, num_attention_heads=2, num_hidden_layers=1, iou_head_hidden_dim=8)),
    boxes, {"pixel_values": (0,), "input_points": (0, 2)})  # fmt: skip
add("E20", "a scan over a text", "MambaForCausalLM", MAMBA, THREE, TEXT)
add(
    "E21",
    "a scan in chunks, padded",
    "Mamba2ForCausalLM",
    MAMBA | dict(num_heads=4, head_dim=8, n_groups=2, chunk_size=4),
    THREE,
    TEXT,
)
add("E22", "a recurrent layer", "RwkvForCausalLM",
    dict(vocab_size=WORDS, hidden_size=16, attention_hidden_size=16, intermediate_size=24, num_hidden_layers=2,
         context_length=16, use_cache=False), THREE, TEXT)  # fmt: skip
add("E23", "a scan beside attention and experts", "JambaForCausalLM",
    EXPERTS | dict(mamba_d_state=4, mamba_d_conv=2, mamba_expand=2, use_mamba_kernels=False, attn_layer_period=2, attn_layer_offset=1,
                   expert_layer_period=2, expert_layer_offset=1), THREE, TEXT)  # fmt: skip
add("E24", "n-grams in the decoder", "ProphetNetModel",
    dict(vocab_size=WORDS, hidden_size=16, num_encoder_layers=1, num_decoder_layers=1, num_encoder_attention_heads=2,
         num_decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=64, ngram=2,
         decoder_start_token_id=1, use_cache=False), pairs((2, 6, 4), (1, 3, 5)), PAIR)  # fmt: skip
add("E25", "a mask that is all ones, or not", "BertModel", LAYERS, masked((2, 7), (2, 5), (1, 9)), MASKED)
add(
    "E26",
    "positions that follow the padding",
    "OPTForCausalLM",
    LAYERS | dict(ffn_dim=24, word_embed_proj_dim=16, use_cache=False),
    masked((2, 7), (2, 5), (1, 9)),
    MASKED,
)
add("E27", "a causal decoder with a mask", "LlamaForCausalLM", DECODER, masked((2, 7), (2, 5), (1, 9)), MASKED)
add(
    "E28",
    "a convolution whose length is cut by parity",
    "Wav2Vec2Model",
    SOUND,
    waves((2, 200), (1, 150), (1, 333)),
    WAVE,
)
add("E29", "buckets of relative positions", "DebertaV2Model",
    LAYERS | dict(relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8, norm_rel_ebd="layer_norm", share_att_key=True),
    THREE, TEXT)  # fmt: skip
add("E30", "a series in patches", "PatchTSTModel",
    dict(num_input_channels=2, context_length=12, patch_length=4, patch_stride=4, d_model=16, num_attention_heads=2,
         num_hidden_layers=1, ffn_dim=24), series, {"past_values": (0,)})  # fmt: skip
add("E31", "relative positions and memory", "XLNetModel",
    dict(vocab_size=WORDS, d_model=16, n_layer=2, n_head=2, d_inner=24, use_mems_eval=False), THREE, TEXT)  # fmt: skip
add("E32", "local and global attention of a text", "LongT5Model", T5 | dict(local_radius=3, encoder_attention_type="transient-global", global_block_size=4),
    pairs((1, 8, 4), (2, 13, 3)), PAIR)  # fmt: skip
add("E33", "restored at twice the size, padded to windows", "Swin2SRModel",
    dict(image_size=16, patch_size=1, num_channels=3, embed_dim=8, depths=[1], num_heads=[2], window_size=4, upscale=2),
    images((1, 16, 16), (2, 20, 16), (1, 24, 32)), IMAGE)  # fmt: skip

for name, model, more in (
    ("E40", "OlmoeForCausalLM", {}),
    ("E41", "PhimoeForCausalLM", {}),
    ("E42", "DeepseekV3ForCausalLM", dict(
        n_routed_experts=4, n_group=2, topk_group=1, first_k_dense_replace=1, q_lora_rank=8, kv_lora_rank=8,
        qk_rope_head_dim=4, head_dim=4, qk_nope_head_dim=4, v_head_dim=8)),
    ("E43", "GraniteMoeForCausalLM", {}),
    ("E44", "Qwen3MoeForCausalLM", {}),
):  # fmt: skip
    add(name, "experts in a loop", model, EXPERTS | more, THREE, TEXT)


class Pictures(nn.Module):
    """The vision tower of Qwen2-VL."""

    def __init__(self) -> None:
        super().__init__()
        from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
        from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VisionTransformerPretrainedModel

        sizes = dict(depth=1, embed_dim=16, hidden_size=16, num_heads=2, mlp_ratio=2, patch_size=4)
        self.tower = Qwen2VisionTransformerPretrainedModel(Qwen2VLVisionConfig(**sizes))

    def forward(self, hidden_states: torch.Tensor, grid_thw: torch.Tensor) -> Any:
        got = self.tower(hidden_states, grid_thw=grid_thw)
        return got if isinstance(got, torch.Tensor) else got.to_tuple()[0]


ENTRIES["E18"] = Entry(
    "E18",
    "Qwen2-VL's vision: pictures of several sizes in one row",
    Pictures,
    patches(((1, 4, 4),), ((1, 4, 4), (1, 2, 6)), ((1, 6, 2), (1, 4, 4), (1, 2, 2))),
    {"hidden_states": (0,), "grid_thw": (0,)},
)
