#include "onnx/model_text.h"

#include <cassert>
#include <span>
#include <utility>

#include "base/try.h"
#include "onnx/wire_reader.h"

namespace onnx_external {

void ModelText::add(std::string_view text) {
  text_ += text;
  bytes_ += text.size();
}

void ModelText::add(const ModelText& other) {
  for (const Gap& gap : other.gaps_) {
    gaps_.push_back({text_.size() + gap.at, gap.segment});
  }
  text_ += other.text_;
  bytes_ += other.bytes_;
}

void ModelText::add_gap(const ModelSegment& segment) {
  assert(segment.from != ModelSegment::From::kText);
  gaps_.push_back({text_.size(), segment});
  bytes_ += segment.bytes;
}

void ModelText::wrap(const Mark& begin, std::uint32_t field) {
  std::string header;
  append_length_header(header, field, bytes_ - begin.bytes);
  text_.insert(begin.text, header);
  bytes_ += header.size();
  for (std::size_t i = begin.gap; i < gaps_.size(); ++i) {
    gaps_[i].at += header.size();
  }
}

ModelSegments ModelText::take() && {
  ModelSegments out;
  out.segments.reserve(2 * gaps_.size() + 1);
  std::size_t position = 0;
  const auto add_text = [&](std::size_t end) {
    if (end > position) {
      out.segments.push_back({ModelSegment::From::kText, 0, position, end - position});
      position = end;
    }
  };
  for (const Gap& gap : gaps_) {
    add_text(gap.at);
    out.segments.push_back(gap.segment);
  }
  add_text(text_.size());
  out.bytes = bytes_;
  out.text = std::move(text_);
  return out;
}

Result<std::string> join_segments(ModelSegments segments, const CutTensors& cuts) {
  if (segments.bytes == segments.text.size()) {
    return std::move(segments.text);
  }
  std::string whole(static_cast<std::size_t>(segments.bytes), '\0');
  std::size_t at = 0;
  for (const ModelSegment& segment : segments.segments) {
    assert(segment.from != ModelSegment::From::kDeferred);
    const auto bytes = static_cast<std::size_t>(segment.bytes);
    if (segment.from == ModelSegment::From::kText) {
      segments.text.copy(whole.data() + at, bytes, static_cast<std::size_t>(segment.offset));
    } else {
      TRY(cuts.file().read(segment.offset,
                           std::as_writable_bytes(std::span(whole)).subspan(at, bytes)));
    }
    at += bytes;
  }
  return whole;
}

}  // namespace onnx_external
