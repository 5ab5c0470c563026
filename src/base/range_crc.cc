#include "base/range_crc.h"

#include <algorithm>
#include <utility>

#include "base/digest.h"
#include "base/io_buffer.h"
#include "base/try.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kStepBytes = std::uint64_t{256} << 10;

}  // namespace

Result<std::uint32_t> range_crc32(const SourceFile& file, std::uint64_t offset,
                                  std::uint64_t length) {
  IoBuffer buffer;
  Crc32 crc;
  for (std::uint64_t done = 0; done < length;) {
    TRY_ASSIGN(const auto chunk,
               file.give(offset + done, buffer.first(std::min(kStepBytes, length - done))));
    crc.update(chunk);
    done += chunk.size();
  }
  return crc.value();
}

}  // namespace onnx_external
