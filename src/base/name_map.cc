#include "base/name_map.h"

#include <sys/random.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstring>

namespace onnx_external {
namespace {

using Key = std::array<std::uint64_t, 2>;

// Returns a random word other than 0. Without random bytes (an old kernel that has just started),
// the address is used instead.
std::uint64_t draw_word(const void* address) noexcept {
  std::uint64_t word = 0;
  if (::getrandom(&word, sizeof(word), GRND_NONBLOCK) != static_cast<ssize_t>(sizeof(word))) {
    word = reinterpret_cast<std::uintptr_t>(address);
  }
  return word == 0 ? 1 : word;
}

// A random word that the first caller draws once for the process. The guard of a static variable
// would do the same, but a child that is forked while another thread holds the guard would wait
// forever.
std::uint64_t drawn_once(std::atomic<std::uint64_t>& word, const void* address) noexcept {
  std::uint64_t known = word.load(std::memory_order_relaxed);
  if (known == 0) {
    const std::uint64_t drawn = draw_word(address);
    known = word.compare_exchange_strong(known, drawn, std::memory_order_relaxed) ? drawn : known;
  }
  return known;
}

Key key_of_process() noexcept {
  static std::atomic<std::uint64_t> first{0};
  static std::atomic<std::uint64_t> second{0};
  const Key on_stack{};  // its address differs from that of what is linked
  return {drawn_once(first, &on_stack), drawn_once(second, &second)};
}

struct State {
  std::uint64_t v0, v1, v2, v3;

  explicit State(const Key& key)
      : v0(key[0] ^ 0x736f6d6570736575),
        v1(key[1] ^ 0x646f72616e646f6d),
        v2(key[0] ^ 0x6c7967656e657261),
        v3(key[1] ^ 0x7465646279746573) {}

  void round() {
    v0 += v1, v1 = std::rotl(v1, 13) ^ v0, v0 = std::rotl(v0, 32);
    v2 += v3, v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3, v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1, v1 = std::rotl(v1, 17) ^ v2, v2 = std::rotl(v2, 32);
  }

  void add(std::uint64_t word) {
    v3 ^= word;
    round();
    v0 ^= word;
  }

  std::uint64_t finish() {
    v2 ^= 0xff;
    round();
    round();
    round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

}  // namespace

std::size_t NameHash::operator()(std::string_view name) const noexcept {
  State state(key_of_process());
  const char* bytes = name.data();
  std::size_t left = name.size();
  std::uint64_t word = 0;
  for (; left >= sizeof(word); left -= sizeof(word), bytes += sizeof(word)) {
    std::memcpy(&word, bytes, sizeof(word));
    state.add(word);
  }
  word = 0;
  if (left > 0) {
    std::memcpy(&word, bytes, left);
  }
  state.add(word | std::uint64_t{name.size()} << 56);
  return state.finish();
}

NameIndexSet::NameIndexSet(const NameAt& name_at, std::size_t expected_names)
    : indexes_(0, Hash{name_at}, Equal{name_at}) {
  indexes_.max_load_factor(kNameTableLoad);
  indexes_.reserve(expected_names);
}

}  // namespace onnx_external
