#include <fmt/format.h>

#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "base/digest.h"
#include "base/output_file.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx_external/writer.h"
#include "save/file_names.h"
#include "save/manifest.h"
#include "save/output_names.h"
#include "save/publish.h"

namespace onnx_external {
namespace {

// So much of a tensor is checksummed and written while it is in the cache.
constexpr std::size_t kWritePieceBytes = std::size_t{256} << 10;
constexpr std::size_t kMaxUnsynced = 64;

Status write_pieces(const OutputFile& file, std::span<const std::byte> bytes, Crc32& crc) {
  for (std::size_t done = 0; done < bytes.size();) {
    const auto piece = bytes.subspan(done, std::min(kWritePieceBytes, bytes.size() - done));
    crc.update(piece);
    TRY(file.write(done, piece));
    done += piece.size();
  }
  return {};
}

void collect_initializers(const onnx::GraphProto& graph, std::set<std::string>& names) {
  for (const onnx::TensorProto& initializer : graph.initializer()) {
    names.insert(initializer.name());
  }
  for (const onnx::NodeProto& node : graph.node()) {
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g()) {
        collect_initializers(attribute.g(), names);
      }
      for (const onnx::GraphProto& nested : attribute.graphs()) {
        collect_initializers(nested, names);
      }
    }
  }
}

void add_entry(onnx::TensorProto& proto, const char* key, std::string value) {
  onnx::StringStringEntryProto* entry = proto.add_external_data();
  entry->set_key(key);
  entry->set_value(std::move(value));
}

}  // namespace

struct ExternalDataWriter::State {
  struct Added {
    std::string file;  // empty: inline
    std::uint64_t bytes = 0;
    std::uint32_t crc32 = 0;
  };

  Transaction transaction;
  std::mutex mutex;
  // By name, so that the manifest does not depend on the order of arrival.
  std::map<std::string, Added, std::less<>> added;
  std::deque<OutputFile> unsynced;
  std::optional<Error> broken;  // a write that was reported as done did not reach the disk

  explicit State(Transaction&& begun) : transaction(std::move(begun)) {}

  Status reserve(const std::string& name, const std::string& file, std::uint64_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!added.emplace(name, Added{file, bytes, 0}).second) {
      return fail(ErrorCode::kInvalidArgument, "tensor " + quote(name) + ": was added before");
    }
    return {};
  }

  void set_crc(const std::string& name, std::uint32_t crc32) {
    const std::lock_guard<std::mutex> lock(mutex);
    added.at(name).crc32 = crc32;
  }

  void forget(const std::string& name, const std::string& file) {
    (void)transaction.data().remove_file(file);
    const std::lock_guard<std::mutex> lock(mutex);
    added.erase(name);
  }

  Result<std::uint32_t> write_file(const std::string& file, std::span<const std::byte> bytes) {
    TRY_ASSIGN(auto output, OutputFile::create(transaction.data(), file));
    Crc32 crc;
    Status status = output.preallocate(bytes.size());
    if (status) {
      status = write_pieces(output, bytes, crc);
    }
    if (status) {
      status = hand_over(std::move(output));
    }
    if (!status) {
      return fail(std::move(status).error());
    }
    return crc.value();
  }

  Status hand_over(OutputFile output) {
    if (transaction.options().sync == Sync::kNone) {
      return output.close();
    }
    output.start_writeback();
    std::optional<OutputFile> oldest;
    {
      const std::lock_guard<std::mutex> lock(mutex);
      unsynced.push_back(std::move(output));
      if (unsynced.size() > kMaxUnsynced) {
        oldest = std::move(unsynced.front());
        unsynced.pop_front();
      }
    }
    return oldest ? sync_and_close(*oldest) : Status();
  }

  // The file may be one of another add(), so a failure breaks the writer as a whole.
  Status sync_and_close(OutputFile& output) {
    Status status = output.sync();
    if (status) {
      status = output.close();
    }
    if (!status) {
      const std::lock_guard<std::mutex> lock(mutex);
      broken = status.error();
    }
    return status;
  }

  Status sync_rest() {
    while (!unsynced.empty()) {
      OutputFile output = std::move(unsynced.front());
      unsynced.pop_front();
      TRY(sync_and_close(output));
    }
    return broken ? fail(*broken) : Status();
  }

  std::string location(const std::string& file) const {
    return transaction.options().data_dir + "/" + file;
  }

  // Every tensor that was added is in the model, and nothing external is in it but those.
  Status check_model(const Model& model) const {
    std::set<std::string> names;
    collect_initializers(model.proto().graph(), names);
    for (const auto& [name, tensor] : added) {
      if (!names.contains(name)) {
        return fail(ErrorCode::kInvalidArgument, "tensor " + quote(name) +
                                                     ": was added, but is no initializer of the "
                                                     "model; put the result of add() into it");
      }
    }
    for (const ExternalTensor& external : model.external_tensors()) {
      const auto place = added.find(external.name);
      if (place == added.end() || external.location != location(place->second.file) ||
          external.offset != 0 || external.length != place->second.bytes) {
        return fail(ErrorCode::kInvalidArgument, "initializer " + quote(external.name) +
                                                     ": refers to " + quote(external.location) +
                                                     ", which this writer did not write for it");
      }
    }
    return {};
  }

  Manifest manifest_of(const Model& model, std::string_view model_text) const {
    Manifest manifest;
    manifest.model_file = transaction.options().model_name;
    manifest.model_bytes = model_text.size();
    Crc32 crc;
    crc.update(std::as_bytes(std::span(model_text)));
    manifest.model_crc32 = crc.value();
    for (const ExternalTensor& external : model.external_tensors()) {
      const Added& tensor = added.at(external.name);
      manifest.tensors.push_back({external.name,
                                  external.graph,
                                  {},
                                  {},
                                  tensor.file,
                                  0,
                                  tensor.bytes,
                                  tensor.crc32,
                                  external.data_type,
                                  external.dims});
    }
    return manifest;
  }
};

ExternalDataWriter::ExternalDataWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
ExternalDataWriter::~ExternalDataWriter() = default;

Result<std::unique_ptr<ExternalDataWriter>> ExternalDataWriter::open(
    const std::filesystem::path& out_dir, const Options& options) {
  TRY_ASSIGN(auto data_dir,
             choose_data_dir(out_dir, options.model_name, options.data_dir, options.overwrite));
  TRY_ASSIGN(auto transaction, Transaction::begin(out_dir, {options.model_name, std::move(data_dir),
                                                            options.sync, options.overwrite}));
  return std::unique_ptr<ExternalDataWriter>(
      new ExternalDataWriter(std::make_unique<State>(std::move(transaction))));
}

Result<onnx::TensorProto> ExternalDataWriter::add(std::string_view name, DType dtype,
                                                  std::span<const std::int64_t> shape,
                                                  std::span<const std::byte> bytes) {
  const std::int32_t data_type = onnx_data_type(dtype);
  const auto dims = onnx_shape(dtype, shape);
  const auto expected = contiguous_nbytes(dtype, shape);
  const std::string tensor_name(name);
  const std::string where = "tensor " + quote(name);
  if (!is_utf8(name)) {
    return fail(ErrorCode::kInvalidArgument, where + ": its name is not UTF-8");
  }
  if (name.empty() || !expected || *expected != bytes.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} of shape {} does not have {} bytes", where, torch_name(dtype),
                            shape_text(shape), bytes.size()));
  }
  if (data_type == 0 || !dims) {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: ONNX has no type for {} of shape {}",
                                                     where, torch_name(dtype), shape_text(shape)));
  }
  onnx::TensorProto proto;
  proto.set_name(tensor_name);
  proto.set_data_type(data_type);
  proto.mutable_dims()->Add(dims->begin(), dims->end());
  const bool is_inline = bytes.empty() || (!is_floating(dtype) && dims->size() <= 1 &&
                                           bytes.size() <= kMaxInlineIntegerBytes);
  const std::string file = is_inline ? std::string() : streamed_file_name(name);
  TRY(state_->reserve(tensor_name, file, bytes.size()));
  if (is_inline) {
    proto.set_raw_data(bytes.data(), bytes.size());
    return proto;
  }
  const auto crc = state_->write_file(file, bytes);
  if (!crc) {
    state_->forget(tensor_name, file);
    return fail_in(where, crc.error());
  }
  state_->set_crc(tensor_name, *crc);
  proto.set_data_location(onnx::TensorProto::EXTERNAL);
  add_entry(proto, "location", state_->location(file));
  add_entry(proto, "offset", "0");
  add_entry(proto, "length", std::to_string(bytes.size()));
  return proto;
}

Status ExternalDataWriter::finish(const onnx::ModelProto& model) {
  TRY_ASSIGN(auto checked, Model::from_proto(model, state_->transaction.staging_path()));
  Status status = state_->check_model(checked);
  if (status) {
    status = state_->sync_rest();
  }
  if (!status) {
    return status;
  }
  TRY_ASSIGN(const auto text, checked.serialize());
  status = state_->transaction.write_model(text, manifest_text(state_->manifest_of(checked, text)));
  return status ? state_->transaction.publish() : status;
}

}  // namespace onnx_external
