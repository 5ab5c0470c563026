// Builds a serialized model as bytes in memory (called "text" here), with gaps for bytes that are
// copied when the model is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "onnx/cut_tensors.h"
#include "onnx_external/result.h"

namespace onnx_external {

// A byte range of a model file, and the source of its bytes.
struct ModelSegment {
  enum class From : std::uint8_t {
    kText,       // ModelSegments::text, from `offset` on
    kModelFile,  // the file that the model was loaded from, from `offset` on
    kDeferred,   // written by the caller; `number` is chosen by the caller
  };
  From from = From::kText;
  std::uint32_t number = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct ModelSegments {
  std::string text;
  std::vector<ModelSegment> segments;  // in the order of the file
  std::uint64_t bytes = 0;             // size of the file
};

// Returns the whole file. `cuts` are those of the model from which the segments were created.
// Requires: no segment is deferred.
[[nodiscard]] Result<std::string> join_segments(ModelSegments segments, const CutTensors& cuts);

// Builds the text from front to back. The body of a message is appended first. Then wrap() inserts
// the header, which contains the length of the body.
class ModelText {
 public:
  // A position in the text at which a message begins.
  struct Mark {
    std::size_t text = 0;
    std::size_t gap = 0;
    std::uint64_t bytes = 0;
  };

  void reserve(std::size_t text_bytes) { text_.reserve(text_bytes); }
  void add(std::string_view text);
  void add(const ModelText& other);
  // Leaves a gap for the bytes that `segment` describes. Requires: the segment is not text.
  void add_gap(const ModelSegment& segment);
  // Appends the text that `write` appends to its argument, a std::string&.
  template <typename Write>
  void add_by(const Write& write) {
    const std::size_t before = text_.size();
    write(text_);
    bytes_ += text_.size() - before;
  }

  [[nodiscard]] Mark here() const { return {text_.size(), gaps_.size(), bytes_}; }
  // Inserts a header at `begin`, so that everything that was added after `begin` becomes the value
  // of a field.
  void wrap(const Mark& begin, std::uint32_t field);

  [[nodiscard]] std::size_t text_bytes() const { return text_.size(); }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }  // including the bytes of gaps
  [[nodiscard]] ModelSegments take() &&;

 private:
  struct Gap {
    std::size_t at = 0;  // position in the text
    ModelSegment segment;
  };

  std::string text_;
  std::vector<Gap> gaps_;
  std::uint64_t bytes_ = 0;
};

}  // namespace onnx_external
