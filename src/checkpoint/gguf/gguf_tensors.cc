#include "checkpoint/gguf/gguf_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bad_input.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/gguf/block_matrix.h"
#include "checkpoint/gguf/block_order.h"
#include "checkpoint/gguf/block_types.h"
#include "checkpoint/gguf/gguf_rows.h"
#include "checkpoint/gguf/gguf_text.h"
#include "checkpoint/gguf/gguf_weight.h"
#include "checkpoint/quantized/matrix_rows.h"
#include "checkpoint/storage/computed_storages.h"

namespace onnx_external {
namespace {

// Not a key of the file; gguf-py uses the same prefix for what it adds to the keys.
constexpr std::string_view kTensorTypes = "GGUF.tensor_types";

// The number of blocks of a tensor from which their byte order is detected.
constexpr std::uint64_t kBlocksOfOrder = 64;

class Lister {
 public:
  explicit Lister(const GgufModel& model) : model_(model) {
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

  // Lists weights as transformers has them.
  Status list(std::span<const GgufWeight> weights) {
    TRY(find_block_order());
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
    TRY(find_block_order());
    for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
      const GgufTensor& tensor = model_.tensors[i];
      TRY_IN(quote(tensor.name), add(whole_gguf_tensor(tensor.name, tensor.shape, i)));
    }
    return {};
  }

  FileContents finish() && {
    part_.format = part_.files.size() > 1 ? "sharded gguf" : "gguf";
    part_.facts.version = std::to_string(model_.parts[0].version);
    part_.metadata = gguf_texts(model_.metadata());
    if (!model_.tensors.empty()) {
      part_.metadata.emplace_back(kTensorTypes, types_text());
    }
    return std::move(part_);
  }

 private:
  // Known, as the table of tensors was checked.
  [[nodiscard]] const BlockType& type_of(std::size_t i) const {
    return *find_block_type(model_.tensors[i].type);
  }

  [[nodiscard]] bool is_big_endian(std::size_t i) const {
    return model_.part_with(i).order == ByteOrder::kBig;
  }

  // Reads the first blocks of each quantized tensor of big-endian files.
  Status find_block_order() {
    BlockOrder order;
    std::vector<std::byte> blocks;
    for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
      const BlockType& type = type_of(i);
      if (type.is_quantized() && is_big_endian(i)) {
        const std::uint64_t count = std::min(kBlocksOfOrder, model_.tensors[i].bytes / type.bytes);
        blocks.resize(static_cast<std::size_t>(count * type.bytes));
        TRY(model_.part_with(i).file->read(model_.tensors[i].offset, blocks));
        order.add(type, blocks);
      }
    }
    swaps_blocks_ = order.is_big();
    return {};
  }

  // "F32 9, Q4_K 24": the types of the stored tensors, and how many have them.
  [[nodiscard]] std::string types_text() const {
    std::map<std::string_view, std::size_t> counts;
    for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
      ++counts[type_of(i).name];
    }
    std::string text;
    for (const auto& [name, count] : counts) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, count);
    }
    return text;
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
    const BlockType& type = type_of(weight.from[0]);
    for (const std::size_t i : weight.from) {
      if (type_of(i).id != type.id) {
        return unsupported(
            fmt::format("its two halves have the types {} and {}", type.name, type_of(i).name));
      }
    }
    return type.is_quantized() ? add_blocks(weight) : add_numbers(weight, *type.plain);
  }

  Status add_numbers(const GgufWeight& weight, DType dtype) {
    GgufRows rows{dtype,       {},           weight.columns,  weight.first_row,
                  weight.rows, weight.heads, weight.minus_one};
    for (const std::size_t i : weight.from) {
      rows.from.push_back(
          {model_.part_with(i).file, model_.tensors[i].offset, model_.part_with(i).order});
    }
    if (std::any_of(weight.factors.begin(), weight.factors.end(),
                    [](const auto& factor) { return factor.has_value(); })) {
      return unsupported("has a scale, but is not quantized");
    }
    if (rows.is_plain()) {
      TensorView view =
          view_of(weight.name, dtype, weight.shape, weight.from[0], weight.transposed);
      view.storage_offset = weight.first_row * rows.row_bytes();
      part_.tensors.push_back(std::move(view));
      return {};
    }
    const DType made = rows.made_type();
    TRY_ASSIGN(const auto bytes, contiguous_nbytes(made, weight.shape));
    const std::uint32_t storage = add_computed(part_, bytes, gguf_numbers(std::move(rows)),
                                               {weight.from.begin(), weight.from.end()});
    part_.tensors.push_back(view_of(weight.name, made, weight.shape, storage, weight.transposed));
    return {};
  }

  // Lists the floats of blocks, and what they are made of.
  Status add_blocks(const GgufWeight& weight) {
    if (weight.minus_one) {
      return unsupported("a norm of the type " + std::string(type_of(weight.from[0]).name));
    }
    BlockRows source;
    source.first_row = weight.first_row;
    source.head_rows = weight.heads == 0 ? 0 : weight.rows / weight.heads;
    for (const std::size_t i : weight.from) {
      source.tensors.push_back(blocks_of(i));
    }
    const std::uint64_t rows = weight.rows * weight.from.size();
    const std::uint64_t matrices =
        weight.shape.size() > 2 ? static_cast<std::uint64_t>(weight.shape[0]) : 1;
    TRY_ASSIGN(source.factors, factors_of(weight));
    TRY_ASSIGN(auto made, block_matrix(weight.name, matrices, rows / matrices, std::move(source)));
    const auto matrix = std::make_shared<const QuantizedMatrix>(std::move(made));
    const std::uint32_t storage =
        add_computed(part_, rows * weight.columns * sizeof(float), matrix_floats(matrix),
                     {weight.from.begin(), weight.from.end()});
    part_.quantized.emplace(storage, matrix);
    part_.tensors.push_back(
        view_of(weight.name, DType::kFloat32, weight.shape, storage, weight.transposed));
    return {};
  }

  // The bytes of a stored tensor from `skipped` on.
  [[nodiscard]] StoredTensor stored_of(std::size_t i, DType dtype, std::int64_t count,
                                       std::uint64_t skipped) const {
    StoredTensor stored;
    stored.view = view_of(model_.tensors[i].name, dtype, {count}, i, false);
    stored.view.storage_offset = skipped;
    stored.read = [file = model_.part_with(i).file, offset = model_.tensors[i].offset + skipped](
                      std::uint64_t at, std::span<std::byte> out) {
      return file->read(offset + at, out);
    };
    return stored;
  }

  [[nodiscard]] BlockTensor blocks_of(std::size_t i) const {
    const GgufTensor& tensor = model_.tensors[i];
    const auto columns = static_cast<std::uint64_t>(tensor.shape.back());
    BlockTensor blocks{stored_of(i, DType::kUInt8, static_cast<std::int64_t>(tensor.bytes), 0),
                       &type_of(i), *element_count(tensor.shape) / columns, columns};
    if (is_big_endian(i) && swaps_blocks_) {  // whole blocks are read
      blocks.stored.read = [type = blocks.type, read = std::move(blocks.stored.read)](
                               std::uint64_t at, std::span<std::byte> out) -> Status {
        TRY(read(at, out));
        swap_numbers(*type, out);
        return {};
      };
    }
    return blocks;
  }

  // Returns `count` float32 numbers of a stored tensor, after the first `skipped` numbers.
  [[nodiscard]] StoredTensor numbers_of(std::size_t i, std::uint64_t count,
                                        std::uint64_t skipped) const {
    StoredTensor stored =
        stored_of(i, DType::kFloat32, static_cast<std::int64_t>(count), skipped * sizeof(float));
    stored.read = gguf_numbers(
        {.dtype = DType::kFloat32,
         .from = {{model_.part_with(i).file, model_.tensors[i].offset, model_.part_with(i).order}},
         .columns = 1,
         .first_row = skipped,
         .rows = count});
    return stored;
  }

  // The factors of a weight, which may be one of several in its tensor, such as an expert.
  Result<std::optional<StoredTensor>> factors_of(const GgufWeight& weight) const {
    if (std::none_of(weight.factors.begin(), weight.factors.end(),
                     [](const auto& factor) { return factor.has_value(); })) {
      return std::nullopt;
    }
    if (weight.from.size() > 1) {
      return unsupported("scales of tensors whose rows alternate");
    }
    const std::size_t i = *weight.factors[0];
    const std::uint64_t count = *element_count(model_.tensors[i].shape);
    const std::uint64_t stored_rows =
        *element_count(model_.tensors[weight.from[0]].shape) / weight.columns;
    if (type_of(i).plain != DType::kFloat32 || stored_rows % count != 0) {
      return fail(ErrorCode::kMismatch,
                  quote(model_.tensors[i].name) +
                      " does not contain one float32 value for each of its parts");
    }
    const std::uint64_t each = stored_rows / count;  // rows of a factor
    const bool is_part = count > 1 && weight.rows == each;
    return is_part ? numbers_of(i, 1, weight.first_row / each) : numbers_of(i, count, 0);
  }

  const GgufModel& model_;
  bool swaps_blocks_ = false;  // of big-endian files
  FileContents part_;
};

}  // namespace

Result<FileContents> list_stored_gguf(const GgufModel& model) {
  Lister lister(model);
  TRY(lister.list_stored());
  return std::move(lister).finish();
}

Result<FileContents> list_gguf_weights(const GgufModel& model,
                                       std::span<const GgufWeight> weights) {
  Lister lister(model);
  TRY(lister.list(weights));
  return std::move(lister).finish();
}

}  // namespace onnx_external
