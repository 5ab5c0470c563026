// The model as the text of a file, with initializers that were never part of it.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <cassert>
#include <span>
#include <string_view>
#include <utility>

#include "base/size_text.h"
#include "base/try.h"
#include "onnx/cut_tensors.h"
#include "onnx/wire_reader.h"

namespace onnx_external {
namespace {

constexpr std::uint32_t kGraphField = 7;  // of ModelProto

// Where in a serialized model initializers could be added. Protobuf writes fields by their numbers.
struct InitializerPlace {
  std::uint64_t graph_tag = 0;
  std::uint64_t graph_begin = 0;
  std::uint64_t graph_end = 0;
  std::uint64_t place = 0;
};

Result<InitializerPlace> find_initializer_place(std::string_view model) {
  const WireInput input(model);
  WireReader reader(input);
  InitializerPlace found;
  WireTag tag;
  while (!reader.at_end() && reader.tag(tag) && tag.field != kGraphField) {
    if (!reader.skip_value(tag, 1)) {
      break;
    }
    found.graph_tag = reader.position();
  }
  std::uint64_t bytes = 0;
  if (!reader.length(bytes)) {
    return fail(reader.status().error());
  }
  found.graph_begin = reader.position();
  found.graph_end = found.graph_begin + bytes;
  reader.enter(found.graph_begin, found.graph_end);
  found.place = found.graph_begin;
  while (!reader.at_end() && reader.tag(tag) && tag.field <= kInitializerField &&
         reader.skip_value(tag, 2)) {
    found.place = reader.position();
  }
  return reader.status() ? Result<InitializerPlace>(found) : fail(reader.status().error());
}

// A model behind `encoded` in one text, and the order in which they make a file.
Result<ModelPieces> pieces_around(std::string text, std::uint64_t encoded) {
  TRY_ASSIGN(const auto found, find_initializer_place(std::string_view(text).substr(encoded)));
  const std::uint64_t model_end = text.size();
  append_length_header(text, kGraphField, found.graph_end - found.graph_begin + encoded);
  ModelPieces pieces;
  const auto add = [&](std::uint64_t begin, std::uint64_t end) {
    pieces.pieces.push_back({ModelPiece::From::kText, 0, begin, end - begin});
    pieces.bytes += end - begin;
  };
  add(encoded, encoded + found.graph_tag);
  add(model_end, text.size());
  add(encoded + found.graph_begin, encoded + found.place);
  add(0, encoded);
  add(encoded + found.place, model_end);
  pieces.text = std::move(text);
  return pieces;
}

tl::unexpected<Error> too_large(std::uint64_t bytes) {
  return fail(ErrorCode::kUnsupported, "the model takes " + size_text(bytes) +
                                           ", but protobuf cannot write more than " +
                                           size_text(kMaxMessageBytes));
}

}  // namespace

Result<ModelPieces> model_pieces(const Model& model, std::string encoded) {
  const std::uint64_t before = encoded.size();
  const std::uint64_t size = model.proto().ByteSizeLong() + before;
  if (size > kMaxMessageBytes) {
    return too_large(size);
  }
  std::string text = std::move(encoded);
  text.reserve(static_cast<std::size_t>(size) + kMaxVarintBytes + 1);
  {
    google::protobuf::io::StringOutputStream stream(&text);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    model.proto().SerializeWithCachedSizes(&coded);
  }
  if (before == 0) {
    return fill_placeholders(std::move(text), model.cut_tensors());
  }
  auto pieces = pieces_around(std::move(text), before);
  if (pieces && pieces->bytes > kMaxMessageBytes) {
    return too_large(pieces->bytes);
  }
  if (!pieces || !model.cut_tensors().placeholders().may_stand_in(pieces->text)) {
    return pieces;
  }
  TRY_ASSIGN(auto whole, join_pieces(*std::move(pieces), model.cut_tensors()));
  return fill_placeholders(std::move(whole), model.cut_tensors());
}

Result<std::string> join_pieces(ModelPieces pieces, const CutTensors& cuts) {
  if (pieces.pieces.size() == 1) {
    return std::move(pieces.text);
  }
  std::string whole(static_cast<std::size_t>(pieces.bytes), '\0');
  std::size_t at = 0;
  for (const ModelPiece& piece : pieces.pieces) {
    assert(piece.from != ModelPiece::From::kDeferred);
    const auto bytes = static_cast<std::size_t>(piece.bytes);
    if (piece.from == ModelPiece::From::kText) {
      pieces.text.copy(whole.data() + at, bytes, static_cast<std::size_t>(piece.offset));
    } else if (Status read = cuts.file().read(
                   piece.offset, std::as_writable_bytes(std::span(whole)).subspan(at, bytes));
               !read) {
      return fail(std::move(read).error());
    }
    at += bytes;
  }
  return whole;
}

}  // namespace onnx_external
