#include <fmt/format.h>

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/cancellation.h"
#include "base/parallel.h"
#include "base/progress_meter.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "onnx/added_initializers.h"
#include "onnx/external_data.h"
#include "onnx/graph_facts.h"
#include "onnx/model_access.h"
#include "onnx_external/provided_tensors.h"
#include "onnx_external/writer.h"
#include "save/item_copier.h"
#include "save/layout.h"
#include "save/model_builder.h"
#include "save/output_folder.h"
#include "save/plan_checks.h"
#include "save/planned_bytes.h"
#include "save/publish.h"
#include "save/streamed_files.h"
#include "save/written_ranges.h"

namespace onnx_external {
namespace {

PlanOptions layout_options(const WriterOptions& options) {
  PlanOptions layout;
  layout.layout = options.layout;
  layout.data_name = options.data_name;
  layout.max_shard_bytes = options.max_shard_bytes;
  layout.alignment = options.alignment;
  return layout;
}

WriteOptions write_options(const WriterOptions& options) {
  WriteOptions write;
  write.threads = options.threads;
  write.sync = options.sync;
  write.progress = options.progress;
  return write;
}

Status check_layout(const PlanOptions& layout) {
  if (layout.layout == Layout::kInline || layout.layout == Layout::kLink) {
    return fail(ErrorCode::kInvalidArgument,
                "tensors that are added one by one need data files; choose another layout");
  }
  return check_layout_options(layout);
}

// The position of the data that was added.
struct AddedPlace {
  std::optional<StreamedRange> place;  // nothing: in the initializer
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;
  onnx::TensorProto initializer;
};

}  // namespace

struct Writer::State {
  std::unique_ptr<Transaction> begun;
  Transaction& transaction;
  WriterOptions options;
  WriteOptions write;
  StreamedFiles files;
  ProgressMeter meter;
  Model no_tensors;  // for copies, which read no tensors of a model
  std::mutex mutex;
  // By name, so that nothing depends on the order of arrival but what the layout makes depend.
  std::map<std::string, AddedPlace, std::less<>> added;

  State(std::unique_ptr<Transaction> given_transaction, WriterOptions given, Model empty)
      : begun(std::move(given_transaction)),
        transaction(*begun),
        options(std::move(given)),
        write(write_options(options)),
        files(transaction, layout_options(options)),
        meter(options.progress),
        no_tensors(std::move(empty)) {
    meter.begin(Phase::kCopy, 0);
  }

  Result<onnx::TensorProto> add(AddedTensor tensor) {
    TRY_ASSIGN(AddedPlace* const place, reserve(tensor));
    onnx::TensorProto proto = tensor.initializer();
    Status status = without_exceptions([&]() -> Status {
      if (!place->place) {
        TRY_ASSIGN(auto raw, tensor.read());
        proto.set_raw_data(std::move(raw));
        return {};
      }
      const auto crc = copy(tensor, *place->place);
      Status released = files.release(*place->place);
      TRY_IN(tensor.where(), crc);
      place->crc32 = *crc;
      return released;
    });
    if (!status) {
      forget(tensor.name(), *place);
      return fail(std::move(status).error());
    }
    if (place->place) {
      const auto [file, offset] = *place->place;
      write_external_entries({files.location(file), offset, place->bytes, {}}, proto);
    }
    place->initializer = proto;
    return proto;
  }

  // The entry stays where it is until forget(); whoever made it fills it in.
  Result<AddedPlace*> reserve(const AddedTensor& tensor) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto [entry, is_new] = added.try_emplace(tensor.name());
    if (!is_new) {
      return fail(ErrorCode::kInvalidArgument, tensor.where() + ": was already added");
    }
    entry->second.bytes = tensor.bytes();
    if (!tensor.is_inline()) {
      auto place = files.take(tensor.name(), tensor.bytes());
      if (!place) {
        added.erase(entry);
        return fail_in(tensor.where(), std::move(place).error());
      }
      entry->second.place = *place;
    }
    return &entry->second;
  }

  void forget(const std::string& name, const AddedPlace& place) {
    if (place.place) {
      files.drop(*place.place);
    }
    const std::lock_guard<std::mutex> lock(mutex);
    added.erase(name);
  }

  Result<std::uint32_t> copy(AddedTensor& tensor, const StreamedRange& place) {
    TRY_ASSIGN(const OutputFile* const output, files.open(place, tensor.bytes()));
    tensor.plan.layout = options.layout;
    tensor.plan.ranges.front().offset = place.offset;
    TRY_ASSIGN(const auto source, source_of(tensor.tensor(), no_tensors, tensor.checkpoint));
    ItemCopier copier(tensor.plan, no_tensors, tensor.checkpoint,
                      [this](std::uint64_t bytes) { return meter.add(bytes); });
    CopyBuffers buffers;
    const OutputFile* const outputs[] = {output};
    const bool is_shared = options.layout != Layout::kPerTensor;
    TRY_ASSIGN(const auto copied,
               copier.copy({{0, 0, tensor.bytes()}, source, outputs, is_shared}, buffers));
    TRY(tensor.checkpoint.check_unchanged());
    return *copied.crcs[0];  // the kernel moves only what has a recorded CRC-32, which provided
                             // tensors have not
  }

  AddedInitializers initializers() const {
    AddedInitializers all;
    for (const auto& [name, tensor] : added) {
      all.emplace(name, tensor.initializer);
    }
    return all;
  }

  // Every tensor that was added is in the model, nothing external is in it but those, no weight is
  // missing, and none contradicts another.
  Status check_model(const Model& model) const {
    std::set<std::string_view> names;
    for (const Slot& slot : model.facts().slots) {
      if (slot.kind == SlotKind::kInitializer) {
        names.insert(slot.name);
      }
    }
    for (const auto& [name, tensor] : added) {
      if (!names.contains(name)) {
        return fail(ErrorCode::kInvalidArgument,
                    "tensor " + quote(name) +
                        ": was added, but is not an initializer of the model; put the result of "
                        "add() into the model");
      }
    }
    Mapping none;
    none.options.partial = options.partial;
    TRY_IN("the given graph", check_complete(model, none, "add() each of them"));
    for (const ExternalTensor& external : model.external_tensors()) {
      const auto entry = added.find(external.name);
      const bool is_ours = entry != added.end() && entry->second.place &&
                           external.location == files.location(entry->second.place->file) &&
                           external.offset == entry->second.place->offset &&
                           external.length == entry->second.bytes;
      if (!is_ours) {
        return fail(ErrorCode::kInvalidArgument, "initializer " + quote(external.name) +
                                                     ": refers to " + quote(external.location) +
                                                     ", which this writer did not write for it");
      }
    }
    TRY_IN("the given graph", check_shapes(model));
    return {};
  }

  // Returns a plan with all data in data files, and its positions.
  SavePlan plan_of(const Model& model, WrittenRanges& written) const {
    SavePlan plan;
    plan.models.push_back({transaction.options().models.front()});
    plan.data_dir = transaction.options().data_dir;
    plan.data_name = options.data_name;
    plan.layout = options.layout;
    for (std::size_t i = 0; i < model.external_tensors().size(); ++i) {
      const ExternalTensor& external = model.external_tensors()[i];
      PlannedTensor& tensor = plan.tensors.emplace_back();
      tensor.name = external.name;
      tensor.source = TensorSource::kModelExternal;
      tensor.source_index = i;
      tensor.data_type = external.data_type;
      tensor.dims = external.dims;
      tensor.nbytes = external.length;
    }
    add_ranges(plan, written);
    return plan;
  }

  void add_ranges(SavePlan& plan, WrittenRanges& written) const {
    std::map<std::pair<std::size_t, std::uint64_t>, std::vector<std::size_t>> by_place;
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
      const StreamedRange& place = *added.find(plan.tensors[i].name)->second.place;
      by_place[{place.file, place.offset}].push_back(i);
    }
    std::optional<std::size_t> last;
    for (const auto& [place, tensors] : by_place) {
      if (last != place.first) {
        plan.files.push_back({files.name(place.first), files.bytes(place.first)});
        plan.bytes += plan.files.back().bytes;
        last = place.first;
      }
      const auto file = static_cast<std::uint32_t>(plan.files.size() - 1);
      for (const std::size_t tensor : tensors) {
        plan.tensors[tensor].range = static_cast<std::uint32_t>(plan.ranges.size());
      }
      const PlannedTensor& first = plan.tensors[tensors.front()];
      plan.ranges.push_back({first.nbytes, tensors.front(), file, place.second});
      written.emplace_back(added.find(first.name)->second.crc32);
    }
  }

  // Reads the written data back, like a save that resumes a killed one.
  Status verify(const SavePlan& plan, const WrittenRanges& written) {
    TRY_ASSIGN(const auto sound, sound_ranges(plan, transaction.data(), written, write, meter));
    for (std::size_t range = 0; range < sound.size(); ++range) {
      if (!sound[range]) {
        const std::string& name = plan.tensors[plan.ranges[range].source_tensor].name;
        return fail(ErrorCode::kMismatch, "tensor " + quote(name) +
                                              ": the bytes on the disk differ from the bytes that "
                                              "were written; nothing was published");
      }
    }
    return {};
  }

  Status finish(const Model& model) {
    TRY(meter.finish());
    TRY(files.finish(thread_count(options.threads), meter));
    WrittenRanges written;
    SavePlan plan = plan_of(model, written);
    if (options.verification == Verification::kOn) {
      TRY(verify(plan, written));
    }
    return publish(std::move(plan), model, written);
  }

  Status publish(SavePlan plan, const Model& model, const WrittenRanges& written) {
    TRY(files.name_shards(plan.files));
    TRY(transaction.set_files(plan.files));
    std::vector<std::uint32_t> crcs;
    for (const auto& crc : written) {
      crcs.push_back(*crc);
    }
    const Checkpoint no_keys = CheckpointAccess::make_empty();
    ModelBuilder builder(plan, model, no_keys);
    TRY_ASSIGN(const auto segments, builder.build(MatchedInputs::kKeep, {}));
    TRY_ASSIGN(const auto identity,
               write_model_file({transaction.staging(), plan.models.front().name, segments,
                                 ModelAccess::cuts(model), crcs, write}));
    const std::string manifest = builder.manifest_for({&identity, 1}, crcs, {});
    TRY(write_manifests(transaction, {&manifest, 1}));
    TRY(onnx_external::publish(transaction, {&identity, 1}));
    return {};
  }
};

Writer::Writer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Writer::Writer(Writer&&) noexcept = default;
Writer& Writer::operator=(Writer&&) noexcept = default;
Writer::~Writer() = default;

Result<Writer> Writer::create(const std::filesystem::path& model, const WriterOptions& options) {
  const std::string name = model.filename().string();
  if (model.extension() != ".onnx") {
    return fail(ErrorCode::kInvalidArgument,
                model.string() + ": the name of a model must end with .onnx");
  }
  const std::filesystem::path out_dir = model.has_parent_path() ? model.parent_path() : ".";
  TRY(check_layout(layout_options(options)));
  TRY_ASSIGN(auto folder, open_output_folder(out_dir, options.sync));
  TRY_ASSIGN(auto data_dir, choose_data_dir(out_dir, name, options.data_dir, options.overwrite,
                                            options.layout, options.data_name));
  onnx::ModelProto empty;
  empty.mutable_graph();
  TRY_ASSIGN(auto no_tensors, Model::from_proto(std::move(empty), {}));
  TransactionOptions begun{
      {name}, std::move(data_dir), options.sync, options.overwrite, options.layout};
  begun.data_name = options.data_name;
  TRY(check_data_file_names(name, begun.data_dir, begun.data_name));
  TRY_ASSIGN(auto transaction, Transaction::begin(std::move(folder), std::move(begun)));
  return Writer(std::make_unique<State>(std::move(transaction), options, std::move(no_tensors)));
}

Result<onnx::TensorProto> Writer::add(std::string_view name, DType dtype,
                                      std::span<const std::int64_t> shape,
                                      std::span<const std::byte> bytes) {
  const auto expected = contiguous_nbytes(dtype, shape);
  if (expected && *expected != bytes.size()) {  // otherwise, the next function returns the error
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("tensor {}: {} of shape {} takes {} bytes, not {}", quote(name),
                            torch_name(dtype), shape_text(shape), *expected, bytes.size()));
  }
  return add({.info = {std::string(name), dtype, {shape.begin(), shape.end()}},
              .storage = MemoryBytes{bytes.data(), bytes.size(), nullptr}});
}

Result<onnx::TensorProto> Writer::add(ProvidedTensor tensor) {
  TRY(check_is_open());
  TRY_ASSIGN(auto planned, AddedTensor::of(std::move(tensor)));
  return state_->add(std::move(planned));
}

Status Writer::check_is_open() const {
  return state_ ? Status()
                : fail(ErrorCode::kInvalidArgument,
                       "the writer has finished; open a new writer for another model");
}

Status Writer::finish(onnx::ModelProto model) {
  TRY(check_is_open());
  if (model.has_graph()) {  // otherwise it is rejected below
    TRY(put_initializers(state_->initializers(), model));
  }
  TRY_ASSIGN(const auto checked,
             Model::from_proto(std::move(model), state_->transaction.staging().path()));
  return finish(checked);
}

Status Writer::finish(const Model& model) {
  TRY(check_is_open());
  TRY(state_->check_model(model));
  const auto state = std::move(state_);  // unlocks the folder whatever comes
  if (Status done = state->finish(model); !done) {
    return fail(cancelled_in(state->transaction.staging().path().parent_path(),
                             state->meter.phase(), std::move(done).error()));
  }
  return {};
}

}  // namespace onnx_external
