// Builds the error of a failed mapping, which has complete lists of the faults and the options that
// may help.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/remedy.h"
#include "mapping/task.h"
#include "onnx/graph_facts.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Advice on how to export, with each of torch's exporters, so that every weight keeps its name,
// type and shape from the state dict.
inline constexpr const char* kPlainExport =
    "export the graph without folding: model.eval(); torch.onnx.export(..., dynamo=True, "
    "optimize=False), or with the older exporter (since torch 2.5 it needs dynamo=False) "
    "torch.onnx.export(..., export_params=False, do_constant_folding=False, "
    "training=torch.onnx.TrainingMode.PRESERVE)";

// Advice for a graph that was saved with include_initializers=False, which leaves out constants as
// well as weights.
inline constexpr const char* kKeepConstants =
    "the graph was saved without its constants: save it without include_initializers=False (its "
    "weights are replaced), or write it with oe.torch.skeleton(module, args).save(FILE)";

// Collects the faults of a mapping, with one list for each kind of fault.
class Refusal {
 public:
  // Sets the graph to which later additions apply. "" means all graphs, or the only graph.
  void set_graph(std::string_view name);
  void add_lead(const std::string& sentence);  // added once, in front of the lists
  // Adds "2 weights are missing from the checkpoint: 'a', 'b'" to the message. Does nothing if
  // there are no items.
  void add_list(ErrorKind kind, std::vector<ErrorItem> items);
  void add_sentence(const std::string& sentence);  // added once, at the end of the message
  void add_remedy(Remedy remedy);                  // added once
  // Removes the sentences at the end and the remedies. Used if a lead explains all lists.
  void drop_advice() {
    sentences_.clear();
    details_.remedies.clear();
  }

  [[nodiscard]] bool empty() const { return details_.lists.empty(); }
  [[nodiscard]] Error error(ErrorCode code) &&;

 private:
  std::string graph_;  // "encoder.onnx"
  std::string message_;
  std::vector<std::string> sentences_;
  ErrorDetails details_;
};

// Returns the nodes that use a slot as text, such as "used by MatMul 'node' and 2 more"; "" if no
// node uses it.
[[nodiscard]] std::string use_text(const Slot& slot);

[[nodiscard]] ErrorItem item_of(const Slot& slot, std::string note = "");
[[nodiscard]] ErrorItem item_of(const MappingKey& key, std::string note = "");

}  // namespace onnx_external
