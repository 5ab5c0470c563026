// fuzz_seeds FOLDER: writes honest inputs for each target into FOLDER/<target>/.
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/pieces.h"
#include "fuzz/seed_pickles.h"
#include "fuzz/seeds.h"
#include "onnx/wire_reader.h"
#include "save/manifest.h"
#include "support/gguf_builder.h"
#include "support/graph_builder.h"

namespace {

using namespace onnx_external;

// The members of a tar file: one storage, one tensor that views it, {"w": the tensor}.
struct TarSeed {
  std::string storages = PickleBuilder().proto().integer(1).stop().bytes();
  std::string tensors = storages;
  std::string object = {};

  TarSeed() {
    PickleBuilder storage;
    storage.proto().mark().integer(10).string("cpu").global("torch", "FloatStorage").tuple();
    storages += storage.stop().bytes();
    put_le(storages, 2, 8);
    PickleBuilder views;
    views.proto().empty_list().integers({11, 10, 1, 1}).op('a');
    storages += f32({1, 2}) + views.stop().bytes();
    PickleBuilder tensor;
    tensor.proto().mark().integer(20).integer(10).global("torch", "FloatTensor").tuple();
    tensors += tensor.stop().bytes();
    put_le(tensors, 1, 8);  // rank, and four bytes that mean nothing
    put_le(tensors, 2, 8);
    put_le(tensors, 1, 8);
    put_le(tensors, 0, 8);
    PickleBuilder pickle;
    pickle.proto().empty_dict().string("w").string("20").persistent_id().op('s').stop();
    object = pickle.bytes();
  }
  [[nodiscard]] std::string members() const {
    std::string input;
    put_le(input, storages.size(), 2);
    input += storages;
    put_le(input, tensors.size(), 2);
    return input + tensors + object;
  }
  [[nodiscard]] std::string file() const {
    return tar_file({{"storages", storages}, {"tensors", tensors}, {"pickle", object}});
  }
};

class Seeds {
 public:
  explicit Seeds(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void add(const std::string& target, std::string_view bytes) {
    const auto place = folder_ / target;
    std::filesystem::create_directories(place);
    std::ofstream(place / std::to_string(count_++), std::ios::binary) << bytes;
  }
  // With what is ignored behind it, as targets take their options from the size.
  void add_sizes(const std::string& target, const std::string& bytes, char ignored) {
    for (std::size_t more = 0; more < 15; ++more) {
      add(target, bytes + std::string(more, ignored));
    }
  }
  void add_sizes(const std::string& target, const ZipBuilder& zip) {
    for (std::size_t more = 0; more < 15; ++more) {
      add(target, zip.finish([&](ZipEnd& end) { end.comment = std::string(more, ' '); }));
    }
  }
  void add_fixture(const std::string& target, const std::string& name) {
    add(target, read_text(std::filesystem::path(ONNX_EXTERNAL_FIXTURES) / name));
  }

 private:
  std::filesystem::path folder_;
  std::size_t count_ = 0;
};

void add_pickles(Seeds& seeds) {
  std::vector<std::string> pickles = {
      values_pickle(),
      wrapped_pickle(),
      torchao_pickle(),
      hqq_pickle(),
      arrays_pickle(),
      module_pickle(),
      inputs_pickle(),
      opcodes_pickle(),
      script_pickle(),
      state_dict_pickle({{.name = "a", .shape = {2}, .bytes = f32({1, 2})},
                         {.name = "b", .shape = {2}, .offset = 0, .shares = "a"}},
                        "state_dict")};
  for (const char* layout : {"csr", "csc", "bsr", "bsc"}) {
    pickles.push_back(sparse_pickle(std::string("sparse_") + layout));
  }
  for (const std::string& pickle : pickles) {
    seeds.add("pickle", pickle);
    seeds.add("values", pickle);
    seeds.add("zip", values_file(pickle));
    seeds.add("script", piece(kScriptCode) + piece(constants_pickle()) + pickle);
  }
  seeds.add("legacy", legacy_file(legacy_object(), {{"7", f32({1, 2, 3, 4})}}));
  seeds.add("legacy", legacy_file(legacy_module_pickle(), {{"7", f32({1, 2, 3, 4})}}));
  seeds.add("legacy", legacy_storage_file(f32({1, 2})));
  seeds.add("legacy", plain_pickle());
  seeds.add("legacy", arrays_pickle());
  seeds.add("legacy", opcodes_pickle());
  const auto view = [](PickleBuilder& pickle) {
    pickle.mark().string("9").integer(1).integer(2).tuple();
  };
  PickleBuilder viewed;
  viewed.proto().empty_dict().string("w");
  put_legacy_tensor(viewed, "7", 4, 0, 2, [&] { view(viewed); });
  seeds.add("legacy", legacy_file(viewed.op('s').stop().bytes(), {{"7", f32({1, 2, 3, 4})}}));
}

void add_distributed(Seeds& seeds) {
  std::map<std::string, std::string> files;
  DcpSpec spec = dcp_seed();
  seeds.add_sizes("dcp", dcp_metadata(spec, files), 'x');
  spec.paths = {{"w", {"model", "w"}}, {"b", {"model", "b"}}, {"step", {"step"}}};
  spec.tensors[0].chunks[0].transform = "zstd";
  seeds.add_sizes("dcp", dcp_metadata(spec, files), 'x');
  spec.tensors[0].chunks.pop_back();
  spec.tensors[1].chunks[0].places = 2;
  seeds.add_sizes("dcp", dcp_metadata(spec, files), 'x');
}

// PT2 archives: two programs with saved weights, none, one without weights; a compressed flat one.
void add_programs(Seeds& seeds, const std::vector<TestTensor>& tensors) {
  ZipBuilder two;
  two.add({.name = "m/archive_format", .data = "pt2"});
  two.add({.name = "m/models/model.json", .data = "{}"});
  two.add({.name = "m/models/b.json", .data = "{}"});
  two.add({.name = "m/data/weights/model.pt", .data = torch_zip(tensors)});
  two.add({.name = "m/data/weights/b.pt", .data = ""});
  two.add({.name = "m/data/sample_inputs/model.pt", .data = torch_zip(tensors)});
  seeds.add_sizes("zip", two);
  ZipBuilder none;
  none.add({.name = "m/archive_format", .data = "pt2"});
  seeds.add_sizes("zip", none);
  ZipBuilder bare;
  bare.add({.name = "m/archive_format", .data = "pt2"});
  bare.add({.name = "m/archive_version", .data = "0"});
  bare.add({.name = "m/models/model.json", .data = "{}"});
  seeds.add_sizes("zip", bare);
  ZipBuilder flat;
  flat.add({.name = "m/serialized_exported_program.json", .data = "{}"});
  flat.add({.name = "m/serialized_state_dict.pt", .data = torch_zip(tensors), .deflated = true});
  flat.add({.name = "m/serialized_example_inputs.pt", .data = torch_zip(tensors)});
  seeds.add_sizes("zip", flat);
}

void add_zips(Seeds& seeds) {
  const std::vector<TestTensor> tensors = {
      {.name = "w", .shape = {2}, .bytes = f32({1, 2})},
      {.name = "h", .dtype = DType::kFloat16, .shape = {1}, .bytes = "ab"}};
  seeds.add("zip", torch_zip(tensors));
  seeds.add("zip", torch_zip(tensors, {.byte_order = "big", .nested_in = "state_dict"}));
  seeds.add("zip", torch_zip(tensors, {.byte_order = "", .deflated = true}));
  seeds.add("zip", torch_zip(tensors, {.with_crc = false}));
  seeds.add("zip", exported_archive(kExportedConfig));
  seeds.add("zip", script_archive(script_pickle(), constants_pickle(), kScriptCode));
  ZipBuilder flat;
  flat.add({.name = "m/serialized_exported_program.json", .data = "{}"});
  flat.add({.name = "m/version", .data = "3"});
  flat.add({.name = "m/serialized_state_dict.pt", .data = torch_zip(tensors)});
  flat.add({.name = "m/serialized_constants.json", .data = torch_zip({})});
  flat.add({.name = "m/serialized_example_inputs.pt", .data = torch_zip({})});
  seeds.add_sizes("zip", flat);
  for (const char* name : {"m/model.json", "m/.data/extern_modules", "loose", "m/other"}) {
    ZipBuilder other;
    other.add({.name = name, .data = "{}", .descriptor = false, .alignment = 0});
    seeds.add("zip", other.finish([](ZipEnd& end) { end.zip64 = false; }));
  }
  for (const char* name : {"tiny/two_lengths.pt", "bad/expand_bomb.pt", "bad/os_system.pt",
                           "modern/dtensors.pt", "modern/skipped.pt", "modern/script.pt"}) {
    seeds.add_fixture("zip", name);
  }
  seeds.add_sizes("exported", std::string(kExportedConfig), ' ');
  add_programs(seeds, tensors);
}

// A stored tensor of a quantized weight, of so many bytes.
struct QuantizedPart {
  const char* name;
  const char* dtype;
  const char* shape;
  std::size_t bytes;
};

// What fuzz_quantized reads.
std::string quantized_seed(const std::string& config, const std::vector<QuantizedPart>& parts) {
  std::string header = "{";
  std::string data;
  for (const QuantizedPart& part : parts) {
    header += std::string(data.empty() ? "" : ",") + "\"" + part.name + R"(":{"dtype":")" +
              part.dtype + R"(","shape":)" + part.shape + R"(,"data_offsets":[)" +
              std::to_string(data.size());
    for (std::size_t i = 0; i < part.bytes; ++i) {
      data += static_cast<char>(i * 37 % 64);
    }
    header += "," + std::to_string(data.size()) + "]}";
  }
  const std::string zero(1, '\0');
  return config + zero + header + "}" + zero + data;
}

void add_quantized(Seeds& seeds) {
  const QuantizedPart order{"a.g_idx", "I32", "[32]", 128};
  seeds.add("quantized", quantized_seed(R"({"quant_method":"gptq","bits":4,"group_size":16})",
                                        {{"a.qweight", "I32", "[4,8]", 128},
                                         {"a.qzeros", "I32", "[2,1]", 8},
                                         {"a.scales", "F16", "[2,8]", 32}}));
  seeds.add("quantized",
            quantized_seed(R"({"quant_method":"gptq","bits":8,"checkpoint_format":"gptq_v2"})",
                           {{"a.qweight", "I32", "[8,8]", 256},
                            {"a.qzeros", "I32", "[64,2]", 512},
                            {"a.scales", "F16", "[64,8]", 1024},
                            order}));
  seeds.add("quantized", quantized_seed(R"({"quant_method":"awq","bits":4,"group_size":16})",
                                        {{"a.qweight", "I32", "[32,1]", 128},
                                         {"a.qzeros", "I32", "[2,1]", 8},
                                         {"a.scales", "F16", "[2,8]", 32}}));
  const std::string compressed = R"({"quant_method":"compressed-tensors","format":")";
  const std::string groups =
      R"(","config_groups":{"g":{"targets":["Linear"],"weights":{"num_bits":)";
  seeds.add("quantized",
            quantized_seed(compressed + "pack-quantized" + groups +
                               R"(4,"type":"int","strategy":"group","group_size":16}}}})",
                           {{"a.weight_packed", "I32", "[8,4]", 128},
                            {"a.weight_scale", "BF16", "[8,2]", 32},
                            {"a.weight_shape", "I64", "[2]", 16}}));
  seeds.add("quantized", quantized_seed(compressed + "nvfp4-pack-quantized" + groups +
                                            R"(4,"type":"float","group_size":16}}}})",
                                        {{"a.weight_packed", "U8", "[8,16]", 128},
                                         {"a.weight_scale", "F8_E4M3", "[8,2]", 16},
                                         {"a.weight_global_scale", "F32", "[1]", 4}}));
  seeds.add("quantized", quantized_seed(R"({"quant_method":"fp8","weight_block_size":[4,16]})",
                                        {{"a.weight", "F8_E4M3", "[8,32]", 256},
                                         {"a.weight_scale_inv", "F32", "[2,2]", 16}}));
  seeds.add("quantized",
            quantized_seed(R"({"group_size":16,"bits":4})", {{"a.weight", "U32", "[8,4]", 128},
                                                             {"a.scales", "F16", "[8,2]", 32},
                                                             {"a.biases", "F16", "[8,2]", 32}}));
  seeds.add("quantized", quantized_seed("", {{"e_blocks", "U8", "[2,4,1,16]", 128},
                                             {"e_scales", "U8", "[2,4,1]", 8}}));
  seeds.add("quantized",
            quantized_seed("", {{"a.weight", "I8", "[8,32]", 256}, {"a.SCB", "F32", "[8]", 32}}));
}

void add_texts(Seeds& seeds) {
  seeds.add("gguf", tiny_gguf().bytes());
  seeds.add("gguf", GgufBuilder().string("general.type", "adapter").uint("split.count", 2).bytes());
  seeds.add(
      "safetensors",
      safetensors_file(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", f32({1, 2})));
  seeds.add("safetensors",
            safetensors_file(R"({"__metadata__":{"format":"pt","tied":"b","DCP_SHARDING_INFO":)"
                             R"("{\"b\":{\"saved_offsets\":[0,1]}}"},)"
                             R"("a":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]},)"
                             R"("b":{"dtype":"F4","shape":[4],"data_offsets":[4,6]},)"
                             R"("c":{"dtype":"I64","shape":[0],"data_offsets":[6,6]}})",
                             "abcdef"));
  seeds.add("safetensors", safetensors_file(std::string("{}\0}", 4), ""));
  seeds.add("safetensors", safetensors_file("\xEF\xBB\xBF{}", ""));
  seeds.add_fixture("safetensors", "bad/overlapping.safetensors");
  seeds.add_fixture("safetensors", "bad/duplicate_names.safetensors");
  seeds.add("index", R"({"metadata":{"total_size":16},"weight_map":{"a":"a.safetensors",)"
                     R"("b":"b.safetensors"}})");
  seeds.add("index", R"({"weight_map":{"w":"c.bin"}})");
  seeds.add("index", R"({"weight_map":{"a":"link","\u00e9\ud83d\ude00":"none"}})");
  for (const char* map : {R"([])", R"({"a":1})", R"({"a":"a.safetensors","b":"a.safetensors"})",
                          R"({"x":"../a"})", R"({"a":"a.safetensors","w":"c.bin"})", R"({})",
                          R"({"b":"a.safetensors","a":"b.safetensors"})", R"({"a":"none"})"}) {
    seeds.add("index", R"({"weight_map":)" + std::string(map) + "}");
  }
  seeds.add("map", R"({"fc.weight": "module.fc.weight", "a\u00e9": "b"})");
  seeds.add("map", R"({"map": {"a": "b", "c": "d"}, "n": [1, -2, 3.5e1, true, false, null]})");
  seeds.add("map", R"({"w": {"key": "k", "recipe": ["transpose", {"permute": [1, 0]}, )"
                   R"({"reshape": [2, -1]}, {"slice": [0, -4, 128]}, "cast"]}})");
  seeds.add("map", R"({"derived": {"x": {"concat": ["a", {"stack": ["b", "c"], "dim": -1, )"
                   R"("recipe": [{"reshape": []}]}], "dim": 0}, "y": "x"}, "map": {"w": "y"}})");
  seeds.add("map", R"(s/^a\.(\w+)$/b.\1/g)");
  seeds.add("map", R"(s|a\||b|)");
  seeds.add("entries", "1\n2,3\nlocation=model.data\noffset=4096\nlength=24\n");
  seeds.add("entries", "16\n\nlocation=a/b\nchecksum=" + std::string(40, 'a') + "\n");
  seeds.add("entries", "22\n8\nlocation=../x\nlength=4\nprepacked_0=1|2\n\n");
  seeds.add("entries", "10\n-1\nlocation=*/_ORT_MEM_ADDR_/*\noffset=99999999999999999999\n");
  const std::string record = R"({"record": 2, "job": "0123456789abcdef")";
  seeds.add("record", record + "\n" + R"({"part": 3, "crc32": "12345678")");
  seeds.add("record", record + "\n" +
                          R"({"publish": {"replace": true, "entries": ["a.1.manifest.json", )"
                          R"("f.1"], "files": [["f.1/x", 24, 1700000000123456789]], "models": )"
                          R"([{"file": "a.onnx", "bytes": 12, "crc32": "00000abc", "manifest": )"
                          R"(["a.1.manifest.json", 9, 8], "old_data": [{"manifest": )"
                          R"(["f/manifest.json", 7, 6], "files": [["f/x", 5, 4]]}], )"
                          R"("replaces": {"bytes": 11, "crc32": "00000abd"}}]})");
}

void add_manifests(Seeds& seeds) {
  Manifest manifest;
  manifest.model_file = "model.onnx";
  manifest.model_bytes = 4321;
  manifest.tensors.push_back(
      {"fc.weight", 0, "m.fc.weight", "exact", "fc.weight", 0, 24, 0xDEADBEEF, 1, {2, 3}});
  seeds.add("manifest", manifest_text(manifest));
  manifest.linked = {{"a/b.pt", 99}};
  manifest.tensors.push_back({"w", 2, "", "", "a/b.pt", 64, 8, std::nullopt, 7, {1}});
  manifest.tensors.back().place = TensorPlace::kSparse;
  manifest.tensors.push_back({"c", 0, "", "", "", 0, 8, 1, 7, {}, TensorPlace::kAttribute});
  seeds.add("manifest", manifest_text(manifest));
  manifest.tensors[0].recipe = {RecipeStep::transpose()};
  seeds.add("manifest", manifest_text(manifest));
}

// The forms in which a graph holds tensors: external, raw, in each typed field, sparse, in
// attributes, in subgraphs, functions and training.
std::string graph_of_all() {
  GraphBuilder graph;
  graph.input("x", kFloat, {1, kAnySize}).input("w", kFloat, {2, 2});
  graph.initializer("raw", kFloat, {2, 2}, std::string(16, 'r'));
  graph.initializer("large", kFloat, {200}, std::string(800, 'l'));
  graph.initializer("empty", kFloat, {0}, "").initializer("open", kFloat, {2}, "");
  graph.external("e", kFloat, {2}, {{"location", "d"}, {"offset", "0"}, {"length", "8"}});
  graph.node("Identity", {"w"}, {"v"}).node("MatMul", {"x", "v"}, {"y"});
  graph.node("Resize", {"x", "", "raw"}, {"z"}).node("If", {"x"}, {"i"});
  graph.begin_subgraph("then_branch").initializer("s", kInt64, {1}, std::string(8, 's'));
  graph.node("Add", {"s", "free"}, {"t"}).end_subgraph().output("y", kFloat, {1, 2});
  onnx::GraphProto& main = *graph.model().mutable_graph();
  const auto typed = [&](const char* name, std::int32_t type) {
    onnx::TensorProto& tensor = *main.add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(type);
    tensor.add_dims(2);
    return &tensor;
  };
  typed("float", kFloat)->mutable_float_data()->Resize(2, 1.5F);
  typed("int32", onnx::TensorProto::FLOAT16)->mutable_int32_data()->Resize(2, 77);
  typed("int64", kInt64)->mutable_int64_data()->Resize(2, -1);
  typed("double", onnx::TensorProto::COMPLEX128)->mutable_double_data()->Resize(4, 0.5);
  typed("uint64", onnx::TensorProto::UINT32)->mutable_uint64_data()->Resize(2, 5);
  typed("text", onnx::TensorProto::STRING)->add_string_data("s");
  onnx::SparseTensorProto& sparse = *main.add_sparse_initializer();
  *sparse.mutable_values() = *typed("sparse", kFloat);
  main.mutable_initializer()->RemoveLast();
  sparse.mutable_values()->mutable_float_data()->Resize(2, 1.5F);
  sparse.mutable_indices()->set_data_type(kInt64);
  sparse.mutable_indices()->add_dims(2);
  sparse.mutable_indices()->mutable_int64_data()->Resize(2, 1);
  sparse.add_dims(4);
  onnx::NodeProto& node = *main.add_node();
  node.set_op_type("Constant");
  node.add_output("constant");
  *node.add_attribute()->mutable_t() = main.initializer(0);
  *node.add_attribute()->mutable_sparse_tensor() = sparse;
  *node.add_attribute()->add_tensors() = main.initializer(1);
  *graph.model().add_functions()->add_node() = node;
  graph.model().add_training_info()->mutable_algorithm()->add_node()->CopyFrom(node);
  return graph.bytes();
}

std::string field(char tag, const std::string& body) {
  std::string text(1, tag);
  append_varint(text, body.size());
  return text + body;
}

// A model with one initializer of 160 numbers, each behind a tag of its own, as old writers have
// it.
std::string graph_of_single_values(std::int32_t type, const std::string& tag_and_value) {
  onnx::TensorProto tensor;
  tensor.set_name("w");
  tensor.set_data_type(type);
  tensor.add_dims(160);
  std::string bytes = tensor.SerializeAsString();
  for (int i = 0; i < 160; ++i) {
    bytes += tag_and_value;
  }
  return field('\x3a', field('\x2a', bytes));
}

// Data that is left in the file, in each field.
void add_large_tensors(Seeds& seeds) {
  constexpr auto kTypes = std::to_array<std::int32_t>(
      {onnx::TensorProto::FLOAT, onnx::TensorProto::BFLOAT16, onnx::TensorProto::INT64,
       onnx::TensorProto::DOUBLE, onnx::TensorProto::UINT64, onnx::TensorProto::INT8});
  for (const std::int32_t type : kTypes) {
    onnx::ModelProto model;
    onnx::TensorProto& tensor = *model.mutable_graph()->add_initializer();
    tensor.set_name("w");
    tensor.set_data_type(type);
    tensor.add_dims(600);
    switch (type) {
      case onnx::TensorProto::FLOAT:
        tensor.mutable_float_data()->Resize(600, 1.5F);
        break;
      case onnx::TensorProto::INT64:
        tensor.mutable_int64_data()->Resize(600, 5);
        break;
      case onnx::TensorProto::DOUBLE:
        tensor.mutable_double_data()->Resize(600, 0.5);
        break;
      case onnx::TensorProto::UINT64:
        tensor.mutable_uint64_data()->Resize(600, 5);
        break;
      default:
        tensor.mutable_int32_data()->Resize(600, 5);
    }
    seeds.add("onnx", model.SerializeAsString());
  }
  seeds.add("onnx",
            graph_of_single_values(onnx::TensorProto::FLOAT, std::string("\x25\0\0\0\0", 5)));
  seeds.add("onnx", graph_of_single_values(onnx::TensorProto::INT32, "\x28\x96\x96\x96\x06"));
}

void add_models(Seeds& seeds) {
  add_large_tensors(seeds);
  seeds.add("onnx", graph_of_all());
  GraphBuilder small;
  small.input("w", kFloat, {2}).node("Relu", {"w"}, {"y"}).output("y", kFloat, {2});
  seeds.add("onnx", small.bytes());
  GraphBuilder external(3);
  external.input("e", kFloat, {2});
  external.external("e", kFloat, {2}, {{"location", "d"}, {"offset", "4096"}});
  seeds.add("onnx", external.node("Upsample", {"e", "free"}, {"y"}).bytes());
  seeds.add("onnx", "<html>");
  seeds.add("onnx", "version https://git-lfs.github.com/spec/v1\n");
  seeds.add("onnx", std::string("PK\x03\x04", 4));
  seeds.add("onnx", "ir_version: 8");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: fuzz_seeds FOLDER\n", stderr);
    return 2;
  }
  Seeds seeds(argv[1]);
  add_pickles(seeds);
  add_distributed(seeds);
  add_zips(seeds);
  add_texts(seeds);
  add_quantized(seeds);
  add_manifests(seeds);
  add_models(seeds);
  seeds.add("tar", TarSeed().members());
  seeds.add("tar", TarSeed().file());
  return 0;
}
