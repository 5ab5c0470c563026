// Mutates pickles opcode by opcode: most mutants are read to their end, and mean something else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/mutation.h"

namespace onnx_external {

// One to four changes.
std::string mutate_pickle(std::string_view bytes, Chance& chance);

// Body of a LLVMFuzzerCustomMutator for inputs that are a pickle.
std::size_t mutate_pickle_input(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                unsigned seed);

}  // namespace onnx_external
