#include "base/read_back.h"

#include <span>
#include <utility>

#include "base/holes.h"
#include "base/try.h"

namespace onnx_external {
namespace {

// Ranges that are holes on both sides are equal and need not be read. To search for holes in a file
// that was just written takes Linux longer than to read it, because it looks at every page.
FileRun run_at(const RangePart& part, const ExpectedBytes& expected, std::uint64_t first) {
  const std::uint64_t left = part.first + part.length - first;
  if (left < kMinHoleBytes || !may_have_holes(part.file)) {
    return {left, false};
  }
  const std::uint64_t place = part.offset + first;
  const FileRun run = next_run(part.file, place, place + left);
  if (!expected.give || !run.is_hole) {
    return run;
  }
  const std::uint64_t from = expected.offset + first;
  return expected.file == nullptr ? FileRun{run.bytes, false}
                                  : next_run(*expected.file, from, from + run.bytes);
}

}  // namespace

Result<ReadBack> read_back(const RangePart& part, const ExpectedBytes& expected,
                           ByteComparer& comparer, const CountBytes& count) {
  ReadBack result;
  SparseCrc32 crc;
  std::uint64_t done = 0;
  const auto take = [&](std::span<const std::byte> chunk) {
    if (part.wants_crc) {
      crc.update(chunk);
    }
    done += chunk.size();
    return count(chunk.size());
  };
  ComparedBytes bytes{bytes_in_file(part.file, part.offset), expected.give, take};
  while (done < part.length) {
    const std::uint64_t first = part.first + done;
    const FileRun run = run_at(part, expected, first);
    if (run.is_hole) {
      crc.skip_zeros(run.bytes);
      done += run.bytes;
      TRY(count(run.bytes));
      continue;
    }
    TRY_ASSIGN(auto compared,
               comparer.compare(first, run.bytes, bytes, AtDifference::kReadOn, expected.step));
    if (compared.unreadable) {
      result.unreadable = std::move(compared.unreadable);
      TRY(count(part.length - done));
      return result;
    }
    if (compared.difference) {
      result.difference = compared.difference;
      bytes.wanted = nullptr;  // the first one is enough
    }
  }
  result.crc32 = crc.value();
  return result;
}

Result<std::uint32_t> range_crc32(const SourceFile& file, std::uint64_t offset,
                                  std::uint64_t length) {
  ByteComparer comparer;
  TRY_ASSIGN(auto read, read_back({file, offset, 0, length}, {}, comparer,
                                  [](std::uint64_t) { return Status(); }));
  return read.unreadable ? fail(*std::move(read.unreadable)) : Result<std::uint32_t>(read.crc32);
}

}  // namespace onnx_external
