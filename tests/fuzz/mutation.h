// Provides helpers for structure-aware mutators. libFuzzer calls LLVMFuzzerCustomMutator instead of
// mutating an input itself; LLVMFuzzerMutate mutates bytes as libFuzzer does by default.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace onnx_external {

class Chance {
 public:
  explicit Chance(unsigned seed) : engine_(seed) {}

  // 0 <= result < count. Requires: count > 0.
  std::size_t below(std::size_t count) { return engine_() / 8 % count; }
  bool one_in(std::size_t count) { return below(count) == 0; }
  template <typename Container>
  decltype(auto) pick(Container& from) {
    return from[below(std::size(from))];
  }

  // Returns a number at which computations with sizes, counts and offsets tend to fail.
  std::uint64_t number() {
    constexpr std::array<std::uint64_t, 24> kNumbers = {
        0,          1,          2,          3,          4,          8,
        16,         64,         0x7F,       0x80,       0xFF,       0xFFFF,
        0x10000,    0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF, 0x100000000,
        1ULL << 61, 1ULL << 62, ~0ULL >> 1, 1ULL << 63, ~0ULL - 1,  ~0ULL};
    const std::uint64_t number = pick(kNumbers);
    return one_in(4) ? number + below(5) - 2 : number;
  }

 private:
  std::minstd_rand engine_;
};

// Returns `bytes` with libFuzzer's mutations, at most `room` bytes longer.
inline std::string mutated(std::string bytes, std::size_t room) {
  const std::size_t size = bytes.size();
  bytes.resize(size + room);
  bytes.resize(bytes.empty() ? 0
                             : LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(bytes.data()), size,
                                                bytes.size()));
  return bytes;
}

// Replaces the input by `mutant`. If `mutant` is too long or empty, libFuzzer mutates the input.
inline std::size_t give_back(const std::string& mutant, std::uint8_t* data, std::size_t size,
                             std::size_t max_size) {
  if (mutant.empty() || mutant.size() > max_size) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  std::memcpy(data, mutant.data(), mutant.size());
  return mutant.size();
}

// Implements a LLVMFuzzerCustomMutator: one time in `plain`, libFuzzer's own mutation, otherwise
// the result of mutate(input, chance).
template <typename Mutate>
std::size_t mutate_input(std::uint8_t* data, std::size_t size, std::size_t max_size, unsigned seed,
                         std::size_t plain, const Mutate& mutate) {
  Chance chance(seed);
  if (chance.one_in(plain)) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  return give_back(mutate(input, chance), data, size, max_size);
}

}  // namespace onnx_external
