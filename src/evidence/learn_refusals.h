// Collects the tensors of a graph for which learn_map() could not determine a key (a tensor of the
// old checkpoint), and creates one error that lists all of them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "evidence/graph_tensors.h"
#include "onnx/graph_facts.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

class LearnRefusals {
 public:
  // `keys` are the keys that may belong to the slot or tensor.
  void add(ErrorKind doubt, const Slot& slot, std::vector<std::string> keys);
  void add(ErrorKind doubt, const GraphTensor& tensor, std::vector<std::string> keys);
  void add_key(ErrorKind doubt, std::string_view key);

  // Succeeds if nothing was added. Fails with kNotFound if the only problem is missing keys,
  // otherwise with kAmbiguous.
  [[nodiscard]] Status status() const;

 private:
  [[nodiscard]] bool are_all(std::initializer_list<ErrorKind> doubts) const;
  // Returns the advice that is added to the message in addition to the remedies.
  [[nodiscard]] const char* right_way() const;
  [[nodiscard]] std::vector<Remedy> remedies() const;

  struct Refusal {
    ErrorKind doubt = ErrorKind::kLearnEqualBytes;
    ErrorItem item;
  };
  std::vector<Refusal> refusals_;
};

}  // namespace onnx_external
