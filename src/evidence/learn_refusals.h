// Collects the tensors that learn_map() could not decide about, and turns them into one error.
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

enum class Doubt : std::uint8_t {
  kEqualBytes,    // equals several keys, which differ in the new checkpoint
  kCoincidence,   // the value is too simple to distinguish a weight from a constant
  kReshaped,      // the bytes of a key in another shape
  kMerged,        // a small tensor with several users, perhaps merged
  kSymmetric,     // a symmetric matrix that is not symmetric in the new checkpoint
  kAttribute,     // in an attribute of a node, where it cannot be replaced
  kComputed,      // may be computed from keys that the graph does not hold
  kLikeChanged,   // has the same size as a key that changes
  kLacking,       // the new checkpoint lacks the key
  kShared,        // a key that shares a slot with another one
  kOtherModel,    // nothing in the graph that could change is from the old checkpoint
  kSeveralSlots,  // its name or data serves several slots that need different values
  kFolded,        // computed from keys that change, as the exporter says
};
inline constexpr std::size_t kDoubtCount = 13;

class LearnRefusals {
 public:
  // `keys` are the candidates.
  void add(Doubt doubt, const Slot& slot, std::vector<std::string> keys);
  void add(Doubt doubt, const GraphTensor& tensor, std::vector<std::string> keys);
  void add_key(Doubt doubt, std::string_view key);

  // Succeeds if there are none. kNotFound if the only problem is missing keys, otherwise
  // kAmbiguous.
  [[nodiscard]] Status status() const;

 private:
  [[nodiscard]] bool are_all(std::initializer_list<Doubt> doubts) const;
  // The advice that is always right, besides the remedies.
  [[nodiscard]] const char* right_way() const;
  [[nodiscard]] std::vector<Remedy> remedies() const;

  struct Refusal {
    Doubt doubt = Doubt::kEqualBytes;
    ErrorItem item;
  };
  std::vector<Refusal> refusals_;
};

}  // namespace onnx_external
