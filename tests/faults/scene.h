// What the fault tests play with: checkpoints of the same form and other bytes, saved over each
// other in every layout, and what must be true of the folder afterwards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "faults/fault_injection.h"
#include "onnx_external/result.h"
#include "onnx_external/save_external.h"

namespace onnx_external {

// Relative path -> size and CRC-32; folders have a mark.
using Snapshot = std::map<std::string, std::string>;
[[nodiscard]] Snapshot snapshot(const std::filesystem::path& folder);
// How many files there are; folders that are empty count, too.
[[nodiscard]] std::size_t files_of(const Snapshot& entries);

// Where the tensors of a save come from.
enum class Input : std::uint8_t {
  kCheckpoint,
  kBeside,    // a checkpoint in the output folder, of plain ranges alone: Layout::kLink
  kCast,      // a checkpoint whose floats are converted to the graph's float16
  kRecorded,  // a checkpoint, and recorded inputs for test data
  kGiven,     // no checkpoint: a graph that holds its weights
  kMemory,    // no file: tensors in memory, and one whose bytes are made when they are written
};

// The same save in one of several forms.
struct Form {
  std::string name = {};  // "single, no fsync"
  Layout layout = Layout::kPerTensor;
  Sync sync = Sync::kFiles;
  Verification verification = Verification::kOff;
  Input input = Input::kCheckpoint;
  bool rename_flags = true;  // false: renames of the file system have none
};
// The forms whose experiments take long: one of each layout and input, without verification.
[[nodiscard]] std::vector<Form> main_forms();
// These, these verified, and those of a checkpoint without syncs and on file systems without flags
// of renames. Beside them saves from memory, which no command can make.
[[nodiscard]] std::vector<Form> all_forms();

// One thread, so that calls come in the same order in each run and forked children can save.
struct SceneSave {
  std::filesystem::path out;
  std::uint32_t seed = 1;  // tells one checkpoint from another
  Form form = {};
  Overwrite overwrite = Overwrite::kAllow;
  int threads = 1;
  const Team* team = nullptr;
};

// A fault for the time of one save.
struct Injection {
  Fault fault = Fault::kNone;
  std::size_t nth = 0;
  int error_number = 0;
};

class Scene {
 public:
  // Makes graph and checkpoints in `folder`.
  explicit Scene(std::filesystem::path folder);

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  // What a save in that form reads.
  [[nodiscard]] std::filesystem::path graph(const Form& form = {}, std::uint32_t seed = 1) const;
  [[nodiscard]] std::filesystem::path checkpoint(std::uint32_t seed) const;
  [[nodiscard]] std::vector<std::filesystem::path> checkpoints(const SceneSave& request) const;
  [[nodiscard]] std::filesystem::path recording() const { return folder_ / "inputs.pt"; }

  // Puts into an output folder what must be there before any save: checkpoints for links.
  void prepare(const SceneSave& request) const;

  // The whole job, as the command does it. `calls`: how many calls were counted.
  [[nodiscard]] Result<SaveReport> save(const SceneSave& request, Injection injection = {},
                                        std::size_t* calls = nullptr) const;

  // The same for models that use some of the keys each, under the names that they are given:
  // several become a set. Keys that no model uses are left out.
  using KeysOfModel = std::function<std::vector<std::string>(const std::string& model)>;
  [[nodiscard]] Status save_set(const SceneSave& request, const std::vector<std::string>& models,
                                const KeysOfModel& keys_of, Injection injection = {},
                                std::size_t* calls = nullptr) const;

 private:
  [[nodiscard]] SaveOptions options_for(const SceneSave& request) const;

  std::filesystem::path folder_;
};

inline constexpr std::uint32_t kSeeds = 3;  // checkpoints 1, 2 and 3

// Empty when the model in `out` is whole: verify_model finds nothing, with a manifest.
[[nodiscard]] std::string fault_of_model(const std::filesystem::path& out);

// The child's exit status, or -N for signal N. `work` runs in a forked child.
template <typename Work>
[[nodiscard]] int in_child(const Work& work);

}  // namespace onnx_external

#include <sys/wait.h>
#include <unistd.h>

template <typename Work>
int onnx_external::in_child(const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(work());
  }
  int state = 0;
  if (child < 0 || ::waitpid(child, &state, 0) != child) {
    return -1;
  }
  return WIFSIGNALED(state) ? -WTERMSIG(state) : WEXITSTATUS(state);
}
