#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "base/digest.h"
#include "base/parallel.h"
#include "base/progress_meter.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx/external_data.h"
#include "onnx/model_access.h"
#include "onnx/model_pieces.h"
#include "onnx_external/writer.h"
#include "save/file_names.h"
#include "save/file_syncer.h"
#include "save/manifest.h"
#include "save/model_writer.h"
#include "save/output_names.h"
#include "save/publish.h"
#include "save/staging.h"

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

// What the model says of a tensor: everything but where its bytes are.
Result<onnx::TensorProto> describe(std::string_view name, DType dtype,
                                   std::span<const std::int64_t> shape, std::uint64_t bytes) {
  const std::string where = "tensor " + quote(name);
  if (!is_utf8(name)) {
    return fail(ErrorCode::kInvalidArgument, where + ": its name is not UTF-8");
  }
  const auto expected = contiguous_nbytes(dtype, shape);
  if (name.empty() || !expected || *expected != bytes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} of shape {} does not have {} bytes", where, torch_name(dtype),
                            shape_text(shape), bytes));
  }
  const auto dims = onnx_shape(dtype, shape);
  if (onnx_data_type(dtype) == 0 || !dims) {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: ONNX has no type for {} of shape {}",
                                                     where, torch_name(dtype), shape_text(shape)));
  }
  onnx::TensorProto proto;
  proto.set_name(std::string(name));
  proto.set_data_type(onnx_data_type(dtype));
  proto.mutable_dims()->Add(dims->begin(), dims->end());
  return proto;
}

bool stays_inline(const onnx::TensorProto& proto, DType dtype, std::uint64_t bytes) {
  return bytes == 0 ||
         (!is_floating(dtype) && proto.dims_size() <= 1 && bytes <= kMaxInlineIntegerBytes);
}

}  // namespace

struct ExternalDataWriter::State {
  struct Added {
    std::string file;  // empty: inline
    std::uint64_t bytes = 0;
    std::uint32_t crc32 = 0;
  };

  Transaction transaction;
  FileSyncer syncer;
  std::mutex mutex;
  // By name, so that the manifest does not depend on the order of arrival.
  std::map<std::string, Added, std::less<>> added;

  explicit State(Transaction&& begun)
      : transaction(std::move(begun)), syncer(transaction.options().sync, 0, kMaxUnsynced) {}

  // The entry stays where it is until forget(); whoever made it fills it in.
  Result<Added*> reserve(const std::string& name, const std::string& file, std::uint64_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto [place, is_new] = added.emplace(name, Added{file, bytes, 0});
    return is_new
               ? Result<Added*>(&place->second)
               : fail(ErrorCode::kInvalidArgument, "tensor " + quote(name) + ": was added before");
  }

  void forget(const std::string& name, const std::string& file) {
    (void)transaction.data().remove_file(file);
    const std::lock_guard<std::mutex> lock(mutex);
    added.erase(name);
  }

  Result<std::uint32_t> write_file(const std::string& file, std::span<const std::byte> bytes) {
    TRY_ASSIGN(auto output, create_file(transaction.data(), file, bytes.size()));
    Crc32 crc;
    TRY(write_pieces(output, bytes, crc));
    TRY(syncer.close(std::move(output), bytes.size()));
    return crc.value();
  }

  Status sync_rest() {
    std::uint64_t bytes = 0;
    for (const auto& [name, tensor] : added) {
      bytes += tensor.file.empty() ? 0 : tensor.bytes;
    }
    const ProgressFn nobody;
    ProgressMeter meter(nobody);
    return syncer.finish(transaction.data(), bytes, thread_count(0), meter);
  }

  std::string location(const std::string& file) const {
    return transaction.options().data_dir + "/" + file;
  }

  // Every tensor that was added is in the model, and nothing external is in it but those.
  Status check_model(const Model& model) const {
    std::set<std::string_view> names;
    for (const Slot& slot : model.facts().slots) {
      if (slot.kind == SlotKind::kInitializer) {
        names.insert(slot.name);
      }
    }
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

  std::string manifest_for(const Model& model, const ModelIdentity& written) const {
    Manifest manifest;
    manifest.model_file = transaction.options().model_name;
    manifest.model_bytes = written.bytes;
    manifest.model_crc32 = written.crc32;
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
    return manifest_text(manifest);
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
  TRY_ASSIGN(auto proto, describe(name, dtype, shape, bytes.size()));
  const bool is_inline = stays_inline(proto, dtype, bytes.size());
  const std::string file = is_inline ? std::string() : streamed_file_name(name);
  TRY_ASSIGN(State::Added* const added, state_->reserve(proto.name(), file, bytes.size()));
  if (is_inline) {
    proto.set_raw_data(bytes.data(), bytes.size());
    return proto;
  }
  const auto crc = state_->write_file(file, bytes);
  if (!crc) {
    state_->forget(proto.name(), file);
    return fail_in("tensor " + quote(name), crc.error());
  }
  added->crc32 = *crc;
  write_external_entries({state_->location(file), 0, bytes.size(), {}}, proto);
  return proto;
}

Status ExternalDataWriter::finish(const onnx::ModelProto& model) {
  Transaction& transaction = state_->transaction;
  TRY_ASSIGN(const auto checked, Model::from_proto(model, transaction.staging_path()));
  TRY(state_->check_model(checked));
  TRY(state_->sync_rest());
  TRY_ASSIGN(const auto pieces, model_pieces(checked));
  WriteOptions options;
  options.sync = transaction.options().sync;
  TRY_ASSIGN(const auto written, write_model_file({transaction.staging(),
                                                   transaction.options().model_name,
                                                   pieces,
                                                   ModelAccess::cuts(checked),
                                                   {},
                                                   options}));
  TRY(transaction.write_manifest(state_->manifest_for(checked, written)));
  return transaction.publish();
}

}  // namespace onnx_external
