#include "verify/matrix_check.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "base/digest.h"
#include "base/file.h"
#include "base/read_back.h"
#include "base/try.h"
#include "save/packed_json.h"
#include "save/planned_bytes.h"

namespace onnx_external {
namespace {

// Parts of one matrix have this in common.
using MatrixRecipe =
    std::tuple<std::size_t, std::string, bool, std::string, std::uint64_t, std::uint64_t>;

MatrixRecipe recipe_of(const WantedTensor& tensor) {
  const PackedTensor& packed = *tensor.packed;
  return {tensor.source_index,
          recipe_text(tensor.recipe),
          tensor.cast_to.has_value(),
          scheme_text(packed.scheme),
          packed.rows,
          packed.columns};
}

// The state of the comparison of one part.
struct OpenPart {
  std::shared_ptr<const SourceFile> file;  // null once it cannot be read
  Crc32 crc;
};

Status compare_part(const RangeCheck& check, std::uint64_t at, std::span<const std::byte> wanted,
                    ByteComparer& comparer, OpenPart& part, RangeAnswer& answer) {
  if (part.file == nullptr) {
    return {};
  }
  const ComparedBytes bytes{
      bytes_in_file(*part.file, check.offset),
      answer.difference ? GiveBytes() : bytes_in_memory(at, wanted),  // the first one is enough
      [&](std::span<const std::byte> found) {
        part.crc.update(found);
        return Status();
      }};
  TRY_ASSIGN(const auto compared,
             comparer.compare(at, wanted.size(), bytes, AtDifference::kReadOn, kReadBackStep));
  if (compared.unreadable) {
    answer.fault = fault_of(*compared.unreadable);
    part.file.reset();
  }
  if (!answer.difference) {
    answer.difference = compared.difference;
  }
  return {};
}

}  // namespace

std::vector<MatrixCheck> find_matrix_checks(
    std::span<const RangeCheck> checks, const Checkpoint& checkpoint,
    const std::function<bool(const RangeCheck&)>& is_in_file) {
  std::map<std::pair<MatrixRecipe, std::size_t>, MatrixCheck> found;  // the n-th check of each part
  std::map<std::pair<MatrixRecipe, MatrixPart>, std::size_t> seen;
  for (std::size_t i = 0; i < checks.size(); ++i) {
    const auto& tensor = checks[i].equals;
    if (tensor && tensor->packed && checks[i].length == packed_bytes(*tensor->packed) &&
        kind_of_source(checkpoint, *tensor) != StorageKind::kMade && is_in_file(checks[i]) &&
        !linked_range(checkpoint, *tensor)) {
      const MatrixRecipe recipe = recipe_of(*tensor);
      const std::size_t number = seen[{recipe, tensor->packed->part}]++;
      found[{recipe, number}].push_back(i);
    }
  }
  std::vector<MatrixCheck> matrices;
  for (auto& [recipe, matrix] : found) {
    if (matrix.size() > 1) {
      matrices.push_back(std::move(matrix));
    }
  }
  return matrices;
}

std::uint64_t matrix_chunk_rows(const Checkpoint& checkpoint, const WantedTensor& tensor,
                                std::uint64_t bytes, std::uint64_t most_chunks) {
  const DerivedView view = planned_view(checkpoint, tensor);
  const RowPacker packer(checkpoint, *view, tensor.cast_to, *tensor.packed);
  const std::uint64_t rows = std::max<std::uint64_t>(1, packer.chunk_rows(bytes));
  return rows * (1 + tensor.packed->rows / rows / most_chunks);
}

std::uint64_t part_row_bytes(const WantedTensor& tensor) {
  return packed_bytes(*tensor.packed) / tensor.packed->rows;
}

Status check_matrix(const Directory& folder, std::span<const RangeCheck* const> checks,
                    std::uint64_t first, std::uint64_t count, const MatrixTools& tools,
                    std::span<RangeAnswer> answers) {
  // The part of the first one decides which parts are made.
  const WantedTensor& tensor =
      *(*std::min_element(checks.begin(), checks.end(),
                          [](const RangeCheck* a, const RangeCheck* b) {
                            return a->equals->packed->part < b->equals->packed->part;
                          }))
           ->equals;
  std::array<OpenPart, kMatrixParts> parts;
  for (std::size_t i = 0; i < checks.size(); ++i) {
    parts[i].file = open_range(folder, *checks[i], tools.checked, answers[i]);
    if (parts[i].file != nullptr && tools.options.drop_cache == DropCache::kYes) {
      const std::uint64_t row_bytes = part_row_bytes(*checks[i]->equals);
      drop_pages(parts[i].file->fd(), checks[i]->offset + first * row_bytes, count * row_bytes);
    }
  }
  TRY_ASSIGN(const auto held, hold_planned(tools.checkpoint, tensor));
  const DerivedView view = planned_view(tools.checkpoint, tensor);
  const RowPacker rows(tools.checkpoint, *view, tensor.cast_to, *tensor.packed);
  const auto compare = [&](std::uint64_t row, const PackedBytes& made) -> Status {
    for (std::size_t i = 0; i < checks.size(); ++i) {
      const MatrixPart part = checks[i]->equals->packed->part;
      const auto bytes = made.parts[static_cast<std::size_t>(part)];
      TRY(compare_part(*checks[i], row * rows.row_bytes(part), bytes, tools.comparer, parts[i],
                       answers[i]));
      TRY(tools.meter.step(bytes.size()));
    }
    return {};
  };
  std::optional<BufferPool::Lease> lease;
  IoBuffer none;
  if (rows.needs_tile()) {
    lease.emplace(tools.tiles);
  }
  TRY(rows.make(first, count, lease ? **lease : none, tools.buffers, compare));
  for (std::size_t i = 0; i < checks.size(); ++i) {
    answers[i].crc32 = parts[i].crc.value();
  }
  return {};
}

}  // namespace onnx_external
