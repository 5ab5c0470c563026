#include "onnx/cut_tensors.h"

#include <string_view>
#include <utility>

#include "base/try.h"

namespace onnx_external {
namespace {

std::uint64_t wire_bytes(std::span<const WirePiece> pieces) {
  std::uint64_t sum = 0;
  for (const WirePiece& piece : pieces) {
    sum += piece.end - piece.begin;
  }
  return sum;
}

// What stands in a tensor of a serialized model, and what is to stand there.
struct Filling {
  Placeholder placeholder;
  WireEdit edit;
};

std::vector<Filling> find_fillings(const WireScan& scan, std::string_view model,
                                   const CutTensors& cuts) {
  std::vector<Filling> fillings;
  for (const WireTensor& tensor : scan.tensors) {
    const WirePiece& piece = scan.pieces_of(tensor).front();
    const auto placeholder =
        cuts.placeholders().read(model.substr(piece.payload, piece.end - piece.payload));
    if (!placeholder) {
      continue;
    }
    const std::uint64_t bytes = placeholder->kind == Placeholder::Kind::kCut
                                    ? wire_bytes(cuts.pieces(placeholder->number))
                                    : 1 + varint_bytes(placeholder->bytes) + placeholder->bytes;
    fillings.push_back({*placeholder, {tensor.message, piece.begin, piece.end, bytes}});
  }
  return fillings;
}

class PieceList {
 public:
  void add_text(std::string_view text) {
    if (out_.pieces.empty() || out_.pieces.back().from != ModelPiece::From::kText) {
      out_.pieces.push_back({ModelPiece::From::kText, 0, out_.text.size(), 0});
    }
    out_.pieces.back().bytes += text.size();
    out_.text += text;
    out_.bytes += text.size();
  }
  void add(ModelPiece piece) {
    out_.bytes += piece.bytes;
    out_.pieces.push_back(piece);
  }
  ModelPieces take() { return std::move(out_); }

 private:
  ModelPieces out_;
};

void add_filling(const Placeholder& placeholder, const CutTensors& cuts, PieceList& list) {
  if (placeholder.kind == Placeholder::Kind::kDeferred) {
    std::string header;
    append_raw_data_header(header, placeholder.bytes);
    list.add_text(header);
    list.add({ModelPiece::From::kDeferred, placeholder.number, 0, placeholder.bytes});
    return;
  }
  for (const WirePiece& piece : cuts.pieces(placeholder.number)) {
    list.add({ModelPiece::From::kGiven, 0, piece.begin, piece.end - piece.begin});
  }
}

}  // namespace

std::optional<std::span<const WirePiece>> CutTensors::find(const onnx::TensorProto& tensor) const {
  const auto placeholder = placeholders_.read(tensor.raw_data());
  if (!placeholder || placeholder->kind != Placeholder::Kind::kCut) {
    return std::nullopt;
  }
  return pieces(placeholder->number);
}

Result<ModelPieces> fill_placeholders(std::string model, const CutTensors& cuts) {
  if (!cuts.placeholders().may_stand_in(model)) {
    const std::uint64_t bytes = model.size();
    return ModelPieces{std::move(model), {{ModelPiece::From::kText, 0, 0, bytes}}, bytes};
  }
  const WireInput input(model);
  TRY_ASSIGN(auto scan, scan_model(input, {Placeholder::kBytes, Placeholder::kBytes}));
  const std::vector<Filling> fillings = find_fillings(scan, model, cuts);
  std::vector<WireEdit> edits;
  edits.reserve(fillings.size());
  for (const Filling& filling : fillings) {
    edits.push_back(filling.edit);
  }
  TRY_ASSIGN(const auto steps, rewrite(scan, edits, model.size()));
  PieceList list;
  for (const WireStep& step : steps) {
    switch (step.kind) {
      case WireStep::Kind::kCopy:
        list.add_text(std::string_view(model).substr(step.from, step.bytes));
        break;
      case WireStep::Kind::kLength: {
        std::string length;
        append_varint(length, step.from);
        list.add_text(length);
        break;
      }
      case WireStep::Kind::kEdit:
        add_filling(fillings[step.from].placeholder, cuts, list);
        break;
    }
  }
  return list.take();
}

}  // namespace onnx_external
