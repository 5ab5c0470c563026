#include "checkpoint/gguf/gguf_checkpoint.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "base/bad_input.h"
#include "base/holes.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/formats/shard_index.h"
#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/gguf/gguf_names.h"
#include "checkpoint/gguf/gguf_rows.h"
#include "checkpoint/gguf/gguf_text.h"
#include "checkpoint/storage/computed_storages.h"

namespace onnx_external {
namespace {

constexpr std::string_view kSplitNumber = "split.no";
constexpr std::string_view kSplitCount = "split.count";
constexpr std::string_view kSplitTensors = "split.tensors.count";

// The files of a model, and their tensors.
struct GgufModel {
  std::vector<GgufFile> parts;
  std::vector<GgufTensor> tensors;
  std::vector<std::size_t> part_of;  // by tensor

  [[nodiscard]] const GgufMetadata& metadata() const { return parts.front().metadata; }
};

// --- parts -------------------------------------------------------------------------------------

std::string part_name(std::string_view stem, std::uint64_t number, std::uint64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", stem, number, count);
}

// The number of a key of a part; nothing if it is not there.
Result<std::optional<std::uint64_t>> split_number(const GgufFile& part, std::string_view key) {
  const GgufValue* const value = part.metadata.find(key);
  if (value == nullptr) {
    return std::nullopt;
  }
  const auto number = value->uint();
  return number ? Result<std::optional<std::uint64_t>>(number)
                : corrupt(part.file->name() + ": " + quote(key) + " is not a number");
}

Status check_split(const GgufFile& part, std::uint64_t number, std::uint64_t count) {
  TRY_ASSIGN(const auto own, split_number(part, kSplitNumber));
  TRY_ASSIGN(const auto of, split_number(part, kSplitCount));
  if (own != number || of != count) {
    return corrupt(
        fmt::format("{}: says that it is part {} of {}, and it is named as part {} of {}",
                    part.file->name(), own.value_or(0) + 1, of.value_or(0), number + 1, count));
  }
  return {};
}

Status add_part(GgufFile part, GgufModel& model) {
  for (GgufTensor& tensor : part.tensors) {
    model.part_of.push_back(model.parts.size());
    model.tensors.push_back(std::move(tensor));
  }
  part.tensors.clear();
  if (model.tensors.size() > kMaxGgufTensors) {
    return unsupported(fmt::format("{}: more than {} tensors", part.file->name(), kMaxGgufTensors));
  }
  model.parts.push_back(std::move(part));
  return {};
}

Status add_other_parts(std::uint64_t count, GgufModel& model) {
  const GgufFile first = model.parts.front();
  const std::filesystem::path path = first.file->path();
  const std::string name = path.filename().string();
  static const RE2 kPart("(.*)-(\\d{5})-of-(\\d{5})\\.gguf");
  std::string stem;
  if (!RE2::FullMatch(name, kPart, &stem) || name != part_name(stem, 1, count)) {
    return unsupported(
        fmt::format("{}: is one of {} files of a model, whose first is named "
                    "'NAME-00001-of-{:05}.gguf'; name that one",
                    first.file->name(), count, count));
  }
  TRY(check_split(first, 0, count));
  for (std::uint64_t i = 1; i < count; ++i) {
    TRY_ASSIGN(auto file, open_shard(path.parent_path(), part_name(stem, i + 1, count)));
    TRY(check_is_written(*file));
    TRY_ASSIGN(auto part, read_gguf_file(std::move(file), GgufArrays::kShort));
    TRY(check_split(part, i, count));
    TRY(add_part(std::move(part), model));
  }
  TRY_ASSIGN(const auto tensors, split_number(first, kSplitTensors));
  if (tensors && *tensors != model.tensors.size()) {
    return corrupt(fmt::format("{}: its {} files have {} tensors, and {} says {}",
                               first.file->name(), count, model.tensors.size(),
                               quote(kSplitTensors), *tensors));
  }
  return {};
}

Result<GgufModel> read_parts(std::shared_ptr<const SourceFile> file) {
  GgufModel model;
  TRY_ASSIGN(auto first, read_gguf_file(std::move(file), GgufArrays::kShort));
  TRY_ASSIGN(const auto count, split_number(first, kSplitCount));
  TRY(add_part(std::move(first), model));
  if (count.value_or(1) > kMaxGgufParts) {
    return corrupt(fmt::format("{}: is one of {} files", model.parts[0].file->name(), *count));
  }
  if (count.value_or(0) > 1) {
    TRY(add_other_parts(*count, model));
  }
  return model;
}

// --- tensors -----------------------------------------------------------------------------------

class Lister {
 public:
  explicit Lister(GgufModel model) : model_(std::move(model)) {
    for (const GgufFile& part : model_.parts) {
      part_.files.push_back(part.file);
    }
    for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
      const GgufTensor& tensor = model_.tensors[i];
      part_.storages.push_back({.file = static_cast<std::uint32_t>(model_.part_of[i]),
                                .offset = tensor.offset,
                                .stored_bytes = tensor.bytes,
                                .bytes = tensor.bytes,
                                .byte_order = model_.parts[model_.part_of[i]].order,
                                .crc32 = {}});
    }
  }

  [[nodiscard]] const GgufModel& model() const { return model_; }

  // Lists weights as transformers has them.
  Status list(const std::vector<GgufWeight>& weights) {
    for (const GgufWeight& weight : weights) {
      TRY_IN(quote(weight.name), add(weight));
    }
    for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
      const GgufTensor& tensor = model_.tensors[i];
      if (!type_of(i).plain) {
        const auto bytes = static_cast<std::int64_t>(tensor.bytes);
        part_.stored.push_back(view_of(tensor.name, DType::kUInt8, {bytes}, i, false));
      }
    }
    return {};
  }

  // Lists the tensors of the files.
  Status list_stored() {
    for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
      const GgufTensor& tensor = model_.tensors[i];
      GgufWeight weight;
      weight.name = tensor.name;
      weight.from = {i};
      weight.factors = {std::nullopt};
      weight.shape = tensor.shape;
      weight.columns = static_cast<std::uint64_t>(tensor.shape.back());
      weight.rows = 1;
      for (std::size_t axis = 0; axis + 1 < tensor.shape.size(); ++axis) {
        weight.rows *= static_cast<std::uint64_t>(tensor.shape[axis]);
      }
      TRY_IN(quote(tensor.name), add(weight));
    }
    return {};
  }

  FileContents finish() && {
    part_.format = part_.files.size() > 1 ? "sharded gguf" : "gguf";
    part_.facts.version = std::to_string(model_.parts[0].version);
    part_.metadata = gguf_texts(model_.metadata());
    return std::move(part_);
  }

 private:
  // Known, as the table of tensors was checked.
  [[nodiscard]] const BlockType& type_of(std::size_t i) const {
    return *find_block_type(model_.tensors[i].type);
  }

  static TensorView view_of(std::string name, DType dtype, Shape shape, std::size_t storage,
                            bool transposed) {
    TensorView view;
    view.name = std::move(name);
    view.dtype = dtype;
    view.shape = std::move(shape);
    Shape stored = view.shape;
    const std::size_t rank = stored.size();
    if (transposed) {
      std::swap(stored[rank - 2], stored[rank - 1]);
    }
    view.strides = contiguous_strides(stored);
    if (transposed) {
      std::swap(view.strides[rank - 2], view.strides[rank - 1]);
    }
    view.storage = static_cast<std::uint32_t>(storage);
    return view;
  }

  Status add(const GgufWeight& weight) {
    TRY_ASSIGN(GgufRows rows, rows_of(weight));
    if (rows.is_plain()) {
      TensorView view =
          view_of(weight.name, *rows.type->plain, weight.shape, weight.from[0], weight.transposed);
      view.storage_offset = weight.first_row * rows.row_bytes();
      part_.tensors.push_back(std::move(view));
      return {};
    }
    const DType dtype = rows.is_computed() ? DType::kFloat32 : *rows.type->plain;
    TRY_ASSIGN(const auto bytes, contiguous_nbytes(dtype, weight.shape));
    std::vector<std::uint32_t> from(weight.from.begin(), weight.from.end());
    const BlockType& type = *rows.type;
    const std::uint32_t storage =
        add_computed(part_, bytes, gguf_values(std::move(rows)), std::move(from));
    if (type.is_quantized()) {
      // Codes and scales are kept from here: quantized/quantized_matrix.h.
      part_.blocks.emplace(storage, type.name);
    }
    part_.tensors.push_back(view_of(weight.name, dtype, weight.shape, storage, weight.transposed));
    return {};
  }

  Result<GgufRows> rows_of(const GgufWeight& weight) const {
    GgufRows rows;
    rows.type = &type_of(weight.from[0]);
    rows.columns = weight.columns;
    rows.first_row = weight.first_row;
    rows.rows = weight.rows;
    rows.heads = weight.heads;
    rows.minus_one = weight.minus_one;
    for (std::size_t i = 0; i < weight.from.size(); ++i) {
      const GgufTensor& tensor = model_.tensors[weight.from[i]];
      const GgufFile& part = model_.parts[model_.part_of[weight.from[i]]];
      const BlockType& type = type_of(weight.from[i]);
      if (type.id != rows.type->id) {
        return unsupported(
            fmt::format("its two halves have the types {} and {}", rows.type->name, type.name));
      }
      if (part.order == ByteOrder::kBig && type.is_quantized()) {
        return unsupported(
            fmt::format("{} of the type {} in a big-endian file, whose scales have "
                        "no fixed byte order; convert the model again",
                        quote(tensor.name), type.name));
      }
      GgufPlace place{part.file, tensor.offset, part.order, {}, 1};
      if (weight.factors[i]) {
        TRY(read_factors(tensor, model_.tensors[*weight.factors[i]], *weight.factors[i], place));
      }
      rows.from.push_back(std::move(place));
    }
    return rows;
  }

  Status read_factors(const GgufTensor& tensor, const GgufTensor& factors, std::size_t number,
                      GgufPlace& place) const {
    const auto stored_rows =
        *element_count(tensor.shape) / static_cast<std::uint64_t>(tensor.shape.back());
    const std::uint64_t count = *element_count(factors.shape);
    if (type_of(number).plain != DType::kFloat32 || stored_rows % count != 0) {
      return fail(
          ErrorCode::kMismatch,
          fmt::format("{} is not a float32 number for each of its parts", quote(factors.name)));
    }
    const GgufFile& part = model_.parts[model_.part_of[number]];
    place.factors.resize(static_cast<std::size_t>(count));
    place.factor_rows = stored_rows / count;
    const auto bytes = std::as_writable_bytes(std::span(place.factors));
    TRY(part.file->read(factors.offset, bytes));
    if (part.order == ByteOrder::kBig) {
      for (float& factor : place.factors) {
        factor = std::bit_cast<float>(__builtin_bswap32(std::bit_cast<std::uint32_t>(factor)));
      }
    }
    return {};
  }

  GgufModel model_;
  FileContents part_;
};

}  // namespace

std::string first_gguf_part(std::string_view name) {
  static const RE2 kPart("(.*)-\\d{5}-of-(\\d{5})\\.gguf");
  std::string stem;
  std::string count;
  return RE2::FullMatch(name, kPart, &stem, &count) ? stem + "-00001-of-" + count + ".gguf" : "";
}

Result<FileContents> read_gguf(std::shared_ptr<const SourceFile> file, const OpenOptions& options) {
  const std::string where = file->name();
  if (!options.key.empty() && options.key != ".") {
    return fail(ErrorCode::kNotFound, where + ": GGUF files have no nested dicts; leave the key " +
                                          quote(options.key) + " out");
  }
  TRY(check_is_written(*file));
  TRY_ASSIGN(auto model, read_parts(std::move(file)));
  Lister lister(std::move(model));
  if (!options.stored_parts) {
    auto weights = name_gguf_weights(lister.model().metadata(), lister.model().tensors,
                                     lister.model().parts[0].tokens);
    if (weights) {
      TRY_IN(where, lister.list(*weights));
      return std::move(lister).finish();
    }
    if (options.selection != Selection::kEverything) {
      return fail_in(where, std::move(weights).error());
    }
  }
  TRY_IN(where, lister.list_stored());
  return std::move(lister).finish();
}

}  // namespace onnx_external
