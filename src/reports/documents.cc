#include "reports/documents.h"

#include <string_view>

#include "checkpoint/derivation_json.h"
#include "onnx/graph_facts.h"
#include "onnx_external/dtype.h"
#include "reports/json_text.h"
#include "reports/remark_text.h"
#include "save/packed_json.h"

namespace onnx_external {
namespace {

Document pairs(const std::vector<std::pair<std::string, std::string>>& list, const char* first,
               const char* second) {
  Document out = Document::array();
  for (const auto& [a, b] : list) {
    out.push_back({{first, a}, {second, b}});
  }
  return out;
}

// As in a map file.
Document recipe_step(const RecipeStep& step) {
  const std::string name(step_name(step.kind));
  return takes_numbers(step.kind) ? Document{{name, step.numbers}} : Document(name);
}

Document saved_tensor(const SavedTensor& tensor) {
  Document out = Document::object();
  if (tensor.rule) {
    out["key"] = tensor.key;
  }
  out["slot"] = tensor.slot;
  if (tensor.rule) {
    out["rule"] = rule_name(*tensor.rule);
  }
  for (const RecipeStep& step : tensor.recipe) {
    out["recipe"].push_back(recipe_step(step));
  }
  if (!tensor.file.empty()) {
    out["file"] = tensor.file;
    out["offset"] = tensor.offset;
  }
  out["length"] = tensor.length;
  if (tensor.packed) {
    out["part"] = part_name(tensor.packed->part);
  }
  if (tensor.overflow.values > 0) {
    out["overflowed"] = tensor.overflow.values;
    out["largest_overflowed"] = tensor.overflow.largest;
  }
  return out;
}

Document quantized_matrix(const SavedMatrix& matrix) {
  Document out{{"weight", matrix.weight}};
  if (!matrix.key.empty()) {
    out["key"] = matrix.key;
  }
  out["role"] = matrix.role;
  out["scheme"] = scheme_text(matrix.scheme);
  out["shape"] = {matrix.rows, matrix.columns};
  out["bytes_before"] = matrix.bytes_before;
  out["bytes"] = matrix.bytes;
  if (matrix.error) {
    out["error"] = *matrix.error;
  }
  if (!matrix.unkept.empty()) {
    out["unkept"] = matrix.unkept;
  }
  return out;
}

Document test_set(const TestDataSet& set, std::size_t number) {
  Document inputs = Document::array();
  for (std::size_t i = 0; i < set.inputs.size(); ++i) {
    const TestInput& input = set.inputs[i];
    const auto dtype = dtype_from_onnx(input.data_type);
    inputs.push_back({{"input", input.name},
                      {"recorded", input.recorded},
                      {"file", test_set_name(number) + "/" + test_input_name(i)},
                      {"dtype", dtype ? torch_name(*dtype) : onnx_type_name(input.data_type)},
                      {"shape", input.dims}});
  }
  return {{"folder", test_set_name(number)}, {"inputs", inputs}, {"unused", set.unused}};
}

Document test_sets(const TestData& data) {
  Document sets = Document::array();
  for (std::size_t i = 0; i < data.sets.size(); ++i) {
    sets.push_back(test_set(data.sets[i], i));
  }
  return sets;
}

Document unused_module(const UnusedModule& module) {
  return {{"name", module.name}, {"keys", module.keys}};
}

Document overlaid(const OverlaidTensor& tensor) {
  return {{"key", tensor.name}, {"checkpoint", tensor.argument + 1}, {"by", tensor.by + 1}};
}

Document dimension(const DimensionGuess& guess) {
  return {{"input", guess.input},
          {"axis", guess.axis},
          {"graph", guess.graph},
          {"seen", guess.seen},
          {"verdict", verdict_name(guess.verdict)}};
}

Document inspected_view(const InspectedView& view) {
  Document out = Document::object();
  if (view.file.empty()) {
    out["computed"] = true;
    if (!view.quantized.empty()) {
      out["quantized"] = view.quantized;
    }
  } else {
    out["file"] = view.file;
    out["offset"] = view.offset;
  }
  if (!view.strides.empty()) {
    out["strides"] = view.strides;
  }
  for (const auto& [name, is_so] : {std::pair("expanded", view.expanded),
                                    {"conj", view.conj},
                                    {"neg", view.neg},
                                    {"deflated", view.deflated},
                                    {"big_endian", view.big_endian}}) {
    if (is_so) {
      out[name] = true;
    }
  }
  return out;
}

Document inspected_tensor(const InspectedTensor& tensor) {
  Document out{{"name", tensor.name},
               {"dtype", tensor.dtype},
               {"shape", tensor.shape},
               {"nbytes", tensor.nbytes}};
  if (tensor.file) {
    out["file"] = *tensor.file;
    out["offset"] = tensor.offset;
  }
  if (tensor.view) {
    out["view"] = inspected_view(*tensor.view);
  }
  if (!tensor.sha256.empty()) {
    out["sha256"] = tensor.sha256;
  }
  if (!tensor.problem.empty()) {
    out["problem"] = tensor.problem;
  }
  if (tensor.scheme) {
    out["scheme"] = scheme_text(*tensor.scheme);
    if (!tensor.key.empty()) {
      out["key"] = tensor.key;
    }
    for (const InspectedTensor& part : tensor.parts) {
      out["parts"].push_back(inspected_tensor(part));
    }
  }
  return out;
}

Document open_slot(const Slot& slot) {
  Document out{{"name", slot.name}, {"kind", slot_kind_name(slot.kind)}};
  if (slot.elem_type != 0) {
    const auto dtype = dtype_from_onnx(slot.elem_type);
    out["dtype"] = dtype ? torch_name(*dtype) : onnx_type_name(slot.elem_type);
  }
  if (slot.shape) {
    Document shape = Document::array();
    for (const auto& dim : *slot.shape) {
      shape.push_back(dim ? Document(*dim) : Document(nullptr));
    }
    out["shape"] = shape;
  }
  return out;
}

void add_notes(const std::vector<std::string>& notes, Document& document) {
  if (!notes.empty()) {
    document["notes"] = notes;
  }
}

template <typename Items, typename ToDocument>
Document list_of(const Items& items, const ToDocument& to_document) {
  Document out = Document::array();
  for (const auto& item : items) {
    out.push_back(to_document(item));
  }
  return out;
}

}  // namespace

std::string_view slot_kind_name(SlotKind kind) {
  switch (kind) {
    case SlotKind::kGraphInput:
      return "graph-input";
    case SlotKind::kUndefinedName:
      return "undefined-name";
    case SlotKind::kInitializer:
      return "initializer";
    case SlotKind::kIdentityOutput:
      return "identity-output";
  }
  return "";
}

namespace {

Document remark(const CountedRemark& counted) {
  return {{"kind", remark_name(counted.remark)},
          {"first", counted.first},
          {"tensors", counted.tensors},
          {"message", remark_message(counted.remark)}};
}

void add_keys(const SaveReport& report, Document& document) {
  document["unmatched_keys"] = report.unmatched_keys();
  document["baked_keys"] = report.keys_with({KeyVerdict::kBaked});
  document["unused_modules"] = list_of(report.unused_modules, unused_module);
  document["ignored_keys"] = report.keys_with({KeyVerdict::kIgnored});
  document["skipped_keys"] = report.skipped_keys();
  document["overlaid"] = list_of(report.overlaid, overlaid);
  document["tied_keys"] = Document::array();
  for (const LeftKey& key : report.keys) {
    if (key.verdict == KeyVerdict::kTied) {
      document["tied_keys"].push_back({{"key", key.name}, {"matched_key", key.tied_to}});
    }
  }
}

void add_slots(const SavedModel& report, Document& document) {
  document["inputs_left"] = report.inputs_left();
  document["initializers_kept"] = report.initializers_kept();
  document["kept_by_option"] = report.kept_by_option;
  for (const SavedMatrix& matrix : report.quantized) {
    document["quantized"].push_back(quantized_matrix(matrix));
  }
  for (const FloatWeight& weight : report.floats) {
    document["floats"].push_back(
        {{"weight", weight.weight}, {"reason", weight.reason}, {"bytes", weight.bytes}});
  }
  document["slots_left"] = report.slots_left();
  document["left_old"] = report.left_old();
}

void add_remarks(const SavedModel& report, Document& document) {
  if (!report.remarks.empty()) {
    document["remarks"] = list_of(report.remarks, remark);
  }
}

void add_tensors(const SavedModel& report, ListTensors tensors, Document& document) {
  if (tensors == ListTensors::kYes) {
    document["tensors"] = list_of(report.tensors, saved_tensor);
  }
}

// One of several models.
Document model_object(const SavedModel& report, ListTensors tensors) {
  Document document{{"model", report.model.string()}, {"manifest", report.manifest}};
  add_tensors(report, tensors, document);
  add_slots(report, document);
  document["alignment"] = report.key_prefix;
  document["complete"] = report.complete;
  document["bytes"] = report.bytes;
  add_remarks(report, document);
  return document;
}

// Adds the members that a report has only when they are not empty.
void add_rest(const SaveReport& report, Document& document) {
  add_notes(report.notes, document);
  if (!report.derived.empty()) {
    document["derived"] = Document::parse(derived_json(report.derived, ""));
  }
  if (report.linked_bytes > 0) {
    document["linked_bytes"] = report.linked_bytes;
  }
  if (report.models.size() == 1) {
    add_remarks(report.models.front(), document);
  }
  if (!report.data_left_for.empty()) {
    document["data_left_for"] = pairs(report.data_left_for, "file", "model");
  }
  if (!report.test_data.sets.empty()) {
    document["test_data"] = test_sets(report.test_data);
    document["dimensions"] = list_of(report.test_data.dimensions, dimension);
  }
}

}  // namespace

std::string save_document(const SaveReport& report, RunMode mode, ListTensors tensors) {
  const SavedModel* const alone = report.models.size() == 1 ? &report.models.front() : nullptr;
  Document document = Document::object();
  if (alone != nullptr) {
    document["model"] = alone->model.string();
    document["manifest"] = alone->manifest;
  } else {
    document["folder"] = report.folder.string();
    document["models"] = list_of(
        report.models, [&](const SavedModel& model) { return model_object(model, tensors); });
  }
  document["dry_run"] = mode == RunMode::kDryRun;
  if (alone != nullptr) {
    add_tensors(*alone, tensors, document);
  }
  add_keys(report, document);
  if (alone != nullptr) {
    add_slots(*alone, document);
  }
  document["complete"] = report.complete;
  document["oversized"] = report.oversized;
  if (alone != nullptr) {
    document["alignment"] = alone->key_prefix;
  }
  document["bytes"] = report.bytes;
  document["seconds"] = report.seconds;
  document["verified"] = report.verified;
  add_rest(report, document);
  return document_text(document);
}

namespace {

Document verify_object(const VerifyReport& report) {
  const auto finding = [](const Finding& f) {
    return Document{{"code", finding_code_name(f.code)},
                    {"tensor", f.tensor},
                    {"file", f.file},
                    {"message", f.message}};
  };
  Document document{{"ok", report.ok()},
                    {"complete", report.complete()},
                    {"findings", list_of(report.findings, finding)},
                    {"tensors", report.tensors},
                    {"inline_tensors", report.inline_tensors},
                    {"inline_uncompared", report.inline_uncompared},
                    {"bytes", report.bytes},
                    {"compared", report.compared},
                    {"compared_by_manifest", report.compared_by_manifest},
                    {"converted", report.converted},
                    {"linked", report.linked},
                    {"linked_without_crc", report.linked_without_crc},
                    {"without_length", report.without_length},
                    {"used_manifest", report.used_manifest}};
  if (report.overflowed > 0) {
    document["overflowed"] = report.overflowed;
  }
  add_notes(report.notes, document);
  if (!report.remarks.empty()) {
    document["remarks"] = list_of(report.remarks, remark);
  }
  return document;
}

}  // namespace

std::string verify_document(std::span<const std::filesystem::path> models,
                            std::span<const VerifyReport> reports) {
  if (reports.size() == 1) {
    return document_text(verify_object(reports.front()));
  }
  Document list = Document::array();
  bool ok = true;
  bool complete = true;
  for (std::size_t i = 0; i < reports.size(); ++i) {
    Document report{{"model", models[i].string()}};
    report.update(verify_object(reports[i]));
    ok = ok && reports[i].ok();
    complete = complete && reports[i].complete();
    list.push_back(std::move(report));
  }
  return document_text({{"ok", ok}, {"complete", complete}, {"models", list}});
}

std::string cut_document(const CutReport& report) {
  return document_text({{"inputs", report.inputs},
                        {"outputs", report.outputs},
                        {"fed_back", report.fed_back},
                        {"untyped", report.untyped},
                        {"nodes", report.nodes},
                        {"initializers", report.initializers},
                        {"functions", report.functions},
                        {"weight_bytes", report.weight_bytes},
                        {"model_bytes", report.model_bytes},
                        {"data_files", report.data_files}});
}

std::string modules_document(const ModuleList& list) {
  const auto counts = [](const ModuleFacts& facts) {
    return Document{
        {"nodes", facts.nodes}, {"parameters", facts.parameters}, {"bytes", facts.bytes}};
  };
  Document document = counts(list.all);
  document["unassigned_nodes"] = list.unassigned;
  document["modules"] = list_of(list.modules, [&](const ModuleFacts& facts) {
    Document module{{"name", facts.name}};
    module.update(counts(facts));
    return module;
  });
  return document_text(document);
}

std::string inspect_document(const Inspection& inspection) {
  Document document{{"format", inspection.format},
                    {"tensors", list_of(inspection.tensors, inspected_tensor)},
                    {"bytes", inspection.bytes},
                    {"files", inspection.files},
                    {"file_bytes", inspection.file_bytes}};
  for (const auto& [key, text] : {std::pair("version", &inspection.version),
                                  {"producer", &inspection.producer},
                                  {"byte_order", &inspection.byte_order}}) {
    if (!text->empty()) {
      document[key] = *text;
    }
  }
  add_notes(inspection.notes, document);
  for (const auto& [key, value] : inspection.metadata) {
    document["metadata"][key] = value;
  }
  if (inspection.refusal) {
    document["refusal"] = inspection.refusal->message;
  }
  if (inspection.pickle_protocol) {
    document["pickle_protocol"] = *inspection.pickle_protocol;
  }
  if (inspection.format == kModelFormat) {
    document["open_slots"] = list_of(inspection.open_slots, open_slot);
    document["node_tensors"] = list_of(inspection.node_tensors, [](const InspectedTensor& tensor) {
      return Document{{"name", tensor.name},
                      {"dtype", tensor.dtype},
                      {"shape", tensor.shape},
                      {"nbytes", tensor.nbytes}};
    });
    return document_text(document);
  }
  document["tied"] = pairs(inspection.tied, "name", "first");
  document["tied_names"] = pairs(inspection.tied_names, "dropped", "kept");
  document["opaque_objects"] = list_of(inspection.opaque_objects, [](const OpaqueObject& object) {
    return Document{{"path", object.path}, {"type", object.type}};
  });
  document["refused_tensors"] =
      list_of(inspection.refused_tensors, [](const RefusedTensor& refused) {
        return Document{{"path", refused.path}, {"reason", refused.reason}};
      });
  return document_text(document);
}

}  // namespace onnx_external
