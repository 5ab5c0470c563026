#include "checkpoint/gguf/gguf_roles.h"

#include <algorithm>
#include <array>

namespace onnx_external {
namespace {

using enum GgufForm;
using Need = GgufNeed;
using Bias = GgufBias;

constexpr std::array kTop = {
    GgufRole{"token_embd", "model.embed_tokens", "VW"},
    GgufRole{"output_norm", "model.norm", "W", kNorm},
    GgufRole{"output", "lm_head", "VW", kSame, Need::kMay},
};
constexpr std::array kTopWithBias = {
    GgufRole{"token_embd", "model.embed_tokens", "VW"},
    GgufRole{"output_norm", "model.norm", "W", kNorm, Need::kAlways, Bias::kAlways},
    GgufRole{"output", "lm_head", "VW", kSame, Need::kMay},
};
constexpr std::array kTopWithoutNorm = {
    GgufRole{"token_embd", "model.embed_tokens", "VW"},
    GgufRole{"output", "lm_head", "VW", kSame, Need::kMay},
};
constexpr std::array kTopOfGpt2 = {
    GgufRole{"token_embd", "transformer.wte", "VW"},
    GgufRole{"position_embd", "transformer.wpe", "CW"},
    GgufRole{"output_norm", "transformer.ln_f", "W", kNorm, Need::kAlways, Bias::kAlways},
    GgufRole{"output", "lm_head", "VW", kSame, Need::kMay},
};

constexpr std::array kLlama = {
    GgufRole{"attn_norm", "input_layernorm", "W", kNorm},
    GgufRole{"attn_q", "self_attn.q_proj", "QW", kQuery, Need::kSplit, Bias::kMay},
    GgufRole{"attn_k", "self_attn.k_proj", "KW", kKey, Need::kSplit, Bias::kMay},
    GgufRole{"attn_v", "self_attn.v_proj", "UW", kSame, Need::kSplit, Bias::kMay},
    GgufRole{"attn_qkv", "", "PW", kQueryKeyValue, Need::kFused, Bias::kMay},
    GgufRole{"attn_output", "self_attn.o_proj", "WO", kSame, Need::kAlways, Bias::kMay},
    GgufRole{"ffn_norm", "post_attention_layernorm", "W", kNorm},
    GgufRole{"ffn_gate", "mlp.gate_proj", "FW", kSame, Need::kDense, Bias::kMay},
    GgufRole{"ffn_up", "mlp.up_proj", "FW", kSame, Need::kDense, Bias::kMay},
    GgufRole{"ffn_down", "mlp.down_proj", "WF", kSame, Need::kDense, Bias::kMay},
    // Mixtral.
    GgufRole{"ffn_gate_inp", "block_sparse_moe.gate", "XW", kSame, Need::kMoe},
    GgufRole{"ffn_gate_exps", "block_sparse_moe.experts.#.w1", "XMW", kExperts, Need::kMoe},
    GgufRole{"ffn_down_exps", "block_sparse_moe.experts.#.w2", "XWM", kExperts, Need::kMoe},
    GgufRole{"ffn_up_exps", "block_sparse_moe.experts.#.w3", "XMW", kExperts, Need::kMoe},
};

// Without norms of weights (OLMo 1), and without a gate (Arcee).
constexpr std::array kOlmo = {
    GgufRole{"attn_q", "self_attn.q_proj", "QW", kQuery, Need::kAlways, Bias::kMay},
    GgufRole{"attn_k", "self_attn.k_proj", "KW", kKey, Need::kAlways, Bias::kMay},
    GgufRole{"attn_v", "self_attn.v_proj", "UW", kSame, Need::kAlways, Bias::kMay},
    GgufRole{"attn_output", "self_attn.o_proj", "WO", kSame, Need::kAlways, Bias::kMay},
    GgufRole{"ffn_gate", "mlp.gate_proj", "FW"},
    GgufRole{"ffn_up", "mlp.up_proj", "FW"},
    GgufRole{"ffn_down", "mlp.down_proj", "WF"},
};
constexpr std::array kArcee = {
    GgufRole{"attn_norm", "input_layernorm", "W", kNorm},
    GgufRole{"attn_q", "self_attn.q_proj", "QW", kQuery, Need::kAlways, Bias::kMay},
    GgufRole{"attn_k", "self_attn.k_proj", "KW", kKey, Need::kAlways, Bias::kMay},
    GgufRole{"attn_v", "self_attn.v_proj", "UW", kSame, Need::kAlways, Bias::kMay},
    GgufRole{"attn_output", "self_attn.o_proj", "WO", kSame, Need::kAlways, Bias::kMay},
    GgufRole{"ffn_norm", "post_attention_layernorm", "W", kNorm},
    GgufRole{"ffn_up", "mlp.up_proj", "FW", kSame, Need::kAlways, Bias::kMay},
    GgufRole{"ffn_down", "mlp.down_proj", "WF", kSame, Need::kAlways, Bias::kMay},
};
constexpr std::array kNemotron = {
    GgufRole{"attn_norm", "input_layernorm", "W", kNorm, Need::kAlways, Bias::kAlways},
    GgufRole{"attn_q", "self_attn.q_proj", "QW", kSame, Need::kAlways, Bias::kMay},
    GgufRole{"attn_k", "self_attn.k_proj", "KW", kSame, Need::kAlways, Bias::kMay},
    GgufRole{"attn_v", "self_attn.v_proj", "UW", kSame, Need::kAlways, Bias::kMay},
    GgufRole{"attn_output", "self_attn.o_proj", "WO", kSame, Need::kAlways, Bias::kMay},
    GgufRole{"ffn_norm", "post_attention_layernorm", "W", kNorm, Need::kAlways, Bias::kAlways},
    GgufRole{"ffn_up", "mlp.up_proj", "FW", kSame, Need::kAlways, Bias::kMay},
    GgufRole{"ffn_down", "mlp.down_proj", "WF", kSame, Need::kAlways, Bias::kMay},
};

constexpr std::array kQwen2 = {
    GgufRole{"attn_norm", "input_layernorm", "W", kNorm},
    GgufRole{"attn_q", "self_attn.q_proj", "QW", kSame, Need::kAlways, Bias::kAlways},
    GgufRole{"attn_k", "self_attn.k_proj", "KW", kSame, Need::kAlways, Bias::kAlways},
    GgufRole{"attn_v", "self_attn.v_proj", "UW", kSame, Need::kAlways, Bias::kAlways},
    GgufRole{"attn_output", "self_attn.o_proj", "WO"},
    GgufRole{"ffn_norm", "post_attention_layernorm", "W", kNorm},
    GgufRole{"ffn_gate", "mlp.gate_proj", "FW", kSame, Need::kDense},
    GgufRole{"ffn_up", "mlp.up_proj", "FW", kSame, Need::kDense},
    GgufRole{"ffn_down", "mlp.down_proj", "WF", kSame, Need::kDense},
    // Qwen2-MoE.
    GgufRole{"ffn_gate_inp", "mlp.gate", "XW", kSame, Need::kMoe},
    GgufRole{"ffn_gate_exps", "mlp.experts.#.gate_proj", "XMW", kExperts, Need::kMoe},
    GgufRole{"ffn_down_exps", "mlp.experts.#.down_proj", "XWM", kExperts, Need::kMoe},
    GgufRole{"ffn_up_exps", "mlp.experts.#.up_proj", "XMW", kExperts, Need::kMoe},
    GgufRole{"ffn_gate_inp_shexp", "mlp.shared_expert_gate", "W", kRow, Need::kMoe},
    GgufRole{"ffn_gate_shexp", "mlp.shared_expert.gate_proj", "SW", kSame, Need::kMoe},
    GgufRole{"ffn_down_shexp", "mlp.shared_expert.down_proj", "WS", kSame, Need::kMoe},
    GgufRole{"ffn_up_shexp", "mlp.shared_expert.up_proj", "SW", kSame, Need::kMoe},
};
constexpr std::array kQwen3 = {
    GgufRole{"attn_norm", "input_layernorm", "W", kNorm},
    GgufRole{"attn_q", "self_attn.q_proj", "QW", kSame, Need::kAlways, Bias::kMay},
    GgufRole{"attn_k", "self_attn.k_proj", "KW", kSame, Need::kAlways, Bias::kMay},
    GgufRole{"attn_v", "self_attn.v_proj", "UW", kSame, Need::kAlways, Bias::kMay},
    GgufRole{"attn_output", "self_attn.o_proj", "WO", kSame, Need::kAlways, Bias::kMay},
    GgufRole{"attn_q_norm", "self_attn.q_norm", "H", kNorm},
    GgufRole{"attn_k_norm", "self_attn.k_norm", "H", kNorm},
    GgufRole{"ffn_norm", "post_attention_layernorm", "W", kNorm},
    GgufRole{"ffn_gate", "mlp.gate_proj", "FW", kSame, Need::kDense},
    GgufRole{"ffn_up", "mlp.up_proj", "FW", kSame, Need::kDense},
    GgufRole{"ffn_down", "mlp.down_proj", "WF", kSame, Need::kDense},
    // Qwen3-MoE.
    GgufRole{"ffn_gate_inp", "mlp.gate", "XW", kSame, Need::kMoe},
    GgufRole{"ffn_gate_exps", "mlp.experts.#.gate_proj", "XMW", kExperts, Need::kMoe},
    GgufRole{"ffn_down_exps", "mlp.experts.#.down_proj", "XWM", kExperts, Need::kMoe},
    GgufRole{"ffn_up_exps", "mlp.experts.#.up_proj", "XMW", kExperts, Need::kMoe},
};

constexpr std::array kGemma = {
    GgufRole{"attn_norm", "input_layernorm", "W", kNorm},
    GgufRole{"attn_q", "self_attn.q_proj", "QW"},
    GgufRole{"attn_k", "self_attn.k_proj", "KW"},
    GgufRole{"attn_v", "self_attn.v_proj", "UW"},
    GgufRole{"attn_output", "self_attn.o_proj", "WO"},
    GgufRole{"ffn_norm", "post_attention_layernorm", "W", kNorm},
    GgufRole{"ffn_gate", "mlp.gate_proj", "FW"},
    GgufRole{"ffn_up", "mlp.up_proj", "FW"},
    GgufRole{"ffn_down", "mlp.down_proj", "WF"},
};
constexpr std::array kGemma2 = {
    GgufRole{"attn_norm", "input_layernorm", "W", kNorm},
    GgufRole{"attn_q", "self_attn.q_proj", "QW"},
    GgufRole{"attn_k", "self_attn.k_proj", "KW"},
    GgufRole{"attn_v", "self_attn.v_proj", "UW"},
    GgufRole{"attn_output", "self_attn.o_proj", "WO"},
    GgufRole{"post_attention_norm", "post_attention_layernorm", "W", kNorm},
    GgufRole{"ffn_norm", "pre_feedforward_layernorm", "W", kNorm},
    GgufRole{"ffn_gate", "mlp.gate_proj", "FW"},
    GgufRole{"ffn_up", "mlp.up_proj", "FW"},
    GgufRole{"ffn_down", "mlp.down_proj", "WF"},
    GgufRole{"post_ffw_norm", "post_feedforward_layernorm", "W", kNorm},
};
constexpr std::array kGemma3 = {
    GgufRole{"attn_norm", "input_layernorm", "W", kNorm},
    GgufRole{"attn_q", "self_attn.q_proj", "QW"},
    GgufRole{"attn_k", "self_attn.k_proj", "KW"},
    GgufRole{"attn_v", "self_attn.v_proj", "UW"},
    GgufRole{"attn_output", "self_attn.o_proj", "WO"},
    GgufRole{"attn_q_norm", "self_attn.q_norm", "H", kNorm},
    GgufRole{"attn_k_norm", "self_attn.k_norm", "H", kNorm},
    GgufRole{"post_attention_norm", "post_attention_layernorm", "W", kNorm},
    GgufRole{"ffn_norm", "pre_feedforward_layernorm", "W", kNorm},
    GgufRole{"ffn_gate", "mlp.gate_proj", "FW"},
    GgufRole{"ffn_up", "mlp.up_proj", "FW"},
    GgufRole{"ffn_down", "mlp.down_proj", "WF"},
    GgufRole{"post_ffw_norm", "post_feedforward_layernorm", "W", kNorm},
};

constexpr std::array kPhi3 = {
    GgufRole{"attn_norm", "input_layernorm", "W", kNorm},
    GgufRole{"attn_qkv", "self_attn.qkv_proj", "PW"},
    GgufRole{"attn_output", "self_attn.o_proj", "WO"},
    GgufRole{"ffn_norm", "post_attention_layernorm", "W", kNorm},
    GgufRole{"ffn_up", "mlp.gate_up_proj", "GW"},
    GgufRole{"ffn_down", "mlp.down_proj", "WF"},
};
constexpr std::array kGpt2 = {
    GgufRole{"attn_norm", "ln_1", "W", kNorm, Need::kAlways, Bias::kAlways},
    GgufRole{"attn_qkv", "attn.c_attn", "PW", kTransposed, Need::kAlways, Bias::kAlways},
    GgufRole{"attn_output", "attn.c_proj", "WO", kTransposed, Need::kAlways, Bias::kAlways},
    GgufRole{"ffn_norm", "ln_2", "W", kNorm, Need::kAlways, Bias::kAlways},
    GgufRole{"ffn_up", "mlp.c_fc", "FW", kTransposed, Need::kAlways, Bias::kAlways},
    GgufRole{"ffn_down", "mlp.c_proj", "WF", kTransposed, Need::kAlways, Bias::kAlways},
};
constexpr std::array kStarcoder2 = {
    GgufRole{"attn_norm", "input_layernorm", "W", kNorm, Need::kAlways, Bias::kAlways},
    GgufRole{"attn_q", "self_attn.q_proj", "QW", kSame, Need::kAlways, Bias::kMay},
    GgufRole{"attn_k", "self_attn.k_proj", "KW", kSame, Need::kAlways, Bias::kMay},
    GgufRole{"attn_v", "self_attn.v_proj", "UW", kSame, Need::kAlways, Bias::kMay},
    GgufRole{"attn_output", "self_attn.o_proj", "WO", kSame, Need::kAlways, Bias::kMay},
    GgufRole{"ffn_norm", "post_attention_layernorm", "W", kNorm, Need::kAlways, Bias::kAlways},
    GgufRole{"ffn_up", "mlp.c_fc", "FW", kSame, Need::kAlways, Bias::kMay},
    GgufRole{"ffn_down", "mlp.c_proj", "WF", kSame, Need::kAlways, Bias::kMay},
};
constexpr std::array kGptOss = {
    GgufRole{"attn_norm", "input_layernorm", "W", kNorm},
    GgufRole{"attn_q", "self_attn.q_proj", "QW", kSame, Need::kAlways, Bias::kAlways},
    GgufRole{"attn_k", "self_attn.k_proj", "KW", kSame, Need::kAlways, Bias::kAlways},
    GgufRole{"attn_v", "self_attn.v_proj", "UW", kSame, Need::kAlways, Bias::kAlways},
    GgufRole{"attn_output", "self_attn.o_proj", "WO", kSame, Need::kAlways, Bias::kAlways},
    GgufRole{"attn_sinks", "self_attn.sinks", "N", kBare},
    GgufRole{"post_attention_norm", "post_attention_layernorm", "W", kNorm},
    GgufRole{"ffn_gate_inp", "mlp.router", "XW", kSame, Need::kAlways, Bias::kAlways},
    GgufRole{"ffn_up_exps", "", "XMW", kUp, Need::kAlways, Bias::kAlways},
    GgufRole{"ffn_gate_exps", "mlp.experts.gate_up_proj", "XMW", kGate, Need::kAlways,
             Bias::kAlways},
    GgufRole{"ffn_down_exps", "mlp.experts.down_proj", "XWM", kTurned, Need::kAlways,
             Bias::kAlways},
};

constexpr std::string_view kModel = "model.layers.";
constexpr bool kPermutes = true;
constexpr bool kAddsOne = true;

constexpr std::array kArchitectures = {
    GgufArchitecture{"arcee", kModel, kTop, kArcee, kPermutes},
    GgufArchitecture{"gemma", kModel, kTop, kGemma, false, kAddsOne},
    GgufArchitecture{"gemma2", kModel, kTop, kGemma2, false, kAddsOne},
    GgufArchitecture{"gemma3", kModel, kTop, kGemma3, false, kAddsOne},
    GgufArchitecture{"gpt-oss", kModel, kTop, kGptOss},
    GgufArchitecture{"gpt2", "transformer.h.", kTopOfGpt2, kGpt2},
    GgufArchitecture{"granite", kModel, kTop, kLlama, kPermutes},
    GgufArchitecture{"llama", kModel, kTop, kLlama, kPermutes},
    GgufArchitecture{"minicpm", kModel, kTop, kLlama, kPermutes},
    GgufArchitecture{"nemotron", kModel, kTopWithBias, kNemotron, false, kAddsOne},
    GgufArchitecture{"olmo", kModel, kTopWithoutNorm, kOlmo, kPermutes},
    GgufArchitecture{"phi3", kModel, kTop, kPhi3},
    GgufArchitecture{"qwen2", kModel, kTop, kQwen2},
    GgufArchitecture{"qwen2moe", kModel, kTop, kQwen2},
    GgufArchitecture{"qwen3", kModel, kTop, kQwen3},
    GgufArchitecture{"qwen3moe", kModel, kTop, kQwen3},
    GgufArchitecture{"smollm3", kModel, kTop, kLlama, kPermutes},
    GgufArchitecture{"starcoder2", kModel, kTopWithBias, kStarcoder2},
    GgufArchitecture{"xverse", kModel, kTop, kLlama, kPermutes},
};

}  // namespace

const GgufArchitecture* find_gguf_architecture(std::string_view name) {
  const auto* const found =
      std::find_if(kArchitectures.begin(), kArchitectures.end(),
                   [&](const GgufArchitecture& each) { return each.name == name; });
  return found == kArchitectures.end() ? nullptr : found;
}

std::string gguf_architecture_names() {
  std::string text;
  for (const GgufArchitecture& each : kArchitectures) {
    text += (text.empty() ? "" : ", ") + std::string(each.name);
  }
  return text;
}

}  // namespace onnx_external
