// Collects the tensors for which learn_map() found no certain key, and turns them into one error.
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
  // `keys` are the candidates.
  void add(ErrorKind doubt, const Slot& slot, std::vector<std::string> keys);
  void add(ErrorKind doubt, const GraphTensor& tensor, std::vector<std::string> keys);
  void add_key(ErrorKind doubt, std::string_view key);

  // Succeeds if there are none. kNotFound if the only problem is missing keys, otherwise
  // kAmbiguous.
  [[nodiscard]] Status status() const;

 private:
  [[nodiscard]] bool are_all(std::initializer_list<ErrorKind> doubts) const;
  // The advice that is always right, besides the remedies.
  [[nodiscard]] const char* right_way() const;
  [[nodiscard]] std::vector<Remedy> remedies() const;

  struct Refusal {
    ErrorKind doubt = ErrorKind::kLearnEqualBytes;
    ErrorItem item;
  };
  std::vector<Refusal> refusals_;
};

}  // namespace onnx_external
