#include "cut/piece_model.h"

#include <map>
#include <string>
#include <utility>

#include "base/text.h"
#include "base/try.h"
#include "cut/boundary_types.h"
#include "cut/piece_content.h"
#include "cut/selection.h"
#include "onnx/external_data.h"
#include "onnx/model_access.h"
#include "onnx/model_edits.h"
#include "onnx/model_segments.h"
#include "onnx/model_source.h"
#include "onnx/tensor_list.h"

namespace onnx_external {
namespace {

Result<CutSelection> select(const ValueGraph& graph, const CutOptions& options) {
  const bool by_values = !options.inputs.empty() || !options.outputs.empty();
  const bool by_module = !options.module.empty() || !options.without.empty();
  if (by_module == by_values) {
    return fail(ErrorCode::kInvalidArgument,
                by_values ? "a module cannot be combined with inputs or outputs of the piece; give "
                            "only one of them"
                          : "neither a module nor outputs of the piece are given");
  }
  if (by_module) {
    return select_module(graph, options.module, options.without);
  }
  if (options.outputs.empty()) {
    return fail(ErrorCode::kInvalidArgument, "no output of the piece is given");
  }
  return select_between(graph, options.inputs, options.outputs);
}

class PieceMaker {
 public:
  PieceMaker(const Model& model, const ValueGraph& graph, const CutSelection& selection)
      : model_(model),
        graph_(graph),
        selection_(selection),
        content_(find_content(model, graph, selection)),
        types_(graph),
        is_boundary_(graph.values().size()) {}

  Result<PieceModel> make(const std::string& note) {
    remove_nodes();
    remove_tensors();
    TRY(replace_inputs());
    replace_outputs();
    remove_infos();
    replace_metadata(note);
    TRY(describe());
    TRY_ASSIGN(auto segments, model_segments(model_, std::move(edits_)));
    report_.model_bytes = segments.bytes;
    return PieceModel{std::move(segments), std::move(report_)};
  }

 private:
  [[nodiscard]] const onnx::GraphProto& main() const { return graph_.graph(); }

  // Keeps and counts only the elements for which keep() is true.
  template <typename List, typename Keep>
  std::uint64_t filter(const List& list, const Keep& keep) {
    std::uint64_t kept = 0;
    for (int i = 0; i < list.size(); ++i) {
      if (keep(i)) {
        ++kept;
      } else {
        edits_.removed.insert(&list[i]);
      }
    }
    return kept;
  }

  [[nodiscard]] bool is_carried(const std::string& name) const {
    const auto value = graph_.find(name);
    return value && content_.carried[*value];
  }

  void remove_nodes() {
    report_.nodes =
        filter(main().node(), [&](int i) { return selection_.nodes[static_cast<std::size_t>(i)]; });
    report_.functions = filter(model_.proto().functions(), [&](int i) {
      return content_.functions[static_cast<std::size_t>(i)];
    });
    filter(model_.proto().training_info(), [](int) { return false; });
  }

  void remove_tensors() {
    report_.initializers = filter(main().initializer(),
                                  [&](int i) { return is_carried(main().initializer(i).name()); }) +
                           filter(main().sparse_initializer(), [&](int i) {
                             return is_carried(main().sparse_initializer(i).values().name());
                           });
    filter(main().quantization_annotation(), [&](int i) {
      const auto value = graph_.find(main().quantization_annotation(i).tensor_name());
      return value && content_.has(graph_, selection_, *value);
    });
  }

  Status replace_inputs() {
    filter(main().input(), [](int) { return false; });
    for (const auto* inputs : {&selection_.inputs, &content_.defaulted}) {
      for (const ValueId input : *inputs) {
        const onnx::ValueInfoProto info = types_.of(input);
        if (!info.has_type()) {
          return fail(ErrorCode::kUnsupported,
                      "the model does not state the type of the value " + quote(info.name()) +
                          ", which would become an input; infer the model's shapes first "
                          "(onnx.shape_inference.infer_shapes_path)");
        }
        add(info, onnx::GraphProto::kInputFieldNumber, report_.inputs);
        is_boundary_[input] = true;
      }
    }
    return {};
  }

  void replace_outputs() {
    filter(main().output(), [](int) { return false; });
    for (const ValueId output : selection_.outputs) {
      const onnx::ValueInfoProto info = types_.of(output);
      add(info, onnx::GraphProto::kOutputFieldNumber, report_.outputs);
      is_boundary_[output] = true;
      if (!info.has_type()) {
        report_.untyped.push_back(info.name());
      }
    }
    for (const ValueId input : selection_.fed_back) {
      report_.fed_back.emplace_back(graph_[input].name);
    }
  }

  void add(const onnx::ValueInfoProto& info, int field, std::vector<std::string>& names) {
    ModelText& text = edits_.added[{&main(), field}];
    const ModelText::Mark begin = text.here();
    append_message(info, text);
    text.wrap(begin, static_cast<std::uint32_t>(field));
    names.push_back(info.name());
  }

  void remove_infos() {
    filter(main().value_info(), [&](int i) {
      const auto value = graph_.find(main().value_info(i).name());
      return value && !is_boundary_[*value] && content_.has(graph_, selection_, *value);
    });
  }

  void replace_metadata(const std::string& note) {
    const onnx::ModelProto& proto = model_.proto();
    remove_parent_note(model_, edits_);
    if (note.empty()) {
      return;
    }
    onnx::StringStringEntryProto entry;
    entry.set_key(std::string(kCutFromKey));
    entry.set_value(note);
    constexpr int kField = onnx::ModelProto::kMetadataPropsFieldNumber;
    ModelText& text = edits_.added[{&proto, kField}];
    const ModelText::Mark begin = text.here();
    append_message(entry, text);
    text.wrap(begin, kField);
  }

  // Data files need not exist, but a loader must be able to read those that do.
  [[nodiscard]] Status check_data(const ExternalTensor& tensor) const {
    const auto file = open_external(model_, tensor);
    return file || file.error().code == ErrorCode::kNotFound ? Status() : fail(file.error());
  }

  // Adds up the tensors.
  Status describe() {
    std::map<std::string, ExternalTensor> files;  // and the tensor of each that ends last
    Status status;
    for_each_tensor(model_, graph_, selection_, content_, [&](const onnx::TensorProto& tensor) {
      report_.weight_bytes += onnx_nbytes(tensor.data_type(), dims_of(tensor)).value_or(0);
      auto entries = is_external(tensor) ? read_external_tensor(tensor)
                                         : fail(ErrorCode::kNotFound, "it is inside the model");
      if (!entries) {  // of a loaded model they are in order
        return;
      }
      if (is_in_memory(model_, *entries)) {
        status = fail(ErrorCode::kUnsupported,
                      "the data of " + quote(tensor.name()) +
                          " is not in a file that a piece could refer to; save the model first");
        return;
      }
      entries->name = tensor.name();
      const auto [last, is_first] = files.try_emplace(entries->location, *entries);
      if (!is_first &&
          last->second.offset + last->second.length < entries->offset + entries->length) {
        last->second = *std::move(entries);
      }
    });
    for (const auto& [location, tensor] : files) {
      report_.data_files.push_back(location);
      if (status && !model_.path().empty()) {
        status = check_data(tensor);
      }
    }
    return status;
  }

  const Model& model_;
  const ValueGraph& graph_;
  const CutSelection& selection_;
  const PieceContent content_;
  BoundaryTypes types_;
  std::vector<bool> is_boundary_;
  ModelEdits edits_;
  CutReport report_;
};

}  // namespace

Result<PieceModel> make_piece_model(const Model& model, const CutOptions& options,
                                    const std::string& note) {
  TRY_ASSIGN(const auto graph, ValueGraph::of(model.proto().graph()));
  TRY_ASSIGN(const auto selection, select(graph, options));
  return PieceMaker(model, graph, selection).make(note);
}

}  // namespace onnx_external
