// Maps ranges of files into memory, so that Python arrays can be made of them without copying.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/file.h"
#include "onnx_external/result.h"

namespace onnx_external::python {

// Says whether Python may write to the buffer of a mapping.
enum class Writable : bool { kNo, kYes };

// A private mapping of a range of a file. A page that is written to becomes a copy that belongs to
// this mapping; neither the file nor any other mapping changes. Pages that were never written to
// take no memory of the process. The mapping keeps no file descriptor open. Python accesses the
// bytes through the buffer protocol.
class Mapped {
 public:
  // Returns nullopt if the system has no room for another mapping or this process already has many;
  // the caller must then read the bytes instead. Mappings of whole files are not limited, because
  // there are few of them. kCorrupt if the range is not inside the file, or if the file has changed
  // since it was opened.
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

  std::byte* pages_ = nullptr;  // whole pages, beginning with the page in which the range starts
  std::size_t length_ = 0;
  std::size_t skipped_ = 0;  // bytes of the first page that precede the range
  Writable writable_ = Writable::kNo;
};

}  // namespace onnx_external::python
