// Mutates zip files field by field and record by record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/mutation.h"

namespace onnx_external {

// Changes fields or records. If records change, sizes, CRCs and offsets are mostly corrected.
std::string mutate_zip(std::string_view bytes, Chance& chance);

// Implements a LLVMFuzzerCustomMutator for zip files.
std::size_t mutate_zip_input(std::uint8_t* data, std::size_t size, std::size_t max_size,
                             unsigned seed);

}  // namespace onnx_external
