// Ranges of files in memory, for arrays of Python to be made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/file.h"
#include "onnx_external/result.h"

namespace onnx_external::python {

// What the buffer of a mapping allows.
enum class Writable : bool { kNo, kYes };

// A private mapping of a range of a file: a page that is written to becomes the mapping's own, and
// no file and no other mapping sees it. Pages that nobody has written to take no memory. It holds
// no descriptor. Python sees its bytes through the buffer protocol.
class Mapped {
 public:
  // Nothing if the system has no room for another mapping, or this process has many: read the bytes
  // then. Of those of whole files, which are few, there may be any number.
  // kCorrupt if the range is not inside of the file, or the file has changed since it was opened.
  [[nodiscard]] static Result<std::optional<Mapped>> map(const SourceFile& file,
                                                         std::uint64_t offset, std::uint64_t length,
                                                         Writable writable);
  Mapped(Mapped&& other) noexcept;
  Mapped& operator=(Mapped&&) = delete;
  ~Mapped();

  [[nodiscard]] std::byte* data() const { return pages_ + skipped_; }
  [[nodiscard]] std::size_t size() const { return length_ - skipped_; }
  [[nodiscard]] Writable writable() const { return writable_; }

 private:
  Mapped() = default;

  std::byte* pages_ = nullptr;  // whole pages, from the one on that the range begins in
  std::size_t length_ = 0;
  std::size_t skipped_ = 0;  // bytes of the first page before the range
  Writable writable_ = Writable::kNo;
};

}  // namespace onnx_external::python
