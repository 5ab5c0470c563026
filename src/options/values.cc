#include "options/values.h"

#include <bit>
#include <charconv>
#include <system_error>

#include "base/size_text.h"
#include "base/try.h"
#include "onnx_external/plan.h"

namespace onnx_external {
namespace {

tl::unexpected<Error> wrong(const std::string& text, const std::string& what) {
  return fail(ErrorCode::kInvalidArgument, "'" + text + "' is " + what);
}

}  // namespace

Result<std::uint64_t> number_in(const std::string& text, std::uint64_t least, std::uint64_t most) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || value < least || value > most) {
    return wrong(
        text, "not a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

Result<std::uint64_t> size_in(const std::string& text, std::uint64_t least, std::uint64_t most) {
  const auto size = split_size(text);
  if (!size) {
    return wrong(text,
                 "not a valid size; give a whole number, optionally followed by k, M, G, kB, MB, "
                 "GB, KiB, MiB or GiB");
  }
  TRY_ASSIGN(const auto digits,
             number_in(std::string(size->digits), least, kMaxSizeOption / size->factor));
  if (digits * size->factor > most) {
    return wrong(text, "more than the maximum of " + std::to_string(most) + " bytes");
  }
  return digits * size->factor;
}

Result<std::uint64_t> alignment_of(const std::string& text) {
  TRY_ASSIGN(const auto bytes, size_in(text, 1, kMaxAlignment));
  if (bytes < kMinAlignment) {
    return wrong(text, "less than the minimum of " + std::to_string(kMinAlignment) + " bytes");
  }
  if (!std::has_single_bit(bytes)) {
    return wrong(text, "not a power of two");
  }
  return bytes;
}

Status not_one_of(const std::string& text, const std::string_view* choices, std::size_t count) {
  std::string list;
  for (std::size_t i = 0; i < count; ++i) {
    list += (i == 0 ? "" : i + 1 == count ? " or " : ", ") + std::string(choices[i]);
  }
  return wrong(text, "not a valid choice; choose " + list);
}

}  // namespace onnx_external
