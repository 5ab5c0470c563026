#include "save/item_copier.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

#include "base/digest.h"
#include "base/file.h"
#include "base/holes.h"
#include "base/io_buffer.h"
#include "base/progress_meter.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx/inline_data.h"
#include "save/overflows.h"
#include "save/planned_bytes.h"

namespace onnx_external {

namespace {

// Returns the part of a matrix that a range holds, as a number.
std::size_t part_of(const SavePlan& plan, std::uint32_t range) {
  const auto& packed = tensor_of(plan, range).packed;
  return packed ? static_cast<std::size_t>(packed->part) : 0;
}

}  // namespace

std::vector<Pass> passes_of(const SavePlan& plan) {
  std::vector<Pass> passes;
  passes.reserve(plan.ranges.size());
  for (std::uint32_t range = 0; range < plan.ranges.size(); ++range) {
    const bool follows = range > 0 && tensor_of(plan, range - 1).packed &&
                         part_of(plan, range) == part_of(plan, range - 1) + 1;
    if (follows) {
      ++passes.back().ranges;
    } else {
      passes.push_back({range, 1});
    }
  }
  return passes;
}

Result<CopiedItem> ItemCopier::copy(const ItemCopy& copy, CopyBuffers& buffers) {
  TRY_ASSIGN(const auto held, hold_planned(checkpoint_, tensor_of(copy)));
  if (copy.outputs.size() > 1) {
    if (!buffers.packing) {
      buffers.packing.emplace();
    }
    return pack(copy, *buffers.packing);
  }
  const bool has_holes = copy.source.file && copy.is_sparse && copy.item.length >= kMinHoleBytes;
  TRY_ASSIGN(const auto crc,
             has_holes ? copy_between_holes(copy, buffers.copier) : copy_run(copy, buffers.copier));
  CopiedItem copied;
  copied.bytes[0] = copy.item.length;
  copied.crcs[0] = splices(copy) ? std::nullopt : std::optional(crc);
  return copied;
}

Result<CopiedItem> ItemCopier::pack(const ItemCopy& copy, PackingBuffers& buffers) {
  const PlannedTensor& tensor = tensor_of(copy);
  const DerivedView view = planned_view(checkpoint_, tensor);
  const RowPacker rows(checkpoint_, *view, tensor.cast_to, *tensor.packed);
  const std::size_t head = part_of(plan_, copy.item.range);
  CopiedItem copied;
  std::array<Crc32, kMatrixParts> crcs;
  const auto take = [&](std::uint64_t row, const PackedBytes& made) -> Status {
    std::uint64_t written = 0;
    for (std::size_t part = 0; part < copy.outputs.size(); ++part) {
      const auto bytes = made.parts[head + part];
      const std::uint64_t at = row * rows.row_bytes(static_cast<MatrixPart>(head + part));
      crcs[part].update(bytes);
      TRY(copy.outputs[part]->write(plan_.ranges[copy.item.range + part].offset + at, bytes));
      copied.bytes[part] += bytes.size();
      written += bytes.size();
    }
    return step_(written) ? Status() : cancelled();
  };
  std::optional<BufferPool::Lease> lease;
  IoBuffer none;
  if (rows.needs_tile()) {
    lease.emplace(buffers_);
  }
  const std::uint64_t row_bytes = rows.row_bytes(tensor.packed->part);
  TRY(rows.make(copy.item.first / row_bytes, copy.item.length / row_bytes, lease ? **lease : none,
                buffers, take, &copied.error));
  for (std::size_t part = 0; part < copy.outputs.size(); ++part) {
    copied.crcs[part] = crcs[part].value();
  }
  return copied;
}

// The new file has zeros already where the source has holes.
Result<std::uint32_t> ItemCopier::copy_between_holes(const ItemCopy& copy, RangeCopier& copier) {
  std::uint32_t crc = 0;
  const std::uint64_t start = copy.source.offset + copy.item.first;
  for (std::uint64_t done = 0; done < copy.item.length;) {
    const FileRun run = next_run(*copy.source.file, start + done, start + copy.item.length);
    std::uint32_t added = 0;
    if (run.is_hole) {
      TRY(step_(run.bytes) ? Status() : cancelled());
      added = crc32_of_zeros(run.bytes);
    } else {
      ItemCopy chunk = copy;
      chunk.item = {copy.item.range, copy.item.first + done, run.bytes};
      TRY_ASSIGN(added, copy_run(chunk, copier));
    }
    crc = crc32_concat(crc, added, run.bytes);
    done += run.bytes;
  }
  return crc;
}

// A record whose CRC is known is moved inside the kernel; the read-back proves it. Below the
// buffer's size the buffer costs no more, and checks the CRC at once. Threads that share a file
// wait for its lock while they splice: with buffers they read at the same time at least. All
// chunks of a range are copied in one way.
bool ItemCopier::splices(const ItemCopy& copy) const {
  return copy.source.recorded_crc && !copy.is_shared &&
         plan_.ranges[copy.item.range].bytes > kCopyBufferBytes;
}

Result<std::uint32_t> ItemCopier::copy_run(const ItemCopy& copy, RangeCopier& copier) {
  const bool is_inline = tensor_of(copy).source == TensorSource::kModelInline;
  if (!copy.source.file) {
    return is_inline ? decode(copy) : rearrange(copy);
  }
  TRY_ASSIGN(const auto crc, copy_range(copy, copier));
  if (tensor_of(copy).source != TensorSource::kCheckpoint) {
    TRY(copy.source.file->check_unchanged());
  }
  return crc;
}

// Returns 0 for what it splices.
Result<std::uint32_t> ItemCopier::copy_range(const ItemCopy& copy, RangeCopier& copier) const {
  const CopyRange range{*copy.source.file, copy.source.offset + copy.item.first,
                        copy.item.length,  *copy.outputs.front(),
                        place_of(copy),    step_};
  Crc32 crc;
  if (splices(copy)) {
    TRY(copier.copy(range));
  } else {
    TRY(copier.copy_with_crc(range, crc));
  }
  return crc.value();
}

Result<std::uint32_t> ItemCopier::rearrange(const ItemCopy& copy) {
  const PlannedTensor& tensor = tensor_of(copy);
  if (const auto tiles = planned_tiles(checkpoint_, tensor)) {
    return write_tiles(copy, *tiles);
  }
  return write_segments(copy, [&](std::uint64_t done, std::span<std::byte> chunk) {
    return read_planned(checkpoint_, tensor, copy.item.first + done, chunk);
  });
}

void ItemCopier::look_for_infinities(const ItemCopy& copy, std::span<const std::byte> elements) {
  const PlannedTensor& tensor = tensor_of(copy);
  if (may_overflow(checkpoint_, tensor) && !infinite_[copy.item.range] &&
      has_infinity(*tensor.cast_to, elements)) {
    infinite_[copy.item.range] = true;
  }
}

Result<std::uint32_t> ItemCopier::write_tiles(const ItemCopy& copy, const TiledView& tiles) {
  BufferPool::Lease buffer(buffers_);
  const std::uint64_t place = plan_.ranges[copy.item.range].offset;
  std::uint64_t unreported = 0;
  const auto write = [&](std::uint64_t at, std::span<const std::byte> run) -> Status {
    look_for_infinities(copy, run);
    TRY(copy.outputs.front()->write(place + at, run));
    unreported += run.size();
    if (unreported < kRearrangeBytes) {
      return {};
    }
    return step_(std::exchange(unreported, 0)) ? Status() : cancelled();
  };
  std::uint32_t crc = 0;
  TRY(tiles.read(copy.item.first, copy.item.length, *buffer, write, &crc));
  return step_(unreported) ? Result<std::uint32_t>(crc) : cancelled();
}

Result<std::uint32_t> ItemCopier::decode(const ItemCopy& copy) {
  const PlannedTensor& tensor = tensor_of(copy);
  const auto write = [&]() -> Result<std::uint32_t> {
    TRY_ASSIGN(auto reader, InlineReader::open(models_.of(tensor), tensor.source_index));
    return write_segments(
        copy, [&](std::uint64_t, std::span<std::byte> chunk) { return reader.read(chunk); });
  };
  auto crc = write();
  if (crc || crc.error().code == ErrorCode::kCancelled) {
    return crc;
  }
  return fail_in("tensor " + quote(tensor.name), std::move(crc).error());
}

// read(done, chunk) fills the chunk with the item's bytes from `done` on.
template <typename Read>
Result<std::uint32_t> ItemCopier::write_segments(const ItemCopy& copy, const Read& read) {
  BufferPool::Lease buffer(buffers_);
  Crc32 crc;
  for (std::uint64_t done = 0; done < copy.item.length;) {
    const std::uint64_t count = std::min(kRearrangeBytes, copy.item.length - done);
    const std::span<std::byte> chunk = (*buffer).first(count);
    TRY(read(done, chunk));
    look_for_infinities(copy, chunk);
    crc.update(chunk);
    TRY(copy.outputs.front()->write(place_of(copy) + done, chunk));
    done += count;
    if (!step_(count)) {
      return cancelled();
    }
  }
  return crc.value();
}

}  // namespace onnx_external
