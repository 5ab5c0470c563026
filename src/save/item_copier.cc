#include "save/item_copier.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/holes.h"
#include "base/io_buffer.h"
#include "base/progress_meter.h"
#include "base/read_step.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx/inline_data.h"
#include "save/overflows.h"
#include "save/planned_bytes.h"

namespace onnx_external {

Status add_written(const OutputFile& file, std::uint64_t first, std::uint64_t bytes, Sha& sha) {
  IoBuffer buffer;
  return for_each_step(bytes, buffer, [&](std::uint64_t at, std::span<std::byte> chunk) -> Status {
    TRY(read_exact(file.fd(), first + at, chunk, file.name()));
    sha.update(chunk);
    return {};
  });
}

const PlannedTensor& ItemCopier::tensor_of(const ItemCopy& copy) const {
  return job_.plan.tensors[job_.plan.ranges[copy.item.range].source_tensor];
}

std::uint64_t ItemCopier::place_of(const ItemCopy& copy) const {
  return job_.plan.ranges[copy.item.range].offset + copy.item.first;
}

Result<std::optional<std::uint32_t>> ItemCopier::copy(const ItemCopy& copy, RangeCopier& copier) {
  TRY_ASSIGN(const auto held, hold_planned(job_.checkpoint, tensor_of(copy)));
  std::uint32_t crc = 0;
  if (!copy.source.file || !copy.is_sparse || copy.item.length < kMinHoleBytes) {
    TRY_ASSIGN(crc, copy_run(copy, copier));
  } else {
    const std::uint64_t start = copy.source.offset + copy.item.first;
    for (std::uint64_t done = 0; done < copy.item.length;) {
      const FileRun run = next_run(*copy.source.file, start + done, start + copy.item.length);
      ItemCopy chunk = copy;
      chunk.item = {copy.item.range, copy.item.first + done, run.bytes};
      std::uint32_t added = 0;
      if (run.is_hole) {
        TRY(pass_hole(chunk));
        added = crc32_of_zeros(run.bytes);
      } else {
        TRY_ASSIGN(added, copy_run(chunk, copier));
      }
      crc = crc32_concat(crc, added, run.bytes);
      done += run.bytes;
    }
  }
  return splices(copy) ? std::nullopt : std::optional(crc);
}

// The file has zeros there already.
Status ItemCopier::pass_hole(const ItemCopy& copy) const {
  static constexpr std::array<std::byte, kCopyBufferBytes> kZeros{};
  for (std::uint64_t left = copy.sha == nullptr ? 0 : copy.item.length; left > 0;) {
    const auto chunk = std::span(kZeros).first(std::min<std::uint64_t>(left, kZeros.size()));
    copy.sha->update(chunk);
    left -= chunk.size();
  }
  return step_(copy.item.length) ? Status() : cancelled();
}

// A record whose CRC is known is moved inside the kernel; the read-back proves it. Below the
// buffer's size the buffer costs no more, and checks the CRC at once. Threads that share a file
// wait for its lock while they splice: with buffers they read at the same time at least. All
// chunks of a range are copied in one way.
bool ItemCopier::splices(const ItemCopy& copy) const {
  return copy.source.recorded_crc && copy.sha == nullptr && !copy.is_shared &&
         job_.plan.ranges[copy.item.range].bytes > kCopyBufferBytes;
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
                        copy.item.length,  copy.output,
                        place_of(copy),    step_};
  Crc32 crc;
  if (splices(copy)) {
    TRY(copier.copy(range));
  } else {
    TRY(copier.copy_with_digests(range, crc, copy.sha));
  }
  return crc.value();
}

Result<std::uint32_t> ItemCopier::rearrange(const ItemCopy& copy) {
  const PlannedTensor& tensor = tensor_of(copy);
  if (const auto tiles = planned_tiles(job_.checkpoint, tensor)) {
    return write_tiles(copy, *tiles);
  }
  return write_segments(copy, [&](std::uint64_t done, std::span<std::byte> chunk) {
    return read_planned(job_.checkpoint, tensor, copy.item.first + done, chunk);
  });
}

void ItemCopier::look_for_infinities(const ItemCopy& copy, std::span<const std::byte> elements) {
  const PlannedTensor& tensor = tensor_of(copy);
  if (may_overflow(job_.checkpoint, tensor) && !infinite_[copy.item.range] &&
      has_infinity(*tensor.cast_to, elements)) {
    infinite_[copy.item.range] = true;
  }
}

// A SHA needs the bytes in their order, so they are read again.
Result<std::uint32_t> ItemCopier::write_tiles(const ItemCopy& copy, const TiledView& tiles) {
  BufferPool::Lease buffer(buffers_);
  const std::uint64_t place = job_.plan.ranges[copy.item.range].offset;
  std::uint64_t unreported = 0;
  const auto write = [&](std::uint64_t at, std::span<const std::byte> run) -> Status {
    look_for_infinities(copy, run);
    TRY(copy.output.write(place + at, run));
    unreported += run.size();
    if (unreported < kRearrangeBytes) {
      return {};
    }
    return step_(std::exchange(unreported, 0)) ? Status() : cancelled();
  };
  std::uint32_t crc = 0;
  TRY(tiles.read(copy.item.first, copy.item.length, *buffer, write, &crc));
  if (!step_(unreported)) {
    return cancelled();
  }
  if (copy.sha != nullptr) {
    TRY(add_written(copy.output, place_of(copy), copy.item.length, *copy.sha));
  }
  return crc;
}

Result<std::uint32_t> ItemCopier::decode(const ItemCopy& copy) {
  const PlannedTensor& tensor = tensor_of(copy);
  const auto write = [&]() -> Result<std::uint32_t> {
    TRY_ASSIGN(auto reader, InlineReader::open(job_.models.of(tensor), tensor.source_index));
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
    if (copy.sha != nullptr) {
      copy.sha->update(chunk);
    }
    TRY(copy.output.write(place_of(copy) + done, chunk));
    done += count;
    if (!step_(count)) {
      return cancelled();
    }
  }
  return crc.value();
}

}  // namespace onnx_external
