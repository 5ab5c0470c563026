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
    gaps_.push_back({text_.size() + gap.at, gap.piece});
  }
  text_ += other.text_;
  bytes_ += other.bytes_;
}

void ModelText::add_gap(const ModelPiece& piece) {
  assert(piece.from != ModelPiece::From::kText);
  gaps_.push_back({text_.size(), piece});
  bytes_ += piece.bytes;
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

ModelPieces ModelText::take() && {
  ModelPieces out;
  out.pieces.reserve(2 * gaps_.size() + 1);
  std::size_t position = 0;
  const auto add_text = [&](std::size_t end) {
    if (end > position) {
      out.pieces.push_back({ModelPiece::From::kText, 0, position, end - position});
      position = end;
    }
  };
  for (const Gap& gap : gaps_) {
    add_text(gap.at);
    out.pieces.push_back(gap.piece);
  }
  add_text(text_.size());
  out.bytes = bytes_;
  out.text = std::move(text_);
  return out;
}

Result<std::string> join_pieces(ModelPieces pieces, const CutTensors& cuts) {
  if (pieces.bytes == pieces.text.size()) {
    return std::move(pieces.text);
  }
  std::string whole(static_cast<std::size_t>(pieces.bytes), '\0');
  std::size_t at = 0;
  for (const ModelPiece& piece : pieces.pieces) {
    assert(piece.from != ModelPiece::From::kDeferred);
    const auto bytes = static_cast<std::size_t>(piece.bytes);
    if (piece.from == ModelPiece::From::kText) {
      pieces.text.copy(whole.data() + at, bytes, static_cast<std::size_t>(piece.offset));
    } else {
      TRY(cuts.file().read(piece.offset,
                           std::as_writable_bytes(std::span(whole)).subspan(at, bytes)));
    }
    at += bytes;
  }
  return whole;
}

}  // namespace onnx_external
