// Any bytes as a model: loaded as a graph and as a saved model is, its slots found, its numbers
// read. What is serialized again says the same.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/memory_file.h"
#include "onnx/graph_facts.h"
#include "onnx/inline_data.h"
#include "onnx/tensor_list.h"
#include "onnx/wire_scan.h"
#include "onnx_external/cut.h"
#include "onnx_external/model.h"
#include "verify/findings.h"

namespace {

using namespace onnx_external;

void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

void read_numbers(const Model& model) {
  constexpr std::uint64_t kMost = 4096;
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < model.inline_tensors().size(); ++i) {
    auto reader = InlineReader::open(model, i);
    if (reader) {
      bytes.resize(static_cast<std::size_t>(std::min(reader->nbytes(), kMost)));
      (void)reader->read(bytes).has_value();
    }
  }
}

void check_entries(const onnx::ModelProto& proto) {
  const auto tensors = list_tensors(proto);
  require(tensors.has_value());
  std::vector<Finding> findings;
  for (const ListedTensor& tensor : *tensors) {
    if (is_external(*tensor.proto)) {
      (void)read_entry(tensor, findings).has_value();
    }
  }
}

// Every tensor's data, however little, has its place inside the input.
void scan(std::string_view bytes) {
  const auto found = scan_model(WireInput(bytes), {1});
  if (!found) {
    return;
  }
  for (const WireTensor& tensor : found->tensors) {
    for (const WireSegment& piece : found->segments_of(tensor)) {
      require(piece.begin < piece.payload && piece.payload <= piece.end &&
              piece.end <= bytes.size());
    }
  }
}

// A piece is a model, with as many nodes as its report says. It is not put into the memory file:
// the model that it is cut from still reads that.
void cut_by(const Model& model, const CutOptions& options) {
  const auto piece = cut_model(model, options);
  onnx::ModelProto proto;
  if (piece) {
    require(proto.ParseFromString(piece->model) &&
            static_cast<std::uint64_t>(proto.graph().node_size()) == piece->report.nodes);
    require(Model::from_proto(std::move(proto), "").has_value());
  }
}

void cut_pieces(const Model& model) {
  CutOptions between;
  between.inputs = model.facts().graph_inputs;
  for (const auto& output : model.proto().graph().output()) {
    between.outputs.push_back(output.name());
  }
  cut_by(model, between);
  constexpr std::size_t kMostModules = 3;
  const std::vector<std::string>& modules = model.facts().modules;
  for (std::size_t i = 0; i < std::min(modules.size(), kMostModules); ++i) {
    CutOptions options;
    options.module = modules[i];
    cut_by(model, options);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  scan({reinterpret_cast<const char*>(data), size});
  const auto model = Model::load(memory_path(data, size));
  if (!model) {
    return 0;
  }
  read_numbers(*model);
  check_entries(model->proto());
  cut_pieces(*model);
  const auto bytes = model->serialize();
  require(bytes.has_value());
  const auto again = Model::load(memory_path(bytes->data(), bytes->size()));
  require(again && again->facts().slots.size() == model->facts().slots.size() &&
          again->inline_tensors().size() == model->inline_tensors().size() &&
          again->external_tensors().size() == model->external_tensors().size());
  return 0;
}
