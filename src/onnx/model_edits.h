// Changes to a model that is to be written. The model itself stays as it is.
#pragma once

#include <google/protobuf/message_lite.h>
#include <onnx/onnx_pb.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "onnx/model_text.h"
#include "onnx/tensor_text.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Each message is known by its address in the model, which must outlive the edits, and each change
// has the form in which it will stand in the file.
struct ModelEdits {
  using Message = google::protobuf::MessageLite;
  using Field = std::pair<const Message*, int>;

  std::unordered_map<const Message*, ModelText> replaced;  // tensors, without their headers
  std::unordered_set<const Message*> removed;              // nodes and inputs of graphs
  std::map<Field, ModelText> added;  // with headers, to stand behind what the field holds

  // What the changes add to the text of the model, without headers.
  [[nodiscard]] std::size_t text_bytes() const;
};

// One tensor to put into the graph: an initializer `name` in graph `graph`, made from a slot or
// (slot == kNoSlot) new.
struct Attachment {
  std::uint32_t slot = kNoSlot;  // index into GraphFacts::slots
  std::string name;              // used with kNoSlot only
  std::int32_t data_type = 0;
  Shape dims;
  TensorData data;
};

// Puts tensors into the graph: fills slots (removing Identity nodes of kIdentityOutput slots) and
// adds new initializers; nothing inline remains in an external one. New initializers stand in the
// order of their slots, then the slotless ones in the given order. A tensor that was moved before
// is moved again. kInvalidArgument: a slot index out of range or used twice, a new name that the
// graph defines; the edits are then unchanged.
[[nodiscard]] Status attach(const Model& model, std::span<const Attachment> attachments,
                            MatchedInputs inputs, ModelEdits& edits);

// Gives external_tensors()[i] a new place, in a file or in the model. Requires: i is in the list.
void relocate(const Model& model, std::size_t external_tensor, const TensorData& data,
              ModelEdits& edits);

// Gives inline_tensors()[i] a place in a file. Requires: i is in the list.
void externalize(const Model& model, std::size_t inline_tensor, const ExternalRef& ref,
                 ModelEdits& edits);

}  // namespace onnx_external
