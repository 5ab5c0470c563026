// What learn_map() could not decide, as one error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "evidence/held_tensors.h"
#include "onnx_external/model.h"
#include "onnx_external/result.h"

namespace onnx_external {

enum class Doubt : std::uint8_t {
  kEqualBytes,   // of several keys, and they differ in the new checkpoint
  kCoincidence,  // too simple a value to tell a weight from a constant
  kReshaped,     // the bytes of a key in another shape
  kMerged,       // a small tensor with several users
  kSymmetric,    // a matrix that is its own transpose, and is not in the new checkpoint
  kAttribute,    // in a node, where nothing can replace it
  kComputed,     // may be computed from keys that are nowhere in the graph
  kLikeChanged,  // has the size of a key that changes
  kLacking,      // the new checkpoint lacks the key
  kShared,       // a key that shares a slot with another one
  kOtherModel,   // is nothing of the old checkpoint, nor is anything else that would change
  kTwins,        // its name, or its data, stands for several slots that need different values
};
inline constexpr std::size_t kDoubtCount = 12;

class LearnRefusals {
 public:
  // `keys`: those that come into question.
  void add(Doubt doubt, const Slot& slot, std::vector<std::string> keys);
  void add(Doubt doubt, const HeldTensor& tensor, std::vector<std::string> keys);
  void add_key(Doubt doubt, std::string_view key);

  // Success when there are none; kNotFound when keys are lacking and nothing else is wrong, else
  // kAmbiguous.
  [[nodiscard]] Status status() const;

 private:
  struct Refusal {
    Doubt doubt = Doubt::kEqualBytes;
    ErrorItem item;
  };
  std::vector<Refusal> refusals_;
};

}  // namespace onnx_external
