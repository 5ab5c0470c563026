// Stands in for libFuzzer where there is no clang: fuzz_<name> [-runs=N] [-seed=N] PATH... reads
// the given files, or those in the given folders, then N pseudo-random mutants of them. The same
// arguments give the same mutants. Nothing is measured and nothing kept: it looks for crashes.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/mutation.h"
#include "support/temp_dir.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" __attribute__((weak)) std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data,
                                                                     std::size_t size,
                                                                     std::size_t max_size,
                                                                     unsigned seed);

namespace {

using namespace onnx_external;

constexpr std::size_t kRoom = 256;  // that an input may grow by

Chance& byte_chance() {
  static Chance chance(1);
  return chance;
}

void run(const std::string& input) {
  (void)LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
}

std::string mutant_of(std::string bytes, unsigned seed) {
  const std::size_t size = bytes.size();
  bytes.resize(size + kRoom);
  auto* const data = reinterpret_cast<std::uint8_t*>(bytes.data());
  bytes.resize(LLVMFuzzerCustomMutator != nullptr
                   ? LLVMFuzzerCustomMutator(data, size, bytes.size(), seed)
                   : LLVMFuzzerMutate(data, size, bytes.size()));
  return bytes;
}

std::vector<std::string> read_inputs(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::filesystem::path> files;
  for (const auto& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> inputs(files.size());
  std::transform(files.begin(), files.end(), inputs.begin(), read_text);
  return inputs;
}

}  // namespace

// One change of a byte, or of a run of bytes.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size,
                                        std::size_t max_size) {
  Chance& chance = byte_chance();
  std::string bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t at = chance.below(size + 1);
  const std::size_t run = std::min(chance.below(9), size - at);
  std::string number = std::to_string(chance.number());
  switch (chance.below(6)) {
    case 0:
      bytes.erase(at, run);
      break;
    case 1:
      bytes.insert(at, bytes.substr(chance.below(size + 1), run));
      break;
    case 2:
      bytes.insert(at, 1, static_cast<char>(chance.below(256)));
      break;
    case 3:
      bytes.replace(at, run, number);
      break;
    case 4:
      bytes.replace(at, run, run, static_cast<char>(chance.number()));
      break;
    default:
      if (at < size) {
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << chance.below(8)));
      }
  }
  bytes.resize(std::min(bytes.size(), max_size));
  std::copy(bytes.begin(), bytes.end(), data);
  return bytes.size();
}

int main(int argc, char** argv) {
  std::size_t runs = 0;
  unsigned seed = 1;
  std::vector<std::filesystem::path> paths;
  for (const std::string_view argument : std::vector<std::string_view>(argv + 1, argv + argc)) {
    if (argument.starts_with("-runs=")) {
      runs = std::strtoul(argument.data() + 6, nullptr, 10);
    } else if (argument.starts_with("-seed=")) {
      seed = static_cast<unsigned>(std::strtoul(argument.data() + 6, nullptr, 10));
    } else if (!argument.starts_with('-')) {
      paths.emplace_back(argument);
    }
  }
  const std::vector<std::string> inputs = read_inputs(paths);
  if (inputs.empty()) {
    std::fputs("usage: fuzz_<name> [-runs=N] [-seed=N] PATH...\n", stderr);
    return 2;
  }
  std::for_each(inputs.begin(), inputs.end(), run);
  Chance chance(seed);
  byte_chance() = chance;
  for (std::size_t i = 0; i < runs; ++i) {
    std::string input = inputs[i % inputs.size()];
    for (std::size_t left = 1 + chance.below(3); left > 0; --left) {
      input = mutant_of(std::move(input), static_cast<unsigned>(chance.below(1U << 31U)));
    }
    run(input);
  }
  std::printf("%zu inputs, %zu mutants\n", inputs.size(), runs);
  return 0;
}
