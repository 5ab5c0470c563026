#include "save/kept_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/try.h"
#include "checkpoint/quantized/number_reader.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "checkpoint/storage/computed_storages.h"
#include "checkpoint/storage/file_contents.h"
#include "tensor/quantize/packed_layout.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kScaledAtOnceBytes = std::uint64_t{1} << 20;  // of codes
constexpr std::uint64_t kCodesAtOnce = std::uint64_t{2} << 20;        // that are unpacked, or a row
constexpr std::uint64_t kFloatBytes = 4;  // the checkpoint lists quantized weights as float32

tl::unexpected<Error> not_kept(std::string why) {
  return fail(ErrorCode::kUnsupported, std::move(why));
}

// The matrix in the terms of the rule, but for its order.
Result<StoredCodes> stored_codes(const QuantizedMatrix& matrix) {
  StoredCodes stored;
  stored.bits = matrix.codes.packing.bits;
  stored.columns = static_cast<std::int64_t>(matrix.columns);
  stored.group = static_cast<std::int64_t>(matrix.group);
  stored.zero = matrix.zero;
  const bool has_zeros = matrix.zero_codes || matrix.zeros;
  if (matrix.kind == CodeKind::kFloat8) {
    return not_kept("no CPU operator multiplies by 8-bit floats");
  }
  if (matrix.kind == CodeKind::kTable) {
    return not_kept("its codes are indices into a table of values that are not evenly spaced");
  }
  if (matrix.kind == CodeKind::kFloat4E2M1) {
    stored.values = CodeValues::kE2M1;
    return has_zeros || matrix.minima || matrix.zero != 0
               ? Result<StoredCodes>(not_kept("its codes are floats and have zero points"))
               : stored;
  }
  const double middle = 1U << (stored.bits - 1);
  const double most = (1U << stored.bits) - 1;
  const bool is_code = matrix.zero >= 0 && matrix.zero <= most &&
                       matrix.zero == static_cast<std::uint32_t>(matrix.zero);
  if (matrix.has_minima() || matrix.zeros || (!has_zeros && !is_code)) {
    stored.zeros = CodeZeros::kAny;
  } else if (matrix.zero_codes) {
    const bool fits = matrix.zero_codes->packing.bits <= stored.bits;
    stored.zeros = fits ? CodeZeros::kIntegers : CodeZeros::kAny;
  } else {
    stored.zeros = matrix.zero == middle ? CodeZeros::kMiddle : CodeZeros::kIntegers;
  }
  return stored;
}

// The same as a scheme says that was found so.
void take_zeros(const Scheme& known, StoredCodes& stored) {
  stored.zeros = known.terms         ? CodeZeros::kAny
                 : known.zero_points ? CodeZeros::kIntegers
                                     : CodeZeros::kMiddle;
}

Result<KeptInputs> inputs_of(const MatrixRows& rows) {
  const QuantizedMatrix& matrix = rows.matrix();
  KeptInputs inputs;
  if (!rows.group_of_column().empty()) {
    const std::vector<std::int32_t> groups(rows.group_of_column().begin(),
                                           rows.group_of_column().end());
    TRY_ASSIGN(inputs.order, order_by_group(groups, static_cast<std::int64_t>(matrix.group)));
  }
  if (matrix.column_factors) {
    TRY_ASSIGN(const auto factors, read_first_numbers(*matrix.column_factors, matrix.columns));
    for (const double factor : factors) {
      inputs.factors.push_back(static_cast<float>(factor));
    }
  }
  return inputs;
}

// Returns whether the stored bytes of a row are saved unchanged, except for flipped bits.
bool copies_codes(const QuantizedMatrix& matrix, const KeptForm& form) {
  const CodePacking& packing = matrix.codes.packing;
  return keeps_bytes(form) && packing.is_dense() && packing.axis == CodeAxis::kColumns &&
         matrix.codes.columns == matrix.columns &&
         matrix.codes.line_bytes * 8 == matrix.columns * packing.bits &&
         (packing.flip == 0 || packing.bits == 8);
}

bool are_nibbles(std::span<const std::uint32_t> shifts) {
  return std::all_of(shifts.begin(), shifts.end(),
                     [](std::uint32_t shift) { return shift % 4 == 0 && shift < 32; });
}

// Returns the rows of the stored words if pack_word_rows() produces the bytes.
std::optional<WordRows> rows_of_words(const QuantizedMatrix& matrix, const KeptForm& form) {
  const CodePacking& packing = matrix.codes.packing;
  WordRows rows{};
  const bool are_packed = keeps_bytes(form) && packing.bits == 4 &&
                          packing.axis == CodeAxis::kRows && packing.parts == 0 &&
                          packing.word_bytes == 4 && packing.shifts.size() == rows.size() &&
                          packing.cycle_bits == 32 && packing.flip == 0 &&
                          are_nibbles(packing.shifts) && matrix.codes.columns == matrix.columns &&
                          matrix.codes.line_bytes == matrix.columns * packing.word_bytes &&
                          matrix.all_rows() % rows.size() == 0;
  if (!are_packed) {
    return std::nullopt;
  }
  std::copy(packing.shifts.begin(), packing.shifts.end(), rows.begin());
  return rows;
}

// Returns whether the storage is computed from other storages, some of which are quantized weights.
bool is_joined_of_codes(const Checkpoint& checkpoint, std::uint32_t storage) {
  const auto sources = sources_of(CheckpointAccess::contents(checkpoint).all, storage);
  return std::any_of(sources.begin(), sources.end(), [&](std::uint32_t source) {
    return CheckpointAccess::quantized(checkpoint, source) != nullptr;
  });
}

void flip(std::uint8_t bits, std::span<std::byte> codes) {
  for (std::size_t i = 0; bits != 0 && i < codes.size(); ++i) {
    codes[i] ^= std::byte{bits};
  }
}

std::span<std::byte> rows_of(std::span<std::byte> part, std::uint64_t first, std::uint64_t count,
                             std::uint64_t all) {
  const std::size_t row = part.size() / static_cast<std::size_t>(all);
  return part.subspan(static_cast<std::size_t>(first) * row, static_cast<std::size_t>(count) * row);
}

}  // namespace

Result<std::optional<KeptRows>> KeptRows::of(const Checkpoint& checkpoint, const TensorView& view,
                                             std::uint64_t columns, DType scales,
                                             const Scheme* known) {
  const auto matrix = CheckpointAccess::quantized(checkpoint, view.storage);
  if (!matrix && is_joined_of_codes(checkpoint, view.storage)) {
    return of_joined(checkpoint, view, columns, scales, known);
  }
  if (!matrix) {
    return std::nullopt;
  }
  TRY_ASSIGN(auto stored, stored_codes(*matrix));
  if (columns != matrix->columns) {
    return not_kept("its rows are not whole rows of the checkpoint's matrix");
  }
  TRY_ASSIGN(auto opened, MatrixRows::open(matrix));
  if (known != nullptr) {
    take_zeros(*known, stored);
  } else {
    TRY(judge_zeros(opened, stored));
  }
  TRY_ASSIGN(auto inputs, inputs_of(opened));
  stored.in_order = inputs.order.empty();
  TRY_ASSIGN(const auto form, kept_form(stored, scales));
  KeptRows rows(std::move(opened), form);
  rows.inputs_ = std::make_shared<const KeptInputs>(std::move(inputs));
  TRY(rows.find_rows(view));
  rows.choose_path(checkpoint);
  return std::optional(std::move(rows));
}

void KeptRows::choose_path(const Checkpoint& checkpoint) {
  const QuantizedMatrix& matrix = rows_.matrix();
  if (matrix.blocks) {
    const bool are_blocks = form_.scheme.scales == DType::kFloat32 &&
                            form_.scheme.block == matrix.group && inputs_->empty();
    path_ = are_blocks ? Path::kBlocks : Path::kCodes;
    return;
  }
  const bool is_whole =
      dims_.size() == 1 && first_row_ == 0 && dims_.front().size == matrix.all_rows();
  const TensorView& stored = matrix.codes.stored.view;
  if (copies_codes(matrix, form_)) {
    path_ = Path::kBytes;
    if (const auto tiles = TiledView::of(checkpoint, stored, std::nullopt, TileShape::kWholeRows);
        is_whole && tiles) {
      tiles_.emplace(*tiles);
    }
  } else if (const auto words = rows_of_words(matrix, form_); is_whole && words) {
    if (const auto tiles = TiledView::of_word_rows(checkpoint, stored, *words)) {
      tiles_.emplace(*tiles);
      path_ = Path::kWords;
      line_rows_ = words->size();
    }
  }
}

// The view's last dimension must be a row of the checkpoint's; the others step over whole rows.
Status KeptRows::find_rows(const TensorView& view) {
  const auto columns = static_cast<std::int64_t>(rows_.matrix().columns);
  const auto across = [] {
    return not_kept("its rows are not whole rows of the checkpoint's matrix");
  };
  if (view.shape.empty() || view.shape.back() != columns || view.neg || view.conj ||
      (columns > 1 && view.strides.back() != 1) ||
      view.storage_offset % (rows_.matrix().columns * kFloatBytes) != 0) {
    return across();
  }
  first_row_ = view.storage_offset / (rows_.matrix().columns * kFloatBytes);
  for (std::size_t i = 0; i + 1 < view.shape.size(); ++i) {
    if (view.shape[i] == 1) {
      continue;
    }
    if (view.strides[i] % columns != 0) {
      return across();
    }
    const RowDim dim{static_cast<std::uint64_t>(view.shape[i]),
                     static_cast<std::uint64_t>(view.strides[i] / columns)};
    if (!dims_.empty() && dims_.back().step == dim.step * dim.size) {
      dims_.back() = {dims_.back().size * dim.size, dim.step};
    } else {
      dims_.push_back(dim);
    }
  }
  if (dims_.empty()) {
    dims_.emplace_back();
  }
  return {};
}

KeptRows::Run KeptRows::run_at(std::uint64_t row, std::uint64_t most) const {
  const RowDim& inner = dims_.back();
  Run run{first_row_, inner.step == 1 ? std::min(most, inner.size - row % inner.size) : 1};
  for (auto dim = dims_.rbegin(); dim != dims_.rend(); ++dim) {
    run.row += row % dim->size * dim->step;
    row /= dim->size;
  }
  return run;
}

std::uint64_t KeptRows::chunk_rows(std::uint64_t least) const {
  if (!pieces_.empty()) {
    return chunk_rows_of_pieces(least);
  }
  const std::uint64_t line_bytes = rows_.matrix().codes.line_bytes;
  const std::uint64_t lines = (least + line_rows_ - 1) / line_rows_;
  return tiles_ ? tiles_->chunk_bytes(lines * line_bytes) / line_bytes * line_rows_ : least;
}

PackedRows KeptRows::room(std::uint64_t rows, KeptBuffers& buffers) const {
  const auto layout = packed_layout(form_.scheme, 1, form_.stored.columns);
  return {buffers.codes.first(rows * layout->codes.row_bytes),
          buffers.scales.first(rows * layout->scales.row_bytes),
          buffers.zero_points.first(rows * layout->zero_points.row_bytes)};
}

std::optional<FileRange> KeptRows::stored_codes_range(const Checkpoint& checkpoint) const {
  const PackedCodes& codes = rows_.matrix().codes;
  auto range = path_ == Path::kBytes && codes.packing.flip == 0 && dims_.size() == 1 &&
                       dims_.front().step == 1
                   ? checkpoint.plain_range(codes.stored.view)
                   : std::nullopt;
  if (range) {
    range->offset += first_row_ * codes.line_bytes;
    range->length = dims_.front().size * codes.line_bytes;
  }
  return range;
}

Status KeptRows::make_run(std::uint64_t first, const Run& run, KeptCodes wanted, BlockParts& parts,
                          const PackedRows& out) const {
  if (path_ == Path::kBlocks) {
    return rows_.matrix().blocks->read_kept(run.row, run.rows,
                                            {out.codes, out.scales, out.zero_points});
  }
  const MatrixBlock block{run.row, run.rows, 0, rows_.matrix().columns};
  const bool by_codes = path_ == Path::kCodes && wanted == KeptCodes::kMade;
  const bool has_zeros = form_.scheme.zero_points || form_.scheme.terms;
  TRY(by_codes ? rows_.read(block, parts) : rows_.read_groups(block, parts, has_zeros));
  TRY(keep_rows(
      form_, inputs_->order, first,
      {by_codes ? std::span<const std::uint8_t>(parts.codes) : std::span<const std::uint8_t>(),
       parts.scales, parts.zeros, parts.minima},
      out));
  if (path_ == Path::kBytes && !tiles_ && wanted == KeptCodes::kMade) {
    const PackedCodes& codes = rows_.matrix().codes;
    TRY(codes.stored.read(run.row * codes.line_bytes, out.codes));
    flip(codes.packing.flip, out.codes);
  }
  return {};
}

Status KeptRows::take_lines(std::uint64_t first, std::uint64_t rows, std::span<std::byte> lines,
                            KeptBuffers& buffers, const Take& take) const {
  flip(rows_.matrix().codes.packing.flip, lines);
  TRY(take(first, {lines, {}, {}}));
  const std::uint64_t step = std::max<std::uint64_t>(1, kScaledAtOnceBytes * rows / lines.size());
  for (const std::uint64_t end = first + rows; first < end;) {
    const std::uint64_t some = std::min(step, end - first);
    PackedRows out = room(some, buffers);
    out.codes = {};
    TRY(make_run(first, {first, some}, KeptCodes::kLeftOut, buffers.parts, out));
    TRY(take(first, out));
    first += some;
  }
  return {};
}

// Makes the rows of lines where they are, and collects a line that comes in parts.
Status KeptRows::make_from_tiles(std::uint64_t first, std::uint64_t count, IoBuffer& tile,
                                 KeptBuffers& buffers, const Take& take) const {
  const auto line_bytes = static_cast<std::size_t>(rows_.matrix().codes.line_bytes);
  std::uint64_t row = first;
  std::size_t filled = 0;
  const auto take_run = [&](std::uint64_t, std::span<std::byte> run) -> Status {
    while (!run.empty()) {
      const bool is_whole = filled == 0 && run.size() >= line_bytes;
      std::span<std::byte> lines = is_whole ? run.first(run.size() / line_bytes * line_bytes)
                                            : buffers.lines.first(line_bytes);
      const std::size_t some = is_whole ? lines.size() : std::min(line_bytes - filled, run.size());
      if (!is_whole) {
        std::memcpy(lines.data() + filled, run.data(), some);
        filled = (filled + some) % line_bytes;
      }
      run = run.subspan(some);
      if (filled == 0) {
        const std::uint64_t rows = lines.size() / line_bytes * line_rows_;
        TRY(take_lines(row, rows, lines, buffers, take));
        row += rows;
      }
    }
    return {};
  };
  return tiles_->read(first / line_rows_ * line_bytes, count / line_rows_ * line_bytes, tile,
                      take_run);
}

Status KeptRows::make(std::uint64_t first, std::uint64_t count, KeptCodes codes, IoBuffer& tile,
                      KeptBuffers& buffers, const Take& take) const {
  if (!pieces_.empty()) {
    return make_from_pieces(first, count, codes, tile, buffers, take);
  }
  if (tiles_ && codes == KeptCodes::kMade) {
    return make_from_tiles(first, count, tile, buffers, take);
  }
  const std::uint64_t step =
      std::max<std::uint64_t>(1, kCodesAtOnce / std::max<std::uint64_t>(1, rows_.matrix().columns));
  const std::uint64_t end = first + count;
  while (first < end) {
    const std::uint64_t many = std::min(step, end - first);
    const PackedRows out = room(many, buffers);
    for (std::uint64_t done = 0; done < many;) {
      const Run run = run_at(first + done, many - done);
      TRY(make_run(
          first + done, run, codes, buffers.parts,
          {rows_of(out.codes, done, run.rows, many), rows_of(out.scales, done, run.rows, many),
           rows_of(out.zero_points, done, run.rows, many)}));
      done += run.rows;
    }
    TRY(take(first, out));
    first += many;
  }
  return {};
}

}  // namespace onnx_external
