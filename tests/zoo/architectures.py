"""The zoo of small transformers 5 models, each built from a config, with inputs for it.

A model has two layers and matrices of a few hundred elements, which torch's optimizer folds as no real model's.
The wide ones have matrices beyond its limit (8,192 elements), square projections, and tied embeddings where the
architecture can have them.
"""

from dataclasses import dataclass
from typing import Callable

import torch

LENGTH = 7  # of a text
IMAGE = 32


@dataclass(frozen=True)
class Sizes:
    """The sizes from which the configs of an architecture are made."""

    width: int = 32
    hidden: int = 48  # of the feed-forward layers
    words: int = 96
    heads: int = 4
    groups: int = 2  # heads of keys and values

    @property
    def head(self) -> int:
        return self.width // self.heads


SMALL = Sizes()
WIDE = Sizes(width=128, hidden=160, words=144, groups=4)


# --- inputs ---------------------------------------------------------------------------------------


def text(sizes: Sizes, length: int = LENGTH) -> dict:
    return {"input_ids": torch.randint(4, sizes.words - 4, (2, length))}


def masked_text(sizes: Sizes) -> dict:
    mask = torch.ones(2, LENGTH, dtype=torch.int64)
    mask[1, LENGTH - 2 :] = 0
    return {**text(sizes), "attention_mask": mask}


def pair(sizes: Sizes) -> dict:
    return {**text(sizes), "decoder_input_ids": torch.randint(4, sizes.words - 4, (2, 5))}


def image(sizes: Sizes) -> dict:
    return {"pixel_values": torch.randn(2, 3, IMAGE, IMAGE)}


def image_and_text(sizes: Sizes) -> dict:
    return {**text(sizes), **image(sizes)}


def sound(sizes: Sizes) -> dict:
    return {"input_values": torch.randn(2, 400)}


def spectrum(sizes: Sizes) -> dict:
    return {
        "input_features": torch.randn(2, 8, 40),
        "decoder_input_ids": text(sizes, 5)["input_ids"],
    }


# --- settings -------------------------------------------------------------------------------------


def plain(s: Sizes, **more) -> dict:
    """Return the settings that most configs use."""
    return dict(
        vocab_size=s.words, hidden_size=s.width, intermediate_size=s.hidden, num_hidden_layers=2,
        num_attention_heads=s.heads, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    ) | more  # fmt: skip


def decoder(s: Sizes, **more) -> dict:
    tied = dict(tie_word_embeddings=True) if s is WIDE else {}
    grouped = dict(num_key_value_heads=s.groups, head_dim=s.head)
    return plain(s, use_cache=False, **grouped, **tied) | more


def experts(s: Sizes, **more) -> dict:
    moe = dict(
        num_experts=4, num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=s.hidden
    )
    return decoder(s, **moe, output_router_logits=False) | more


def deepseek(s: Sizes, **more) -> dict:
    low = dict(
        q_lora_rank=s.width, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8
    )
    routed = dict(
        n_routed_experts=4, n_shared_experts=1, n_group=2, topk_group=1, first_k_dense_replace=1
    )
    return experts(s, **low, **routed, head_dim=8, num_key_value_heads=s.heads) | more


def gpt(s: Sizes, **more) -> dict:
    names = dict(
        n_embd=s.width, n_layer=2, n_head=s.heads, n_positions=64, n_inner=s.hidden, use_cache=False
    )
    return dict(vocab_size=s.words, bos_token_id=1, eos_token_id=2, **names) | more


def bart(s: Sizes, **more) -> dict:
    layers = dict(encoder_layers=2, decoder_layers=2, encoder_attention_heads=s.heads)
    layers |= dict(
        decoder_attention_heads=s.heads, encoder_ffn_dim=s.hidden, decoder_ffn_dim=s.hidden
    )
    tokens = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=2)
    return dict(vocab_size=s.words, d_model=s.width, max_position_embeddings=64, use_cache=False,
                **layers, **tokens) | more  # fmt: skip


def t5(s: Sizes, **more) -> dict:
    heads = dict(num_heads=s.heads, d_kv=s.head, num_layers=2, num_decoder_layers=2)
    tokens = dict(pad_token_id=0, eos_token_id=1, decoder_start_token_id=0)
    return (
        dict(vocab_size=s.words, d_model=s.width, d_ff=s.hidden, use_cache=False, **heads, **tokens)
        | more
    )


def whisper(s: Sizes, **more) -> dict:
    return bart(s, num_mel_bins=8, max_source_positions=20, max_target_positions=16) | more


def vision(s: Sizes, **more) -> dict:
    names = (
        "vocab_size",
        "pad_token_id",
        "bos_token_id",
        "eos_token_id",
        "max_position_embeddings",
    )
    kept = {key: value for key, value in plain(s).items() if key not in names}
    return kept | dict(image_size=IMAGE, patch_size=8, num_labels=5) | more


def pyramid(s: Sizes, **more) -> dict:
    stages = dict(depths=[1, 1], num_heads=[2, 4], embed_dim=s.width // 2, window_size=2)
    return dict(image_size=IMAGE, patch_size=4, num_labels=5, **stages) | more


def convolutions(s: Sizes, **more) -> dict:
    stages = dict(num_stages=2, hidden_sizes=[s.width // 2, s.width], depths=[1, 1], num_labels=5)
    return stages | more


def two_towers(s: Sizes, **more) -> dict:
    return dict(text_config=plain(s), vision_config=vision(s), projection_dim=s.width) | more


def waves(s: Sizes, **more) -> dict:
    convs = dict(
        conv_dim=[16, 16], conv_kernel=[10, 3], conv_stride=[5, 2], num_feat_extract_layers=2
    )
    positions = dict(num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2)
    return plain(s, **convs, **positions) | more


def mamba(s: Sizes, **more) -> dict:
    return (
        dict(
            vocab_size=s.words,
            hidden_size=s.width,
            state_size=8,
            num_hidden_layers=2,
            use_cache=False,
        )
        | more
    )


# --- the zoo --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Architecture:
    name: str
    model: str  # the class in transformers
    settings: Callable
    inputs: Callable
    more: dict
    sizes: Sizes

    @property
    def wide(self) -> bool:
        return self.sizes is WIDE

    def make(self):
        """Return the model with its initial values."""
        import transformers

        made = getattr(transformers, self.model)
        config = made.config_class(**self.settings(self.sizes, **self.more))
        return made(config).eval()


ARCHITECTURES: dict = {}


def _add(
    name: str, model: str, settings: Callable, inputs: Callable, wide: bool = False, **more
) -> None:
    ARCHITECTURES[name] = Architecture(name, model, settings, inputs, more, SMALL)
    if wide:
        name += "_wide"
        ARCHITECTURES[name] = Architecture(name, model, settings, inputs, more, WIDE)


def _fill() -> None:
    for name, model in (
        ("qwen2", "Qwen2ForCausalLM"), ("gemma2", "Gemma2ForCausalLM"), ("gemma3", "Gemma3ForCausalLM"),
        ("cohere", "CohereForCausalLM"), ("olmo", "OlmoForCausalLM"), ("olmo2", "Olmo2ForCausalLM"),
        ("phi3", "Phi3ForCausalLM"), ("stablelm", "StableLmForCausalLM"), ("granite", "GraniteForCausalLM"),
        ("starcoder2", "Starcoder2ForCausalLM"), ("nemotron", "NemotronForCausalLM"), ("glm", "GlmForCausalLM"),
        ("smollm3", "SmolLM3ForCausalLM"), ("helium", "HeliumForCausalLM"), ("ernie45", "Ernie4_5ForCausalLM"),
        ("persimmon", "PersimmonForCausalLM"), ("seed_oss", "SeedOssForCausalLM"),
    ):  # fmt: skip
        _add(name, model, decoder, text)
    for name, model in (
        ("llama", "LlamaForCausalLM"), ("qwen3", "Qwen3ForCausalLM"), ("mistral", "MistralForCausalLM"),
        ("gemma", "GemmaForCausalLM"), ("phi", "PhiForCausalLM"),
    ):  # fmt: skip
        _add(name, model, decoder, text, wide=True)
    _add("gpt2", "GPT2LMHeadModel", gpt, text, wide=True)
    _add("gptj", "GPTJForCausalLM", gpt, text, rotary_dim=4, tie_word_embeddings=False)
    _add("codegen", "CodeGenForCausalLM", gpt, text, rotary_dim=4, tie_word_embeddings=False)
    _add("gpt_bigcode", "GPTBigCodeForCausalLM", gpt, text)
    _add(
        "gpt_neo",
        "GPTNeoForCausalLM",
        lambda s, **more: plain(
            s,
            num_layers=2,
            num_heads=s.heads,
            attention_types=[[["global", "local"], 1]],
            use_cache=False,
        ),
        text,
    )
    _add("gpt_neox", "GPTNeoXForCausalLM", decoder, text, wide=True)
    _add(
        "opt",
        "OPTForCausalLM",
        lambda s, **more: plain(s, ffn_dim=s.hidden, word_embed_proj_dim=s.width, use_cache=False),
        text,
        wide=True,
    )
    _add(
        "bloom",
        "BloomForCausalLM",
        lambda s, **more: dict(
            vocab_size=s.words, hidden_size=s.width, n_layer=2, n_head=s.heads, use_cache=False
        ),
        text,
    )
    _add(
        "falcon",
        "FalconForCausalLM",
        plain,
        text,
        use_cache=False,
        new_decoder_architecture=True,
        num_kv_heads=2,
    )
    _add(
        "mpt",
        "MptForCausalLM",
        lambda s, **more: dict(
            vocab_size=s.words,
            d_model=s.width,
            n_layers=2,
            n_heads=s.heads,
            max_seq_len=64,
            use_cache=False,
        ),
        text,
    )
    _add("xglm", "XGLMForCausalLM", lambda s, **more: dict(
        vocab_size=s.words, d_model=s.width, num_layers=2, attention_heads=s.heads, ffn_dim=s.hidden,
        max_position_embeddings=64, use_cache=False), text)  # fmt: skip
    _add("biogpt", "BioGptForCausalLM", plain, text, use_cache=False)

    _add("mixtral_grouped", "MixtralForCausalLM", experts, text)
    for name, model in (
        ("mixtral", "MixtralForCausalLM"), ("qwen3_moe", "Qwen3MoeForCausalLM"), ("olmoe", "OlmoeForCausalLM"),
        ("granitemoe", "GraniteMoeForCausalLM"), ("phimoe", "PhimoeForCausalLM"), ("gpt_oss", "GptOssForCausalLM"),
    ):  # fmt: skip
        _add(name, model, experts, text, experts_implementation="batched_mm")
    _add("qwen2_moe", "Qwen2MoeForCausalLM", experts, text, experts_implementation="batched_mm",
         shared_expert_intermediate_size=48)  # fmt: skip
    _add(
        "deepseek_v3", "DeepseekV3ForCausalLM", deepseek, text, experts_implementation="batched_mm"
    )

    _add("bert", "BertForMaskedLM", plain, masked_text, wide=True)
    _add("bert_pooled", "BertModel", plain, masked_text)
    _add("roberta", "RobertaForMaskedLM", plain, text)
    _add("xlm_roberta", "XLMRobertaForSequenceClassification", plain, text)
    _add("camembert", "CamembertForTokenClassification", plain, text)
    _add("distilbert", "DistilBertForMaskedLM", lambda s, **more: dict(
        vocab_size=s.words, dim=s.width, hidden_dim=s.hidden, n_layers=2, n_heads=s.heads,
        max_position_embeddings=64), text)  # fmt: skip
    _add("electra", "ElectraForMaskedLM", plain, text, embedding_size=16)
    _add(
        "deberta",
        "DebertaForMaskedLM",
        plain,
        text,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
    )
    _add("deberta_v2", "DebertaV2ForMaskedLM", plain, text, relative_attention=True, pos_att_type=["p2c", "c2p"],
         position_buckets=8, norm_rel_ebd="layer_norm", share_att_key=True)  # fmt: skip
    _add("albert", "AlbertForMaskedLM", plain, text, embedding_size=16)
    _add("mpnet", "MPNetForMaskedLM", plain, text)
    _add("modernbert", "ModernBertForMaskedLM", plain, text, cls_token_id=1, sep_token_id=2)
    _add("roformer", "RoFormerForMaskedLM", plain, text)
    _add("convbert", "ConvBertForMaskedLM", plain, text, embedding_size=32)
    _add("squeezebert", "SqueezeBertForMaskedLM", plain, text, embedding_size=32)
    _add("mobilebert", "MobileBertForMaskedLM", plain, text, embedding_size=16, intra_bottleneck_size=16,
         true_hidden_size=16)  # fmt: skip
    _add("esm", "EsmForMaskedLM", plain, text, mask_token_id=3, position_embedding_type="rotary")
    _add(
        "xlnet",
        "XLNetLMHeadModel",
        lambda s, **more: dict(
            vocab_size=s.words,
            d_model=s.width,
            n_layer=2,
            n_head=s.heads,
            d_inner=s.hidden,
            use_mems_eval=False,
        ),
        text,
    )
    _add("fnet", "FNetForMaskedLM", plain, text)

    _add("t5_sdpa", "T5ForConditionalGeneration", t5, pair)
    _add("t5", "T5ForConditionalGeneration", t5, pair, wide=True, attn_implementation="eager")
    _add("mt5", "MT5ForConditionalGeneration", t5, pair, attn_implementation="eager")
    _add("bart", "BartForConditionalGeneration", bart, pair, wide=True)
    _add("mbart", "MBartForConditionalGeneration", bart, pair)
    _add("pegasus", "PegasusForConditionalGeneration", bart, pair)
    _add("blenderbot", "BlenderbotForConditionalGeneration", bart, pair)
    _add("m2m_100", "M2M100ForConditionalGeneration", bart, pair)
    _add("marian", "MarianMTModel", bart, pair)
    _add("whisper", "WhisperForConditionalGeneration", whisper, spectrum)
    _add("prophetnet", "ProphetNetForConditionalGeneration", lambda s, **more: dict(
        vocab_size=s.words, hidden_size=s.width, num_encoder_layers=2, num_decoder_layers=2, use_cache=False,
        num_encoder_attention_heads=s.heads, num_decoder_attention_heads=s.heads, encoder_ffn_dim=s.hidden,
        decoder_ffn_dim=s.hidden, max_position_embeddings=64, ngram=2, decoder_start_token_id=1), pair)  # fmt: skip

    _add("vit", "ViTForImageClassification", vision, image, wide=True)
    _add("deit", "DeiTForImageClassification", vision, image)
    _add("beit", "BeitForImageClassification", vision, image, use_relative_position_bias=True,
         attn_implementation="eager")  # fmt: skip
    _add("data2vec_vision", "Data2VecVisionForImageClassification", vision, image)
    _add("dinov2", "Dinov2ForImageClassification", vision, image)
    _add("dinov3", "DINOv3ViTModel", vision, image)
    _add(
        "vit_mae",
        "ViTMAEModel",
        vision,
        lambda s: image(s) | {"noise": torch.rand(2, 16)},
        mask_ratio=0.5,
    )
    _add(
        "yolos",
        "YolosForObjectDetection",
        vision,
        image,
        image_size=[IMAGE, IMAGE],
        num_detection_tokens=4,
    )
    _add("clip", "CLIPModel", two_towers, image_and_text, wide=True)
    _add("siglip", "SiglipModel", two_towers, image_and_text)
    _add("swin", "SwinForImageClassification", pyramid, image, attn_implementation="eager")
    _add("swinv2", "Swinv2ForImageClassification", pyramid, image)
    _add("convnext", "ConvNextForImageClassification", convolutions, image, patch_size=4)
    _add("convnextv2", "ConvNextV2ForImageClassification", convolutions, image, patch_size=4)
    _add(
        "resnet",
        "ResNetForImageClassification",
        convolutions,
        image,
        embedding_size=16,
        layer_type="basic",
    )
    _add(
        "regnet",
        "RegNetForImageClassification",
        convolutions,
        image,
        embedding_size=16,
        groups_width=8,
    )
    _add(
        "mobilenet_v2",
        "MobileNetV2ForImageClassification",
        lambda s, **more: dict(image_size=IMAGE, depth_multiplier=0.25, num_labels=5),
        image,
    )
    _add("segformer", "SegformerForImageClassification", lambda s, **more: dict(
        num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[16, 32], patch_sizes=[7, 3],
        strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2], num_labels=5), image)  # fmt: skip
    _add("poolformer", "PoolFormerForImageClassification", lambda s, **more: dict(
        hidden_sizes=[16, 32], depths=[1, 1], patch_sizes=[7, 3], strides=[4, 2], padding=[2, 1],
        num_encoder_blocks=2, num_labels=5), image)  # fmt: skip

    _add("wav2vec2", "Wav2Vec2ForCTC", waves, sound)
    _add("hubert", "HubertForCTC", waves, sound)
    _add("wavlm", "WavLMForCTC", waves, sound)
    _add("ast", "ASTForAudioClassification", plain, lambda s: {"input_values": torch.randn(2, 32, 16)},
         patch_size=8, frequency_stride=8, time_stride=8, max_length=32, num_mel_bins=16)  # fmt: skip

    _add("mamba", "MambaForCausalLM", mamba, text)
    _add(
        "mamba2",
        "Mamba2ForCausalLM",
        mamba,
        text,
        num_heads=8,
        head_dim=8,
        n_groups=2,
        chunk_size=4,
    )
    _add("falcon_mamba", "FalconMambaForCausalLM", mamba, text)
    _add("rwkv", "RwkvForCausalLM", lambda s, **more: dict(
        vocab_size=s.words, hidden_size=s.width, attention_hidden_size=s.width, intermediate_size=s.hidden,
        num_hidden_layers=2, context_length=16, use_cache=False), text)  # fmt: skip


_fill()
