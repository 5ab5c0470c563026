// Any bytes as a pickle: parsed, walked and named.
#include <cstddef>
#include <cstdint>
#include <string>

#include "checkpoint/naming/torch_names.h"
#include "checkpoint/pickle/pickle.h"
#include "checkpoint/torch/tensor_declaration.h"
#include "fuzz/pickle_mutator.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onnx_external;
  const auto pickle = Pickle::parse(std::string(reinterpret_cast<const char*>(data), size));
  if (!pickle) {
    return 0;
  }
  ClassFlattening classes;
  classes.register_cache_classes();
  for (const auto& named :
       {name_everything(*pickle), name_everything(*pickle, &classes), name_state_dict(*pickle, ""),
        name_state_dict(*pickle, "", &classes), name_state_dict(*pickle, "."),
        name_state_dict(*pickle, "a.b"), name_recorded_inputs(*pickle, &classes)}) {
    if (!named) {
      continue;
    }
    for (const NamedTensor& tensor : named->tensors) {
      (void)declared_tensor(*pickle, tensor.node).has_value();
    }
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  return onnx_external::mutate_pickle_input(data, size, max_size, seed);
}
