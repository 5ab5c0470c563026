// Collects changes to a model that are applied when it is written. The loaded model is not changed.
#pragma once

#include <google/protobuf/message_lite.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "onnx/model_text.h"
#include "onnx/tensor_text.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Messages are identified by their addresses in the model, which must outlive the edits. Changes
// are stored in serialized form ("text").
struct ModelEdits {
  using Message = google::protobuf::MessageLite;
  using Field = std::pair<const Message*, int>;

  // Tensors and nodes that are replaced, with their new text without headers.
  std::unordered_map<const Message*, ModelText> replaced;
  // Messages that are removed: nodes, values, tensors and annotations of graphs; functions,
  // training info and metadata of the model.
  std::unordered_set<const Message*> removed;
  // Text with headers that is inserted before a node.
  std::unordered_map<const Message*, ModelText> before;
  // Text with headers that is appended to the content of fields of graphs and of the model.
  std::map<Field, ModelText> added;

  // Returns the number of bytes of text that the changes add, without headers.
  [[nodiscard]] std::size_t text_bytes() const;
};

// A tensor that is put into a graph. It fills a slot, or becomes a new initializer (slot ==
// kNoSlot).
struct Attachment {
  std::uint32_t slot = kNoSlot;  // index into GraphFacts::slots
  std::string name;              // used with kNoSlot only
  std::int32_t data_type = 0;
  Shape dims;
  TensorData data;
};

// Puts tensors into the graph. Fills slots, removes the Identity nodes of kIdentityOutput slots,
// and adds new initializers. A tensor that becomes external has no inline data afterwards. New
// initializers are in the order of their slots, followed by those without a slot in the given
// order. A tensor that an earlier edit moved is moved again. Fails with kInvalidArgument, without
// changing the edits, if a slot index is out of range or used twice, or if the graph already
// defines the name of a new initializer.
[[nodiscard]] Status attach(const Model& model, std::span<const Attachment> attachments,
                            MatchedInputs inputs, ModelEdits& edits);

// The metadata_props key of the note in a piece that identifies the model that it was cut from
// (cut/parent_note.h).
inline constexpr std::string_view kCutFromKey = "onnx_external.cut_from";
// Removes the entry kCutFromKey, because a saved model is complete and no longer a cut piece.
void remove_parent_note(const Model& model, ModelEdits& edits);

// Moves the data of external_tensors()[i] to another file range, or into the model. Requires: i is
// in the list.
void relocate(const Model& model, std::size_t external_tensor, const TensorData& data,
              ModelEdits& edits);

// Moves the data of inline_tensors()[i] into a file. Requires: i is in the list.
void externalize(const Model& model, std::size_t inline_tensor, const ExternalRef& ref,
                 ModelEdits& edits);

}  // namespace onnx_external
