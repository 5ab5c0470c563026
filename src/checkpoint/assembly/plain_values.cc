#include "checkpoint/assembly/plain_values.h"

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/bad_input.h"
#include "base/try.h"
#include "checkpoint/torch/torch_symbols.h"

namespace onnx_external {
namespace {

constexpr std::size_t kMostText = 4096;

Numbers int64_numbers(const std::vector<std::int64_t>& values) {
  Numbers numbers{.dtype = DType::kInt64, .bytes = std::string(values.size() * 8, '\0')};
  std::memcpy(numbers.bytes.data(), values.data(), numbers.bytes.size());
  return numbers;
}

}  // namespace

Result<PlainValue> plain_value(const Pickle& pickle, NodeId id) {
  if (const auto flag = pickle.boolean(id)) {
    return PlainValue{{}, {.dtype = DType::kUInt8, .bytes = std::string(1, *flag ? '\1' : '\0')}};
  }
  if (const auto number = pickle.integer(id)) {
    return PlainValue{{}, int64_numbers({*number})};
  }
  if (const auto text = pickle.string(id)) {
    if (text->size() > kMostText) {
      return unsupported("it is a string of " + std::to_string(text->size()) + " bytes");
    }
    return PlainValue{{static_cast<std::int64_t>(text->size())},
                      {.dtype = DType::kUInt8, .bytes = std::string(*text)}};
  }
  TRY_ASSIGN(const auto values, read_integers(pickle, id, "value"));
  return PlainValue{{static_cast<std::int64_t>(values.size())}, int64_numbers(values)};
}

}  // namespace onnx_external
