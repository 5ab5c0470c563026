#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "base/try.h"
#include "onnx_external/provided_tensors.h"
#include "onnx_external/writer.h"

namespace onnx_external {

struct Writer::State {
  std::unique_ptr<ExternalDataWriter> writer;
  std::mutex mutex;
  std::map<std::string, onnx::TensorProto, std::less<>> added;

  Status keep(Result<onnx::TensorProto> initializer) {
    if (!initializer) {
      return fail(std::move(initializer).error());
    }
    const std::lock_guard<std::mutex> lock(mutex);
    std::string name = initializer->name();
    added.insert_or_assign(std::move(name), *std::move(initializer));
    return {};
  }

  // Gives the initializers of `graph` that were added their data, and appends those that it lacks.
  Status fill(onnx::GraphProto& graph) const {
    std::set<std::string_view> filled;
    for (onnx::TensorProto& initializer : *graph.mutable_initializer()) {
      const auto found = added.find(initializer.name());
      if (found == added.end()) {
        continue;
      }
      const auto& [name, given] = *found;
      if (initializer.data_type() != given.data_type() ||
          !std::equal(initializer.dims().begin(), initializer.dims().end(), given.dims().begin(),
                      given.dims().end())) {
        return fail(ErrorCode::kMismatch, "initializer " + quote(initializer.name()) +
                                              ": its type or shape in the model differs from that "
                                              "of the added tensor with this name");
      }
      initializer = given;
      filled.insert(name);
    }
    for (const auto& [name, given] : added) {
      if (!filled.contains(name)) {
        *graph.add_initializer() = given;
      }
    }
    return {};
  }
};

Writer::Writer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Writer::Writer(Writer&&) noexcept = default;
Writer& Writer::operator=(Writer&&) noexcept = default;
Writer::~Writer() = default;

Result<Writer> Writer::create(const std::filesystem::path& model,
                              ExternalDataWriter::Options options) {
  options.model_name = model.filename().string();
  if (model.extension() != ".onnx") {
    return fail(ErrorCode::kInvalidArgument,
                model.string() + ": the name of a model must end with .onnx");
  }
  auto state = std::make_unique<State>();
  TRY_ASSIGN(state->writer, ExternalDataWriter::open(
                                model.has_parent_path() ? model.parent_path() : ".", options));
  return Writer(std::move(state));
}

Status Writer::add(std::string_view name, DType dtype, std::span<const std::int64_t> shape,
                   std::span<const std::byte> bytes) {
  return state_->keep(state_->writer->add(name, dtype, shape, bytes));
}

Status Writer::add(ProvidedTensor tensor) {
  return state_->keep(state_->writer->add(std::move(tensor)));
}

Status Writer::finish(onnx::ModelProto model) {
  if (model.has_graph()) {  // else it is refused
    TRY(state_->fill(*model.mutable_graph()));
  }
  return state_->writer->finish(model);
}

}  // namespace onnx_external
