// A range of a file that is read as if it were a file: a torch.save file inside a larger one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/checked_math.h"
#include "base/file.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Immutable, copyable; keeps the file open. Offsets count from the start of the range.
class FileSlice {
 public:
  // The whole file. Implicit: what reads a slice reads a file.
  FileSlice(std::shared_ptr<const SourceFile> file)  // NOLINT(google-explicit-constructor)
      : file_(std::move(file)), size_(file_->size()), name_(file_->name()) {}

  // `name` says in messages which part it is: "model.pt2: record 'model/data/weights/model.pt'".
  // Requires: the range lies inside the file.
  FileSlice(std::shared_ptr<const SourceFile> file, std::uint64_t offset, std::uint64_t size,
            std::string name)
      : file_(std::move(file)), offset_(offset), size_(size), name_(std::move(name)) {}

  [[nodiscard]] const std::shared_ptr<const SourceFile>& file() const { return file_; }
  [[nodiscard]] std::uint64_t offset() const { return offset_; }  // of the range, in the file
  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] const std::string& name() const { return name_; }

  // kCorrupt when the range is not inside size().
  [[nodiscard]] Status read(std::uint64_t offset, std::span<std::byte> out) const {
    if (!range_fits(offset, out.size(), size_)) {
      return fail(ErrorCode::kCorrupt, name_ + ": byte " + std::to_string(offset) + ": " +
                                           std::to_string(out.size()) + " bytes wanted, of " +
                                           std::to_string(size_));
    }
    return file_->read(offset_ + offset, out);
  }

 private:
  std::shared_ptr<const SourceFile> file_;
  std::uint64_t offset_ = 0;
  std::uint64_t size_ = 0;
  std::string name_;
};

}  // namespace onnx_external
