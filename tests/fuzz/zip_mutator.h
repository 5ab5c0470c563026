// Mutates zip files field by field and record by record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/mutation.h"

namespace onnx_external {

// Changes of fields, or of records: then sizes, CRCs and offsets are mostly right again.
std::string mutate_zip(std::string_view bytes, Chance& chance);

// Body of a LLVMFuzzerCustomMutator for inputs that are a zip file.
std::size_t mutate_zip_input(std::uint8_t* data, std::size_t size, std::size_t max_size,
                             unsigned seed);

}  // namespace onnx_external
