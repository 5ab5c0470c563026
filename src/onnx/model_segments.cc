#include "onnx/model_segments.h"

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/try.h"
#include "onnx/function_attributes.h"
#include "onnx/model_access.h"
#include "onnx/wire_reader.h"

namespace onnx_external {
namespace {

// visit_child() calls visit(message) with the `i`-th message in a field of another message, if
// edits may be inside it.

template <typename Visit>
void visit_child(const onnx::ModelProto& model, std::uint32_t field, int i, const Visit& visit) {
  switch (field) {
    case onnx::ModelProto::kGraphFieldNumber:
      return visit(model.graph());
    case onnx::ModelProto::kTrainingInfoFieldNumber:
      return visit(model.training_info(i));
    case onnx::ModelProto::kFunctionsFieldNumber:
      return visit(model.functions(i));
    case onnx::ModelProto::kMetadataPropsFieldNumber:
      return visit(model.metadata_props(i));
    default:
      return;
  }
}

template <typename Visit>
void visit_child(const onnx::TrainingInfoProto& training, std::uint32_t field, int /*i*/,
                 const Visit& visit) {
  if (field == onnx::TrainingInfoProto::kInitializationFieldNumber) {
    visit(training.initialization());
  } else if (field == onnx::TrainingInfoProto::kAlgorithmFieldNumber) {
    visit(training.algorithm());
  }
}

// A template, because only a newer schema has attribute_proto.
template <typename Function, typename Visit>
requires std::is_same_v<Function, onnx::FunctionProto>
void visit_child(const Function& function, std::uint32_t field, int i, const Visit& visit) {
  if (field == onnx::FunctionProto::kNodeFieldNumber) {
    visit(function.node(i));
  }
  if constexpr (requires { function.attribute_proto(i); }) {
    if (field == kAttributeProtoField) {
      visit(function.attribute_proto(i));
    }
  }
}

template <typename Visit>
void visit_child(const onnx::GraphProto& graph, std::uint32_t field, int i, const Visit& visit) {
  switch (field) {
    case onnx::GraphProto::kNodeFieldNumber:
      return visit(graph.node(i));
    case onnx::GraphProto::kInitializerFieldNumber:
      return visit(graph.initializer(i));
    case onnx::GraphProto::kInputFieldNumber:
      return visit(graph.input(i));
    case onnx::GraphProto::kSparseInitializerFieldNumber:
      return visit(graph.sparse_initializer(i));
    case onnx::GraphProto::kOutputFieldNumber:
      return visit(graph.output(i));
    case onnx::GraphProto::kValueInfoFieldNumber:
      return visit(graph.value_info(i));
    case onnx::GraphProto::kQuantizationAnnotationFieldNumber:
      return visit(graph.quantization_annotation(i));
    default:
      return;
  }
}

template <typename Visit>
void visit_child(const onnx::NodeProto& node, std::uint32_t field, int i, const Visit& visit) {
  if (field == onnx::NodeProto::kAttributeFieldNumber) {
    visit(node.attribute(i));
  }
}

template <typename Visit>
void visit_child(const onnx::AttributeProto& attribute, std::uint32_t field, int i,
                 const Visit& visit) {
  switch (field) {
    case onnx::AttributeProto::kTFieldNumber:
      return visit(attribute.t());
    case onnx::AttributeProto::kGFieldNumber:
      return visit(attribute.g());
    case onnx::AttributeProto::kTensorsFieldNumber:
      return visit(attribute.tensors(i));
    case onnx::AttributeProto::kGraphsFieldNumber:
      return visit(attribute.graphs(i));
    case onnx::AttributeProto::kSparseTensorFieldNumber:
      return visit(attribute.sparse_tensor());
    case onnx::AttributeProto::kSparseTensorsFieldNumber:
      return visit(attribute.sparse_tensors(i));
    default:
      return;
  }
}

template <typename Visit>
void visit_child(const onnx::SparseTensorProto& sparse, std::uint32_t field, int /*i*/,
                 const Visit& visit) {
  if (field == onnx::SparseTensorProto::kValuesFieldNumber) {
    visit(sparse.values());
  } else if (field == onnx::SparseTensorProto::kIndicesFieldNumber) {
    visit(sparse.indices());
  }
}

// Messages that are edited as a whole.
template <typename Message>
constexpr bool kIsWhole =
    std::is_same_v<Message, onnx::ValueInfoProto> || std::is_same_v<Message, onnx::TensorProto> ||
    std::is_same_v<Message, onnx::TensorAnnotation> ||
    std::is_same_v<Message, onnx::StringStringEntryProto>;

// Attributes that were parsed from unknown fields, by their function and which of its attributes
// they are.
using DetachedAttributes =
    std::map<std::pair<const onnx::FunctionProto*, int>, const onnx::AttributeProto*>;

// Copies what protobuf writes for a message, with the edits in place of what they change. The text
// is read in parallel with the message, because edits identify messages by their addresses. Fields
// that the protobuf classes do not know are copied like all others.
class EditedCopy {
 public:
  // `text`: what protobuf writes for the message.
  EditedCopy(const CutTensors& cuts, const DetachedAttributes& detached, ModelEdits& edits,
             std::string_view text, ModelText& out)
      : cuts_(cuts),
        detached_(detached),
        edits_(edits),
        text_(text),
        input_(text),
        reader_(input_),
        out_(out) {}

  template <typename Message>
  Status copy(const Message& message) {
    copy_fields(message, text_.size());
    copy_until(text_.size());
    return reader_.status();
  }

  [[nodiscard]] bool changed() const { return changed_; }

 private:
  // A message in the text, from its tag to its end.
  struct Place {
    std::uint32_t field = 0;
    std::uint64_t tag = 0;
    std::uint64_t body = 0;
    std::uint64_t end = 0;
    std::optional<ModelText::Mark> mark = {};  // set once something inside is changed
  };

  // Recursion is safe here: its depth is bounded by kMaxGraphDepth.
  template <typename Message>
  void copy_fields(const Message& message, std::uint64_t end) {
    std::array<int, 32> seen{};  // of each field; those of messages have low numbers
    while (reader_.position() < end) {
      Place field{.tag = reader_.position()};
      WireTag tag;
      if (!reader_.tag(tag)) {
        return;
      }
      add_before(tag.field, field.tag, message);
      std::uint64_t bytes = 0;
      if (tag.type != WireType::kLength) {
        if (!reader_.skip_value(tag, 0)) {
          return;
        }
        continue;
      }
      if (!reader_.length(bytes)) {
        return;
      }
      field.field = tag.field;
      field.body = reader_.position();
      field.end = field.body + bytes;
      if (tag.field < seen.size()) {
        const int i = seen[tag.field]++;
        visit_child(message, tag.field, i, [&](const auto& child) { copy_child(child, field); });
        copy_provided(message, i, field);
      }
      reader_.enter(field.end, end);
    }
    add_before(std::numeric_limits<std::uint32_t>::max(), end, message);
  }

  template <typename Message>
  void copy_child(const Message& message, const Place& place) {
    if (const auto found = edits_.before.find(&message); found != edits_.before.end()) {
      begin_change(place.tag);
      out_.add(found->second);
      found->second = {};
    }
    if (edits_.removed.contains(&message)) {
      begin_change(place.tag);
      copied_ = place.end;
      return;
    }
    const bool replaced = replace(message, place);
    if constexpr (!kIsWhole<Message>) {
      if (!replaced) {
        copy_inside(message, place);
      }
    }
  }

  template <typename Message>
  void copy_inside(const Message& message, const Place& place) {
    open_.push_back(place);
    reader_.enter(place.body, place.end);
    copy_fields(message, place.end);
    if (open_.back().mark) {
      copy_until(place.end);
      out_.wrap(*open_.back().mark, place.field);
    }
    open_.pop_back();
  }

  bool replace(const google::protobuf::MessageLite& message, const Place& place) {
    const auto found = edits_.replaced.find(&message);
    if (found == edits_.replaced.end()) {
      return false;
    }
    begin_change(place.tag);
    const ModelText::Mark begin = out_.here();
    out_.add(found->second);
    found->second = {};
    out_.wrap(begin, place.field);
    copied_ = place.end;
    return true;
  }

  // A tensor whose data is in the model's file has a placeholder in the text.
  bool replace(const onnx::TensorProto& tensor, const Place& place) {
    if (const auto segments = cuts_.find(tensor); segments && !edits_.replaced.contains(&tensor)) {
      append_tensor(BareTensor(tensor), *segments, edits_.replaced[&tensor]);
    }
    return replace(static_cast<const google::protobuf::MessageLite&>(tensor), place);
  }

  template <typename Message>
  void copy_provided(const Message& message, int i, const Place& place) {
    if constexpr (std::is_same_v<Message, onnx::FunctionProto>) {
      if (place.field == kAttributeProtoField) {
        if (const auto found = detached_.find({&message, i}); found != detached_.end()) {
          replace(*found->second, place);
        }
      }
    }
  }

  // Adds what belongs after fields with lower numbers than `field`.
  template <typename Message>
  void add_before(std::uint32_t field, std::uint64_t position, const Message& message) {
    if constexpr (std::is_same_v<Message, onnx::GraphProto> ||
                  std::is_same_v<Message, onnx::ModelProto>) {
      auto next = edits_.added.lower_bound({&message, 0});
      while (next != edits_.added.end() && next->first.first == &message &&
             static_cast<std::uint32_t>(next->first.second) < field) {
        begin_change(position);
        out_.add(next->second);
        next = edits_.added.erase(next);
      }
    }
  }

  // Copies what comes before a change. The headers of the messages around it are left out, because
  // their lengths are known only at their ends.
  void begin_change(std::uint64_t position) {
    changed_ = true;
    for (Place& open : open_) {
      if (!open.mark) {
        copy_until(open.tag);
        open.mark = out_.here();
        copied_ = open.body;
      }
    }
    copy_until(position);
  }

  void copy_until(std::uint64_t position) {
    out_.add(text_.substr(static_cast<std::size_t>(copied_),
                          static_cast<std::size_t>(position - copied_)));
    copied_ = position;
  }

  const CutTensors& cuts_;
  const DetachedAttributes& detached_;
  ModelEdits& edits_;
  std::string_view text_;
  WireInput input_;
  WireReader reader_;
  std::vector<Place> open_;   // the messages that are being read, without the outermost
  std::uint64_t copied_ = 0;  // the end of what was copied or left out
  bool changed_ = false;
  ModelText& out_;
};

// Turns each detached attribute that contains an edit into a separate edit.
Result<DetachedAttributes> edit_detached_attributes(const Model& model, ModelEdits& edits) {
  DetachedAttributes edited;
  for (const auto& detached : ModelAccess::detached_attributes(model)) {
    const std::string text = detached->proto.SerializePartialAsString();
    ModelText out;
    EditedCopy copy(ModelAccess::cuts(model), edited, edits, text, out);
    TRY(copy.copy(detached->proto));
    if (copy.changed()) {
      edits.replaced.insert_or_assign(&detached->proto, std::move(out));
      edited.emplace(std::pair(&model.proto().functions(detached->function), detached->index),
                     &detached->proto);
    }
  }
  return edited;
}

}  // namespace

Result<ModelSegments> model_segments(const Model& model, ModelEdits edits) {
  const onnx::ModelProto& proto = model.proto();
  if (const std::uint64_t bytes = proto.ByteSizeLong(); bytes > kMaxMessageBytes) {
    return message_too_large(bytes);
  }
  TRY_ASSIGN(const auto detached, edit_detached_attributes(model, edits));
  const std::string text = proto.SerializePartialAsString();
  ModelText out;
  out.reserve(text.size() + edits.text_bytes());
  TRY(EditedCopy(ModelAccess::cuts(model), detached, edits, text, out).copy(proto));
  return out.bytes() > kMaxMessageBytes ? message_too_large(out.bytes())
                                        : Result<ModelSegments>(std::move(out).take());
}

}  // namespace onnx_external
