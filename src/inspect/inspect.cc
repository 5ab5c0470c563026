#include "inspect/inspect.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <set>
#include <string_view>

#include "base/checked_math.h"
#include "base/digest.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/holes.h"
#include "base/io_buffer.h"
#include "base/parallel.h"
#include "base/progress_meter.h"
#include "base/read_step.h"
#include "base/safe_path.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/quantized/quantized_matrix.h"
#include "checkpoint/storage/bytes_ids.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "checkpoint/storage/expansion_limit.h"
#include "checkpoint/storage/file_contents.h"
#include "inspect/quantized_list.h"
#include "onnx/duplicate_names.h"
#include "onnx/graph_facts.h"
#include "onnx/graph_list.h"
#include "onnx/inline_data.h"
#include "onnx_external/dtype.h"
#include "onnx_external/verify.h"
#include "tensor/strided_gather.h"
#include "verify/findings.h"
#include "verify/model_file.h"

namespace onnx_external {
namespace {

constexpr std::string_view kStrings = "string";  // no fixed size, no raw bytes
constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMaxBlanks = 4096;

std::string type_text(std::int32_t data_type) {
  const auto dtype = dtype_from_onnx(data_type);
  return dtype ? std::string(torch_name(*dtype)) : ascii_lower(onnx_type_name(data_type));
}

// read(first, out) gives the bytes [first, first + out.size()).
Status add_to(Sha& sha, std::uint64_t nbytes, ProgressMeter& meter, const ReadSource& read) {
  IoBuffer buffer;
  return for_each_step(nbytes, buffer,
                       [&](std::uint64_t first, std::span<std::byte> bytes) -> Status {
                         TRY(read(first, bytes));
                         sha.update(bytes);
                         return meter.step(bytes.size());
                       });
}

bool gets_digest(const Inspection& inspection, std::size_t index, const InspectOptions& options) {
  const InspectedTensor& tensor = inspection.tensors[index];
  return options.digests != Digests::kNone && tensor.problem.empty() && tensor.dtype != kStrings &&
         (!options.digest_if || options.digest_if(index, tensor));
}

// The total size of the files that the tensors are read from.
struct StoredBytes {
  std::string where;
  std::uint64_t bytes = 0;  // without holes

  void add(const SourceFile& file) { bytes = add_bytes(bytes, stored_bytes(file)); }
};

// Fills in the digests that are asked for; digest(index, meter) computes one.
template <typename Digest>
Status add_digests(Inspection& inspection, const InspectOptions& options, const StoredBytes& stored,
                   const Digest& digest) {
  if (options.digests == Digests::kNone) {
    return {};
  }
  ProgressMeter meter(options.progress);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < inspection.tensors.size(); ++i) {
    const InspectedTensor& tensor = inspection.tensors[i];
    const bool from_codes = tensor.view && !tensor.view->quantized.empty();
    const std::uint64_t most = from_codes ? tensor.nbytes / kFloatsPerCodes : tensor.nbytes;
    bytes = add_bytes(bytes, gets_digest(inspection, i, options) ? most : 0);
  }
  // Tensors may share their bytes, and files may have holes, so a small file could cause any amount
  // of reading.
  TRY(check_expanded(stored.where + ": the tensors to read", bytes, stored.bytes,
                     options.open.max_expand));
  meter.begin(Phase::kVerify, bytes);
  const int threads = thread_count(options.threads);
  TRY(parallel_for(inspection.tensors.size(), threads, [&](std::size_t i, int) -> Status {
    InspectedTensor& tensor = inspection.tensors[i];
    if (!gets_digest(inspection, i, options)) {
      return {};
    }
    TRY_ASSIGN_IN(quote(tensor.name), tensor.sha256, digest(i, meter));
    return {};
  }));
  return meter.finish();
}

std::string relative_name(const std::filesystem::path& file,
                          const std::filesystem::path& argument) {
  std::error_code ignored;
  const auto base =
      std::filesystem::is_directory(argument, ignored) ? argument : argument.parent_path();
  const auto relative = file.lexically_relative(base.empty() ? "." : base);
  return relative.empty() || *relative.begin() == ".." ? file.string() : relative.string();
}

InspectedView view_of(const Checkpoint& checkpoint, std::size_t index,
                      const std::filesystem::path& argument) {
  const TensorView& tensor = checkpoint.tensors()[index];
  const Storage& storage = checkpoint.storages()[tensor.storage];
  InspectedView view;
  if (!storage.computed) {
    view.file = relative_name(checkpoint.files()[storage.file].path, argument);
    view.deflated = storage.compression != Compression::kNone;
    view.offset = storage.offset + (view.deflated ? 0 : tensor.storage_offset);
    view.big_endian = storage.byte_order == ByteOrder::kBig;
  }
  if (!is_contiguous(tensor.shape, tensor.strides)) {
    view.strides = tensor.strides;
  }
  for (std::size_t i = 0; i < view.strides.size(); ++i) {
    view.expanded = view.expanded || (view.strides[i] == 0 && tensor.shape[i] > 1);
  }
  view.conj = tensor.conj;
  view.neg = tensor.neg;
  if (const auto matrix = CheckpointAccess::quantized(checkpoint, tensor.storage)) {
    view.quantized = describe_matrix(*matrix);
  }
  return view;
}

void add_file_facts(const Checkpoint& checkpoint, Inspection& inspection) {
  inspection.version = checkpoint.facts().version;
  inspection.pickle_protocol = checkpoint.facts().pickle_protocol;
  inspection.files = checkpoint.files().size();
  for (const CheckpointFile& file : checkpoint.files()) {
    inspection.file_bytes = add_bytes(inspection.file_bytes, file.bytes);
  }
  for (const Storage& storage : checkpoint.storages()) {
    const std::string order = storage.byte_order == ByteOrder::kBig ? "big" : "little";
    if (!storage.computed && order != inspection.byte_order) {
      inspection.byte_order = inspection.byte_order.empty() ? order : "mixed";
    }
  }
}

void list_ties(const Checkpoint& checkpoint, Inspection& inspection) {
  BytesIds ids(checkpoint.storages());
  std::vector<const std::string*> first_name;  // by number
  for (const TensorView& view : checkpoint.tensors()) {
    const auto id = ids.id_of(view);
    if (id == first_name.size()) {
      first_name.push_back(&view.name);
    } else if (id) {
      inspection.tied.emplace_back(view.name, *first_name[*id]);
    }
  }
}

// A digest of damaged bytes would look like any other. Inflated records are checked as they are
// read.
Status check_storages(const Checkpoint& checkpoint, const Inspection& inspection,
                      const InspectOptions& options) {
  std::set<std::uint32_t> used;
  for (std::size_t i = 0; i < inspection.tensors.size(); ++i) {
    if (gets_digest(inspection, i, options)) {
      used.insert(checkpoint.tensors()[i].storage);
    }
  }
  const std::vector<std::uint32_t> storages(used.begin(), used.end());
  return parallel_for(storages.size(), thread_count(options.threads), [&](std::size_t i, int) {
    const Storage& storage = checkpoint.storages()[storages[i]];
    return storage.compression == Compression::kNone ? checkpoint.check_storage(storages[i])
                                                     : Status();
  });
}

// Returns why the checkpoint cannot be opened for saving; nullopt if it can.
std::optional<Error> refusal_of(std::span<const std::filesystem::path> paths, OpenOptions open) {
  open.selection = Selection::kStateDict;
  auto checkpoint = open_checkpoint(paths, open);
  return checkpoint ? std::nullopt : std::optional(std::move(checkpoint).error());
}

Result<Inspection> inspect_checkpoint(std::span<const std::filesystem::path> paths,
                                      const InspectOptions& options) {
  OpenOptions open = options.open;
  open.threads = options.threads;
  open.selection = open.key.empty() ? options.selection : Selection::kStateDict;
  // Before the other one is open: two at once would take twice the memory.
  std::optional<Error> refusal =
      open.selection == Selection::kEverything ? refusal_of(paths, open) : std::nullopt;
  TRY_ASSIGN(auto checkpoint, open_checkpoint(paths, open));
  Inspection inspection;
  inspection.format = checkpoint.format();
  inspection.refusal = std::move(refusal);
  inspection.notes = checkpoint.notes();
  inspection.metadata = CheckpointAccess::contents(checkpoint).all.metadata;
  inspection.opaque_objects = checkpoint.opaque_objects();
  inspection.refused_tensors = checkpoint.refused_tensors();
  inspection.tied_names = checkpoint.tied_names();
  add_file_facts(checkpoint, inspection);
  for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
    const TensorView& view = checkpoint.tensors()[i];
    InspectedTensor& tensor = inspection.tensors.emplace_back();
    tensor.name = view.name;
    tensor.dtype = torch_name(view.dtype);
    tensor.shape = view.shape;
    tensor.nbytes = checkpoint.nbytes(i);
    inspection.bytes = add_bytes(inspection.bytes, tensor.nbytes);
    const auto& argument = paths[checkpoint.argument_of(i)];
    if (const auto range = checkpoint.plain_range(i)) {
      tensor.file = relative_name(checkpoint.files()[range->file].path, argument);
      tensor.offset = range->offset;
    } else {
      tensor.view = view_of(checkpoint, i, argument);
    }
  }
  list_ties(checkpoint, inspection);
  StoredBytes stored{paths.front().string()};
  for (const auto& file : CheckpointAccess::files(checkpoint)) {
    stored.add(*file);
  }
  const auto digest = [&](std::size_t i, ProgressMeter& meter) -> Result<std::string> {
    Sha sha(Sha::Kind::kSha256);
    TRY(add_to(sha, inspection.tensors[i].nbytes, meter,
               [&](std::uint64_t first, std::span<std::byte> out) {
                 return checkpoint.read(i, first, out);
               }));
    return sha.hex();
  };
  TRY(add_digests(inspection, options, stored, digest));
  TRY(check_storages(checkpoint, inspection, options));
  return inspection;
}

// Slots without data, except those that are certainly inputs of the caller because they have a
// symbolic dimension.
bool is_open(const Slot& slot) {
  const bool symbolic = slot.shape && std::find(slot.shape->begin(), slot.shape->end(),
                                                std::nullopt) != slot.shape->end();
  return !slot.has_data && slot.kind != SlotKind::kIdentityOutput &&
         !(slot.kind == SlotKind::kGraphInput && symbolic);
}

InspectedTensor inspect_initializer(const ListedTensor& listed, const CutTensors& cuts) {
  InspectedTensor tensor;
  tensor.name = listed.name;
  tensor.dtype = type_text(listed.proto->data_type());
  tensor.shape = {listed.proto->dims().begin(), listed.proto->dims().end()};
  if (const auto nbytes = onnx_nbytes(listed.proto->data_type(), tensor.shape)) {
    tensor.nbytes = *nbytes;
  } else if (tensor.dtype != kStrings) {
    tensor.problem = nbytes.error().message;
  }
  if (is_external(*listed.proto)) {
    std::vector<Finding> findings;
    if (const auto entry = read_entry(listed, findings)) {
      tensor.file = entry->location;
      tensor.offset = entry->offset;
    }
    if (!findings.empty()) {
      tensor.problem = findings.front().message;
    }
  } else if (has_inline_data(*listed.proto) && tensor.problem.empty() && tensor.dtype != kStrings) {
    if (const auto reader = InlineReader::open(*listed.proto, cuts); !reader) {
      tensor.problem = reader.error().message;
    }
  }
  return tensor;
}

Status add_initializer(const ModelFile& model, const ListedTensor& listed,
                       const InspectedTensor& tensor, ProgressMeter& meter, Sha& sha) {
  if (!tensor.file) {
    TRY_ASSIGN(auto reader, InlineReader::open(*listed.proto, *model.cuts));
    return add_to(sha, reader.nbytes(), meter,
                  [&](std::uint64_t, std::span<std::byte> out) { return reader.read(out); });
  }
  TRY_ASSIGN(const auto folder, Directory::open(model.folder));
  TRY_ASSIGN(auto file, open_data_file(folder, *tensor.file));
  return add_to(sha, tensor.nbytes, meter, [&](std::uint64_t first, std::span<std::byte> out) {
    return file->read(tensor.offset + first, out);
  });
}

// "ir 8, opset 17, com.microsoft 1".
std::string version_text(const onnx::ModelProto& model) {
  std::string text = "ir " + std::to_string(model.ir_version());
  for (const auto& opset : model.opset_import()) {
    text += ", " + (opset.domain().empty() ? "opset" : opset.domain()) + " " +
            std::to_string(opset.version());
  }
  return text;
}

StoredBytes add_model_facts(const ModelFile& model, Inspection& inspection) {
  inspection.version = version_text(*model.proto);
  inspection.producer = model.proto->producer_name();
  if (!inspection.producer.empty() && !model.proto->producer_version().empty()) {
    inspection.producer += " " + model.proto->producer_version();
  }
  inspection.byte_order = "little";
  std::set<std::string_view> files;
  for (const InspectedTensor& tensor : inspection.tensors) {
    if (tensor.file) {
      files.insert(*tensor.file);
    }
  }
  inspection.files = 1 + files.size();
  inspection.file_bytes = model.bytes;
  StoredBytes stored{model.file->name()};
  stored.add(*model.file);
  const auto folder = Directory::open(model.folder);
  for (const std::string_view name : files) {
    if (const auto file = folder ? open_data_file(*folder, name) : fail(folder.error())) {
      inspection.file_bytes = add_bytes(inspection.file_bytes, (*file)->size());
      stored.add(**file);
    }
  }
  return stored;
}

// A model with bad entries still has tensors to show, but no slots.
void add_open_slots(const std::filesystem::path& path, Inspection& inspection) {
  if (auto loaded = Model::load(path)) {
    for (const Slot& slot : loaded->facts().slots) {
      if (is_open(slot)) {
        inspection.open_slots.push_back(slot);
      }
    }
  }
}

// A Constant node may have its numbers without a tensor.
template <typename Nodes>
void add_number_lists(const Nodes& nodes, std::vector<InspectedTensor>& found) {
  for (const onnx::NodeProto& node : nodes) {
    for (const auto& attribute : node.attribute()) {
      const int count = attribute.floats_size() + attribute.ints_size();
      const bool is_value = node.op_type() == "Constant" && node.output_size() == 1;
      const bool is_float = attribute.floats_size() > 0;
      InspectedTensor tensor;
      tensor.name = is_value ? node.output(0) : "";
      tensor.dtype = is_float ? "float32" : "int64";
      tensor.shape = {count};
      tensor.nbytes = static_cast<std::uint64_t>(count) * (is_float ? 4 : 8);
      if (is_value && tensor.nbytes >= kMinNodeBytes) {
        found.push_back(std::move(tensor));
      }
    }
  }
}

std::vector<InspectedTensor> list_node_tensors(const ModelFile& model,
                                               const std::vector<ListedTensor>& listed) {
  std::vector<InspectedTensor> found;
  for (const ListedTensor& each : listed) {
    if (each.place != TensorPlace::kAttribute) {
      continue;
    }
    InspectedTensor tensor = inspect_initializer(each, *model.cuts);
    tensor.name = each.value.empty() ? each.name : each.value;
    if (tensor.nbytes >= kMinNodeBytes) {
      found.push_back(std::move(tensor));
    }
  }
  if (const auto graphs = list_graphs(model.proto->graph())) {
    for (const GraphNode& graph : *graphs) {
      add_number_lists(graph.graph->node(), found);
    }
  }
  for (const auto& function : model.proto->functions()) {
    add_number_lists(function.node(), found);
  }
  std::stable_sort(
      found.begin(), found.end(),
      [](const InspectedTensor& a, const InspectedTensor& b) { return a.nbytes > b.nbytes; });
  return found;
}

Status note_duplicate(const onnx::ModelProto& model, std::span<const ListedTensor> listed,
                      Inspection& inspection) {
  TRY_ASSIGN(const auto graphs, list_graphs(model.graph()));
  for (const DuplicateName& duplicate : find_duplicate_names(graphs)) {
    for (std::size_t i = 0; i < listed.size(); ++i) {
      if (listed[i].graph == duplicate.graph && listed[i].name == duplicate.name) {
        inspection.tensors[i].problem = duplicate.message;
      }
    }
  }
  return {};
}

Result<Inspection> inspect_model_file(const ModelFile& model, const InspectOptions& options) {
  Inspection inspection;
  inspection.format = kModelFormat;
  TRY_ASSIGN(auto listed, list_tensors(*model.proto));
  inspection.node_tensors = list_node_tensors(model, listed);
  std::erase_if(listed, [](const ListedTensor& tensor) { return !tensor.is_initializer(); });
  inspection.tensors.reserve(listed.size());
  for (const ListedTensor& tensor : listed) {
    inspection.tensors.push_back(inspect_initializer(tensor, *model.cuts));
    inspection.bytes = add_bytes(inspection.bytes, inspection.tensors.back().nbytes);
  }
  TRY(note_duplicate(*model.proto, listed, inspection));
  const StoredBytes stored = add_model_facts(model, inspection);
  const std::vector<InspectedTensor> initializers =
      options.digests == Digests::kNone ? std::vector<InspectedTensor>() : inspection.tensors;
  const auto sources = join_parts(model, listed, inspection);
  const auto digest = [&](std::size_t i, ProgressMeter& meter) -> Result<std::string> {
    Sha sha(Sha::Kind::kSha256);
    for (const std::size_t source : sources[i]) {
      TRY(add_initializer(model, listed[source], initializers[source], meter, sha));
    }
    return sha.hex();
  };
  TRY(add_digests(inspection, options, stored, digest));
  return inspection;
}

Result<Inspection> inspect_model(const std::filesystem::path& path, const InspectOptions& options) {
  for (int reads = 1;; ++reads) {
    TRY_ASSIGN(auto model, read_model_file(path));
    auto inspection = inspect_model_file(model, options);
    model.proto.reset();  // two of it would take twice the memory
    if (inspection) {
      add_open_slots(path, *inspection);
    }
    if (reads == kMaxModelReads || is_current(path, model) ||
        (!inspection && inspection.error().code == ErrorCode::kCancelled)) {
      return inspection;
    }
  }
}

}  // namespace

std::string form_text(const InspectedTensor& tensor) {
  std::string text = tensor.dtype + " " + shape_text(tensor.shape);
  if (const auto& scheme = tensor.scheme) {
    text += ", blocks of " + std::to_string(scheme->block) +
            (scheme->zero_points ? ", zero points" : ", symmetric");
    if (scheme->scales != DType::kFloat32) {
      text += ", " + std::string(torch_name(scheme->scales)) + " scales";
    }
  }
  return text;
}

std::uint64_t add_bytes(std::uint64_t a, std::uint64_t b) {
  return checked_add(a, b).value_or(std::numeric_limits<std::uint64_t>::max());
}

Result<bool> looks_like_model(const std::filesystem::path& path) {
  TRY_ASSIGN(auto file, SourceFile::open(path));
  // safetensors: 8 bytes of header length, then '{', which blanks may precede.
  std::array<char, kLengthBytes + kMaxBlanks> start{};
  const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(start.size(), file->size()));
  TRY(file->read(0, std::as_writable_bytes(std::span(start).first(size))));
  std::uint64_t header = 0;
  std::memcpy(&header, start.data(), sizeof(header));
  const std::string_view text(start.data(), size);
  const std::size_t first = text.find_first_not_of(" \t\n\r", kLengthBytes);
  if (first != std::string_view::npos && text[first] == '{' && header < file->size()) {
    return false;
  }
  if (text.starts_with("(dp") || text.starts_with("(lp")) {  // a dict or list in pickle protocol 0
    return false;
  }
  // Tags of ModelProto's fields 1 to 8 and 14; zip, other pickles, tar and JSON start with none of
  // them.
  static constexpr std::string_view kTags = "\x08\x12\x1a\x22\x28\x32\x3a\x42\x72";
  return size > 0 && kTags.find(start[0]) != std::string_view::npos;
}

Result<Inspection> inspect(std::span<const std::filesystem::path> paths,
                           const InspectOptions& options) {
  std::error_code ignored;
  const bool is_folder = paths.size() == 1 && std::filesystem::is_directory(paths.front(), ignored);
  if (paths.size() == 1 && !is_folder) {
    TRY_ASSIGN(auto is_model, looks_like_model(paths.front()));
    if (is_model) {
      return inspect_model(paths.front(), options);
    }
  }
  auto inspection = inspect_checkpoint(paths, options);
  if (inspection || !is_folder || inspection.error().code != ErrorCode::kNotFound) {
    return inspection;
  }
  const auto model = find_model(paths.front());  // a folder without a checkpoint may have one
  if (model) {
    return inspect_model(*model, options);
  }
  return model.error().code == ErrorCode::kAmbiguous ? fail(model.error()) : inspection;
}

}  // namespace onnx_external
