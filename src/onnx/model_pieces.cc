#include "onnx/model_pieces.h"

#include <google/protobuf/unknown_field_set.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/size_text.h"
#include "base/try.h"
#include "onnx/copy_field.h"
#include "onnx/function_attributes.h"
#include "onnx/model_access.h"
#include "onnx/wire_reader.h"

namespace onnx_external {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::UnknownFieldSet;

using Messages = std::unordered_set<const Message*>;

// Finds the messages that hold an edit. Tensors with data in the model's file are edits, too: they
// are added to the others.
class ChangeFinder {
 public:
  ChangeFinder(const Model& model, ModelEdits& edits) : model_(model), edits_(edits) {}

  Messages find() {
    for (const auto& [field, text] : edits_.added) {
      changed_.insert(field.first);
    }
    const onnx::ModelProto& proto = model_.proto();
    bool inside = visit(proto.graph());
    for (const auto& training : proto.training_info()) {
      inside |= note(training, visit(training.initialization()) | visit(training.algorithm()));
    }
    for (int i = 0; i < proto.functions_size(); ++i) {
      inside |= visit(proto.functions(i), i);
    }
    note(proto, inside);
    return std::move(changed_);
  }

 private:
  bool note(const Message& message, bool changed) {
    if (changed) {
      changed_.insert(&message);
    }
    return changed;
  }

  template <typename Elements>
  bool visit_all(const Elements& elements) {
    bool inside = false;
    for (const auto& element : elements) {
      inside |= visit(element);
    }
    return inside;
  }

  // Recursion is safe here: its depth is bounded by kMaxGraphDepth.
  bool visit(const onnx::GraphProto& graph) {
    bool inside = changed_.contains(&graph);
    inside |= visit_all(graph.initializer());
    inside |= visit_all(graph.sparse_initializer());
    inside |= visit_all(graph.node());
    inside |= !edits_.removed.empty() && visit_all(graph.input());
    return note(graph, inside);
  }

  bool visit(const onnx::NodeProto& node) {
    return edits_.removed.contains(&node) || note(node, visit_all(node.attribute()));
  }

  bool visit(const onnx::ValueInfoProto& input) { return edits_.removed.contains(&input); }

  bool visit(const onnx::AttributeProto& attribute) {
    bool inside = attribute.has_t() && visit(attribute.t());
    inside |= attribute.has_g() && visit(attribute.g());
    inside |= visit_all(attribute.tensors());
    inside |= visit_all(attribute.graphs());
    inside |= attribute.has_sparse_tensor() && visit(attribute.sparse_tensor());
    inside |= visit_all(attribute.sparse_tensors());
    return note(attribute, inside);
  }

  bool visit(const onnx::SparseTensorProto& sparse) {
    bool inside = visit(sparse.values());
    inside |= visit(sparse.indices());
    return note(sparse, inside);
  }

  bool visit(const onnx::FunctionProto& function, int number) {
    bool inside = visit_all(function.node());
    inside |= visit_known_attributes(function);
    const auto loose = ModelAccess::loose_attributes(model_);
    for (; loose_ < loose.size() && loose[loose_]->function == number; ++loose_) {
      inside |= visit(loose[loose_]->proto);
    }
    return note(function, inside);
  }

  // A template, because only a newer schema has the member.
  template <typename Function>
  bool visit_known_attributes(const Function& function) {
    if constexpr (requires { function.attribute_proto(); }) {
      return visit_all(function.attribute_proto());
    } else {
      return false;
    }
  }

  bool visit(const onnx::TensorProto& tensor) {
    if (edits_.replaced.contains(&tensor)) {
      return true;
    }
    const auto pieces = ModelAccess::cuts(model_).find(tensor);
    if (pieces) {
      append_tensor(BareTensor(tensor), *pieces, edits_.replaced[&tensor]);
    }
    return pieces.has_value();
  }

  const Model& model_;
  ModelEdits& edits_;
  Messages changed_;
  std::size_t loose_ = 0;  // the next to visit
};

class ModelEncoder {
 public:
  ModelEncoder(const Model& model, ModelEdits edits) : model_(model), edits_(std::move(edits)) {}

  Result<ModelPieces> encode() {
    changed_ = ChangeFinder(model_, edits_).find();
    for (const auto& loose : ModelAccess::loose_attributes(model_)) {
      if (changed_.contains(&loose->proto)) {
        const Message& function = model_.proto().functions(loose->function);
        loose_.emplace(ModelEdits::Field(&function, loose->field), &loose->proto);
      }
    }
    // Headers that come, go or change their length.
    constexpr std::uint64_t kMostHeaderBytes = 8;
    const std::uint64_t headers =
        kMostHeaderBytes * (1 + changed_.size() + edits_.replaced.size() + edits_.removed.size());
    const std::uint64_t expected = expected_bytes();
    if (expected > kMaxMessageBytes + headers) {
      return too_large(expected);
    }
    out_.reserve(static_cast<std::size_t>(expected + headers));
    append_fields(model_.proto());
    return out_.bytes() > kMaxMessageBytes ? too_large(out_.bytes())
                                           : Result<ModelPieces>(std::move(out_).take());
  }

 private:
  static tl::unexpected<Error> too_large(std::uint64_t bytes) {
    return fail(ErrorCode::kUnsupported, "the model would take " + size_text(bytes) +
                                             ", but protobuf cannot read more than " +
                                             size_text(kMaxMessageBytes) +
                                             "; leave its weights in files of their own");
  }

  // The text, but for what headers grow or shrink.
  std::uint64_t expected_bytes() const {
    std::uint64_t bytes = model_.proto().ByteSizeLong();
    std::uint64_t gone = 0;
    for (const auto& [message, text] : edits_.replaced) {
      bytes += text.text_bytes();
      gone += message->ByteSizeLong();
    }
    for (const auto& [field, text] : edits_.added) {
      bytes += text.text_bytes();
    }
    for (const Message* message : edits_.removed) {
      gone += message->ByteSizeLong();
    }
    return bytes > gone ? bytes - gone : 0;  // what is removed may hold what is replaced
  }

  // The body of a message that holds an edit, or of any other. Recursion is safe here: its depth is
  // bounded by kMaxGraphDepth.
  void append_fields(const Message& message) {
    std::vector<const FieldDescriptor*> fields;
    message.GetReflection()->ListFields(message, &fields);  // by their numbers
    const std::unique_ptr<Message> values(message.New());   // fields that are no messages
    for (const FieldDescriptor* field : fields) {
      const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
      if (is_message || has_added(message, field->number())) {
        append_message(*values, out_);
        values->Clear();
        append_added(message, field->number());
      }
      if (is_message) {
        append_elements(message, *field);
      } else {
        copy_field(message, *field, *values);
      }
    }
    append_message(*values, out_);
    append_added(message, FieldDescriptor::kMaxNumber);
    append_unknown(message);
  }

  // Whether something is still to be added to fields before this one.
  bool has_added(const Message& message, int before) const {
    const auto next = edits_.added.lower_bound({&message, 0});
    return next != edits_.added.end() && next->first.first == &message &&
           next->first.second < before;
  }

  void append_added(const Message& message, int before) {
    while (has_added(message, before)) {
      const auto next = edits_.added.lower_bound({&message, 0});
      out_.add(next->second);
      edits_.added.erase(next);
    }
  }

  void append_elements(const Message& message, const FieldDescriptor& field) {
    const auto& reflection = *message.GetReflection();
    const auto number = static_cast<std::uint32_t>(field.number());
    if (!field.is_repeated()) {
      append_element(reflection.GetMessage(message, &field), number);
      return;
    }
    const int count = reflection.FieldSize(message, &field);
    for (int i = 0; i < count; ++i) {
      append_element(reflection.GetRepeatedMessage(message, &field, i), number);
    }
  }

  void append_element(const Message& element, std::uint32_t field) {
    if (edits_.removed.contains(&element)) {
      return;
    }
    const ModelText::Mark begin = out_.here();
    if (const auto found = edits_.replaced.find(&element); found != edits_.replaced.end()) {
      out_.add(found->second);
      found->second = {};
    } else if (changed_.contains(&element)) {
      append_fields(element);
    } else {
      append_message(element, out_);
    }
    out_.wrap(begin, field);
  }

  void append_unknown(const Message& message) {
    const UnknownFieldSet& unknown = message.GetReflection()->GetUnknownFields(message);
    for (int i = 0; i < unknown.field_count(); ++i) {
      if (const auto found = loose_.find({&message, i}); found != loose_.end()) {
        append_element(*found->second, kAttributeProtoField);
        continue;
      }
      UnknownFieldSet single;
      single.AddField(unknown.field(i));
      std::string text;
      single.SerializeToString(&text);
      out_.add(text);
    }
  }

  const Model& model_;
  ModelEdits edits_;
  Messages changed_;
  // Those that hold an edit, by the function and the index of its unknown field.
  std::map<ModelEdits::Field, const Message*> loose_;
  ModelText out_;
};

}  // namespace

Result<ModelPieces> model_pieces(const Model& model, ModelEdits edits) {
  return ModelEncoder(model, std::move(edits)).encode();
}

}  // namespace onnx_external
