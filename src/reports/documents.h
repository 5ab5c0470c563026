// Formats the JSON documents that the commands print with --json. docs/cli.md documents every key.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "inspect/inspect.h"
#include "inspect/module_list.h"
#include "onnx/graph_facts.h"
#include "onnx_external/cut.h"
#include "onnx_external/save_external.h"
#include "onnx_external/verify.h"

namespace onnx_external {

// Decides whether a document lists the saved tensors. There may be a hundred thousand of them.
enum class ListTensors { kYes, kNo };

// Formats a save. For a single model, all members are on one level. Several models are a list next
// to the members that they share.
[[nodiscard]] std::string save_document(const SaveReport& report, RunMode mode,
                                        ListTensors tensors = ListTensors::kYes);
// Formats one report for each model.
[[nodiscard]] std::string verify_document(std::span<const std::filesystem::path> models,
                                          std::span<const VerifyReport> reports);
[[nodiscard]] std::string cut_document(const CutReport& report);
[[nodiscard]] std::string inspect_document(const Inspection& inspection);
[[nodiscard]] std::string modules_document(const ModuleList& list);

// Returns "graph-input", "undefined-name", "initializer" or "identity-output".
[[nodiscard]] std::string_view slot_kind_name(SlotKind kind);

}  // namespace onnx_external
