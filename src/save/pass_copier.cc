#include "save/pass_copier.h"

#include <optional>

#include "base/digest.h"
#include "base/try.h"
#include "save/copy_steps.h"
#include "save/planned_bytes.h"

namespace onnx_external {

PassRows rows_of(const CopyJob& job, const CopyItem& item) {
  const PackedTensor& packed = *tensor_of(job.plan, item.range).packed;
  const std::uint64_t row_bytes = job.plan.ranges[item.range].bytes / packed.rows;
  return {item.first / row_bytes, item.length / row_bytes};
}

Result<PassResult> PassCopier::copy(const CopyItem& item, std::span<const OutputFile* const> files,
                                    PackingBuffers& buffers) {
  const PlannedTensor& tensor = tensor_of(job_.plan, item.range);
  TRY_ASSIGN(const auto held, hold_planned(job_.checkpoint, tensor));
  const DerivedView view = planned_view(job_.checkpoint, tensor);
  const RowPacker rows(job_.checkpoint, *view, tensor.cast_to, *tensor.packed);
  const std::size_t head = part_of(job_.plan, item.range);
  PassResult result;
  std::array<Crc32, kMatrixParts> crcs;
  const auto take = [&](std::uint64_t row, const PackedBytes& made) -> Status {
    std::uint64_t written = 0;
    for (std::size_t part = 0; part < files.size(); ++part) {
      const auto bytes = made.parts[head + part];
      const std::uint64_t at = row * rows.row_bytes(static_cast<MatrixPart>(head + part));
      crcs[part].update(bytes);
      TRY(files[part]->write(job_.plan.ranges[item.range + part].offset + at, bytes));
      written += bytes.size();
    }
    return step_(written) ? Status() : cancelled();
  };
  const auto [first, count] = rows_of(job_, item);
  std::optional<BufferPool::Lease> lease;
  IoBuffer none;
  if (rows.needs_tile()) {
    lease.emplace(tiles_);
  }
  TRY(rows.make(first, count, lease ? **lease : none, buffers, take, &result.error));
  for (std::size_t part = 0; part < files.size(); ++part) {
    result.crcs[part] = crcs[part].value();
  }
  return result;
}

}  // namespace onnx_external
