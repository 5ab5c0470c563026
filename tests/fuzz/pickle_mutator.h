// Mutates pickles opcode by opcode. Most mutants are still valid pickles with another meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/mutation.h"

namespace onnx_external {

// Makes one to four changes.
std::string mutate_pickle(std::string_view bytes, Chance& chance);

// Implement a LLVMFuzzerCustomMutator for inputs that are a pickle, or three pieces (pieces.h), one
// of which is mutated as a pickle.
std::size_t mutate_pickle_input(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                unsigned seed);
std::size_t mutate_pieces_input(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                unsigned seed);

}  // namespace onnx_external
