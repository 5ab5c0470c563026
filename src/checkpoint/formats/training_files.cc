#include "checkpoint/formats/training_files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>

#include "base/text.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;
using namespace std::string_view_literals;

constexpr std::size_t kShownParts = 2;

// The states that Trainer, accelerate, DeepSpeed and FSDP write; '#' matches digits.
constexpr std::array kStates = {"optimizer.pt"sv,
                                "optimizer.pth"sv,
                                "optimizer.bin"sv,
                                "optimizer_#.bin"sv,
                                "scheduler.pt"sv,
                                "scheduler.bin"sv,
                                "scheduler_#.bin"sv,
                                "lr_scheduler.pt"sv,
                                "rng_state.pth"sv,
                                "rng_state_#.pth"sv,
                                "random_states_#.pkl"sv,
                                "scaler.pt"sv,
                                "sampler.bin"sv,
                                "sampler_#.bin"sv,
                                "dl_state_dict.bin"sv,
                                "training_args.bin"sv,
                                "recipe_state.pt"sv,
                                "trainer_state.pt"sv,
                                "optim_world_size_#_rank_#.pt"sv,
                                "extra_state_world_size_#_rank_#.pt"sv};
constexpr std::string_view kDeepSpeedStates = "_optim_states.pt";

// The texts that precede the number of a rank in the names of parts and of their folders.
constexpr std::array kRankWords = {"rank"sv, "rank_"sv, "rank-"sv,   "consolidated."sv, "tp"sv,
                                   "tp_"sv,  "mp_"sv,   "-model_"sv, "part_"sv,         "part-"sv};

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

// The name with one '#' for each run of digits.
std::string without_numbers(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (!is_digit(c)) {
      text += c;
    } else if (!text.ends_with('#')) {
      text += '#';
    }
  }
  return text;
}

// The digits of the rank in a path's last two components; empty if it states none.
std::string_view rank_in(std::string_view text) {
  for (const std::string_view word : kRankWords) {
    for (std::size_t at = text.find(word); at != std::string_view::npos;
         at = text.find(word, at + 1)) {
      const std::string_view rest = text.substr(at + word.size());
      const auto end = std::find_if_not(rest.begin(), rest.end(), is_digit);
      const bool starts = at == 0 || std::isalnum(static_cast<unsigned char>(text[at - 1])) == 0 ||
                          word.front() == '-';
      if (starts && end != rest.begin()) {
        return rest.substr(0, static_cast<std::size_t>(end - rest.begin()));
      }
    }
  }
  return {};
}

// Ranks are counted from 0.
bool is_first_rank(const fs::path& path) {
  const std::string name = path.parent_path().filename().string() + "/" + path.filename().string();
  const std::string_view rank = rank_in(name);
  return !rank.empty() && rank.find_first_not_of('0') == std::string_view::npos;
}

}  // namespace

bool is_training_state(std::string_view name) {
  return name.ends_with(kDeepSpeedStates) ||
         std::find(kStates.begin(), kStates.end(), without_numbers(name)) != kStates.end();
}

std::string rank_parts(std::span<const fs::path> paths) {
  std::map<std::string, std::vector<std::string>> groups;
  std::set<std::string> counted;  // the groups with a first rank
  for (const fs::path& path : paths) {
    const std::string pattern = without_numbers(path.string());
    groups[pattern].push_back(path.string());
    if (is_first_rank(path)) {
      counted.insert(pattern);
    }
  }
  for (const auto& [pattern, names] : groups) {
    if (names.size() < 2 || !counted.contains(pattern)) {
      continue;
    }
    const bool is_zero = pattern.find("zero_pp_rank_") != std::string::npos;
    return quote_list(names, kShownParts) + " are parts of one checkpoint, one for each rank; " +
           (is_zero
                ? "DeepSpeed (ZeRO) wrote them: join them first with its script zero_to_fp32.py, "
                  "in the parent folder of global_step...: python zero_to_fp32.py . OUTPUT"
                : "join the parts first, with the library that wrote them");
  }
  return "";
}

}  // namespace onnx_external
