// The tensors of a loaded model whose data was left in its file, and how the model becomes a whole
// file again.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "onnx/placeholder.h"
#include "onnx/wire_scan.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Data of so many bytes and more stays in the file; less costs no more in memory than its record.
inline constexpr std::uint64_t kMinCutBytes = 512;

// Immutable once a model is loaded; its members may be called from any thread.
class CutTensors {
 public:
  CutTensors() = default;  // of a model from memory: none

  // `pieces` of a tensor are its data fields in `file`, by rising places.
  CutTensors(std::shared_ptr<const SourceFile> file, WireScan scan, Placeholders placeholders)
      : file_(std::move(file)), scan_(std::move(scan)), placeholders_(placeholders) {
    scan_.messages = {};
  }

  [[nodiscard]] const Placeholders& placeholders() const { return placeholders_; }
  [[nodiscard]] const SourceFile& file() const { return *file_; }
  [[nodiscard]] const std::shared_ptr<const SourceFile>& shared_file() const { return file_; }
  [[nodiscard]] bool empty() const { return scan_.tensors.empty(); }

  // Requires: `number` of a placeholder of kind kCut.
  [[nodiscard]] std::span<const WirePiece> pieces(std::uint32_t number) const {
    return scan_.pieces_of(scan_.tensors[number]);
  }

  // The data fields of a tensor of the model; nothing when its data, if any, is in the tensor.
  [[nodiscard]] std::optional<std::span<const WirePiece>> find(
      const onnx::TensorProto& tensor) const;

 private:
  std::shared_ptr<const SourceFile> file_;
  WireScan scan_;
  Placeholders placeholders_;
};

// A run of bytes of a model file.
struct ModelPiece {
  enum class From : std::uint8_t {
    kText,      // ModelPieces::text, from `offset` on
    kGiven,     // the file that the model was loaded from, from `offset` on
    kDeferred,  // DeferredBytes `number`
  };
  From from = From::kText;
  std::uint32_t number = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

struct ModelPieces {
  std::string text;
  std::vector<ModelPiece> pieces;  // in the order of the file
  std::uint64_t bytes = 0;         // of the file
};

inline constexpr std::uint32_t kInitializerField = 5;  // of GraphProto

// The file that the model makes; see Model::serialize. `encoded`: of Model::attach_encoded.
[[nodiscard]] Result<ModelPieces> model_pieces(const Model& model, std::string encoded = {});

// The whole file. Requires: nothing in it is deferred.
[[nodiscard]] Result<std::string> join_pieces(ModelPieces pieces, const CutTensors& cuts);

// Puts the bytes that placeholders stand for into a serialized model. kUnsupported past
// kMaxMessageBytes.
[[nodiscard]] Result<ModelPieces> fill_placeholders(std::string model, const CutTensors& cuts);

}  // namespace onnx_external
