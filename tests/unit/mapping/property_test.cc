// Thousands of seeded cases made from the names of real architectures: no pair is ever wrong, and
// the plain cases are never refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "onnx/graph_facts.h"
#include "onnx_external/mapping.h"

namespace onnx_external {
namespace {

struct Tensor {
  std::string name;
  Shape shape;
};
using Net = std::vector<Tensor>;
using Random = std::mt19937_64;

void add_norm(const std::string& name, std::int64_t n, Net& net) {
  for (const char* leaf : {".weight", ".bias", ".running_mean", ".running_var"}) {
    net.push_back({name + leaf, {n}});
  }
}

Net resnet(int blocks) {
  Net net = {{"conv1.weight", {16, 3, 7, 7}}};
  add_norm("bn1", 16, net);
  for (int layer = 1; layer <= 3; ++layer) {
    for (int block = 0; block < blocks; ++block) {
      const std::string at = "layer" + std::to_string(layer) + "." + std::to_string(block);
      for (const char* which : {"1", "2"}) {
        net.push_back({at + ".conv" + which + ".weight", {16 * layer, 16 * layer, 3, 3}});
        add_norm(at + ".bn" + which, 16 * layer, net);
      }
    }
  }
  net.push_back({"fc.weight", {10, 48}});
  net.push_back({"fc.bias", {10}});
  return net;
}

Net bert(int layers) {
  Net net = {{"embeddings.word_embeddings.weight", {99, 32}},
             {"embeddings.LayerNorm.weight", {32}},
             {"embeddings.LayerNorm.bias", {32}}};
  for (int layer = 0; layer < layers; ++layer) {
    const std::string at = "encoder.layer." + std::to_string(layer) + ".";
    for (const char* leaf : {"attention.self.query", "attention.self.key", "attention.self.value",
                             "attention.output.dense", "output.dense"}) {
      net.push_back({at + leaf + ".weight", {32, 32}});
      net.push_back({at + leaf + ".bias", {32}});
    }
    net.push_back({at + "output.LayerNorm.weight", {32}});
  }
  net.push_back({"pooler.dense.weight", {32, 32}});
  return net;
}

Net gpt(int layers) {
  Net net = {{"wte.weight", {99, 32}}, {"wpe.weight", {64, 32}}};
  for (int layer = 0; layer < layers; ++layer) {
    const std::string at = "h." + std::to_string(layer) + ".";
    net.push_back({at + "ln_1.weight", {32}});
    net.push_back({at + "attn.c_attn.weight", {32, 96}});
    net.push_back({at + "attn.c_proj.weight", {32, 32}});
    net.push_back({at + "mlp.c_proj.weight", {32, 32}});
  }
  net.push_back({"ln_f.weight", {32}});
  return net;
}

Net llama(int layers) {
  Net net = {{"embed_tokens.weight", {99, 32}}};
  for (int layer = 0; layer < layers; ++layer) {
    const std::string at = "layers." + std::to_string(layer) + ".";
    for (const char* leaf : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      net.push_back({at + "self_attn." + leaf + ".weight", {32, 32}});
    }
    net.push_back({at + "input_layernorm.weight", {32}});
    net.push_back({at + "post_attention_layernorm.weight", {32}});
  }
  net.push_back({"norm.weight", {32}});
  return net;
}

Net pick_net(Random& random) {
  const int size = 1 + static_cast<int>(random() % 4);
  switch (random() % 4) {
    case 0:
      return resnet(size);
    case 1:
      return bert(size);
    case 2:
      return gpt(size);
    default:
      return llama(size);
  }
}

std::string underscored(std::string name) {
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

std::string pick(Random& random, const std::vector<std::string>& from) {
  return from[random() % from.size()];
}

struct Case {
  GraphFacts graph;
  MappingKeys keys;
  std::map<std::string, std::string> truth;  // slot -> key; a slot without a key is not in it
};

Slot make_slot(const std::string& name, const Shape& shape, std::uint32_t index) {
  Slot slot;
  slot.name = name;
  slot.kind = SlotKind::kGraphInput;
  slot.elem_type = onnx_data_type(DType::kFloat32);
  slot.shape = SymbolicShape(shape.begin(), shape.end());
  slot.input_index = index;
  slot.consumer_count = 1;
  return slot;
}

void add_input(const std::string& name, const Shape& shape, Case& c) {
  c.graph.slots.push_back(
      make_slot(name, shape, static_cast<std::uint32_t>(c.graph.graph_inputs.size())));
  c.graph.graph_inputs.push_back(name);
}

void add_key(const std::string& name, const Shape& shape, Case& c) {
  const auto twin = std::find_if(c.keys.keys.begin(), c.keys.keys.end(),
                                 [&](const MappingKey& key) { return key.name == name; });
  if (twin == c.keys.keys.end()) {
    c.keys.keys.push_back({name, DType::kFloat32, shape, 0, std::nullopt});
  }
}

// A graph of `net`, its names under `slot_prefix`, and keys under `key_prefix`.
Case make_case(const Net& net, const std::string& slot_prefix, const std::string& key_prefix,
               bool underscores) {
  Case c;
  c.graph.ir_version = 8;
  add_input("input.1", {1, 3, 224, 224}, c);
  for (const Tensor& tensor : net) {
    const std::string name = slot_prefix + tensor.name;
    const std::string slot = underscores ? underscored(name) : name;
    add_input(slot, tensor.shape, c);
    add_key(key_prefix + tensor.name, tensor.shape, c);
    c.truth[slot] = key_prefix + tensor.name;
  }
  return c;
}

void expect_no_wrong_pair(const Case& c, const Mapping& mapping) {
  for (const MappedPair& pair : mapping.pairs) {
    const std::string& slot = c.graph.slots[pair.slot].name;
    const auto truth = c.truth.find(slot);
    ASSERT_TRUE(truth != c.truth.end()) << slot << " got " << c.keys.keys[pair.key].name;
    ASSERT_EQ(c.keys.keys[pair.key].name, truth->second) << slot;
  }
}

const std::vector<std::string> kPrefixes = {"",         "module.", "model.",     "module.model.",
                                            "encoder.", "net.",    "backbone.0."};

TEST(MappingProperty, PlainCasesAreNeverRefused) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    const bool add = random() % 2 == 0;
    const std::string prefix = pick(random, kPrefixes);
    Case c = make_case(pick_net(random), add ? prefix : "", add ? "" : prefix, random() % 2 == 0);
    std::shuffle(c.keys.keys.begin(), c.keys.keys.end(), random);
    add_key("epoch_counter", {}, c);
    c.keys.keys.back().dtype = DType::kInt64;
    const auto mapping = map_tensors(c.graph, c.keys, {});
    ASSERT_TRUE(mapping.has_value()) << "seed " << seed << ": " << mapping.error().message;
    ASSERT_EQ(mapping->pairs.size(), c.truth.size()) << "seed " << seed;
    ASSERT_EQ(left_names(c.graph, *mapping),
              (std::vector<LeftName>{{"input.1", SlotVerdict::kUserInput}}));
    expect_no_wrong_pair(c, *mapping);
  }
}

TEST(MappingProperty, TwoNetsInOneFileAreRefusedOrRight) {
  std::size_t accepted = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    const std::string own = pick(random, {"", "student.", "model.", "module.student."});
    const std::string other = pick(random, {"teacher.", "ema.", "model.ema.", "aux.net."});
    Case c = make_case(pick_net(random), "", own, random() % 2 == 0);
    for (const Tensor& tensor : pick_net(random)) {
      add_key(other + tensor.name, tensor.shape, c);
    }
    std::shuffle(c.keys.keys.begin(), c.keys.keys.end(), random);
    MappingOptions options;
    options.partial = random() % 2 == 0 ? Partial::kAllow : Partial::kRefuse;
    const auto mapping = map_tensors(c.graph, c.keys, options);
    if (mapping) {
      ++accepted;
      expect_no_wrong_pair(c, *mapping);
      ASSERT_EQ(mapping->pairs.size(), c.truth.size()) << "seed " << seed;
    }
  }
  EXPECT_GT(accepted, 1000U);  // nets of different architectures do not disturb each other
}

TEST(MappingProperty, ASubmoduleNeverTakesTheWeightsOfItsTwin) {
  std::size_t accepted = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    const Net net = pick_net(random);
    Case c = make_case(net, "", "first.", random() % 2 == 0);
    for (const char* twin : {"second.", "third."}) {
      for (const Tensor& tensor : net) {
        if (random() % 10 != 0) {
          add_key(twin + tensor.name, tensor.shape, c);
        }
      }
    }
    EXPECT_FALSE(map_tensors(c.graph, c.keys, {}).has_value()) << "seed " << seed;
    MappingOptions options;
    options.prefix = "first";
    const auto mapping = map_tensors(c.graph, c.keys, options);
    if (mapping) {
      ++accepted;
      expect_no_wrong_pair(c, *mapping);
    }
  }
  EXPECT_EQ(accepted, 2000U);
}

TEST(MappingProperty, DroppedAndSpoiledKeysNeverGiveAWrongPair) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    Case c = make_case(pick_net(random), "", pick(random, kPrefixes), random() % 2 == 0);
    const std::size_t keys = c.keys.keys.size();
    std::set<std::string> gone;
    for (std::size_t i = 0; i <= random() % 4; ++i) {
      const std::size_t victim = random() % c.keys.keys.size();
      if (c.keys.keys[victim].name.ends_with("_old")) {
        continue;
      }
      gone.insert(c.keys.keys[victim].name);
      if (random() % 2 == 0) {
        c.keys.keys.erase(c.keys.keys.begin() + static_cast<std::ptrdiff_t>(victim));
      } else {
        c.keys.keys[victim].name += "_old";
      }
    }
    const auto strict = map_tensors(c.graph, c.keys, {});
    ASSERT_FALSE(strict.has_value()) << "seed " << seed << ": a missing weight went unseen";
    MappingOptions options;
    options.partial = Partial::kAllow;
    if (const auto mapping = map_tensors(c.graph, c.keys, options)) {
      ASSERT_EQ(mapping->pairs.size() + gone.size(), keys) << "seed " << seed;
      expect_no_wrong_pair(c, *mapping);
    }
  }
}

TEST(MappingProperty, MergedWeightsGetTheirOwnKeys) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    Random random(seed);
    const std::string prefix = pick(random, kPrefixes);
    const Net net = resnet(1 + static_cast<int>(random() % 3));
    Case c = make_case(net, "", prefix, random() % 2 == 0);
    // Slots of one shape are merged into the first of them, as an untrained export does.
    std::map<SymbolicShape, std::uint32_t> first;
    for (std::uint32_t i = 1; i < c.graph.slots.size(); ++i) {
      Slot& slot = c.graph.slots[i];
      const auto [root, fresh] = first.emplace(*slot.shape, i);
      if (!fresh && slot.shape->size() == 1) {
        slot.kind = SlotKind::kIdentityOutput;
        slot.merged_into = c.graph.slots[root->second].name;
        ++c.graph.slots[root->second].consumer_count;
      }
    }
    c.graph.graph_inputs.clear();
    for (Slot& slot : c.graph.slots) {
      if (slot.kind == SlotKind::kGraphInput) {
        slot.input_index = static_cast<std::uint32_t>(c.graph.graph_inputs.size());
        c.graph.graph_inputs.push_back(slot.name);
      }
    }
    std::stable_partition(c.graph.slots.begin(), c.graph.slots.end(),
                          [](const Slot& slot) { return slot.kind == SlotKind::kGraphInput; });
    const auto mapping = map_tensors(c.graph, c.keys, {});
    ASSERT_TRUE(mapping.has_value()) << "seed " << seed << ": " << mapping.error().message;
    ASSERT_EQ(mapping->pairs.size(), net.size());
    expect_no_wrong_pair(c, *mapping);
  }
}

}  // namespace
}  // namespace onnx_external
