// Provides checkpoints of the same shapes but different bytes for the fault tests, saves that
// replace each other in every layout, and checks of the output folder.
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

// Size and CRC-32 by relative path; folders have a mark instead.
using Snapshot = std::map<std::string, std::string>;
[[nodiscard]] Snapshot snapshot(const std::filesystem::path& folder);
// Returns the number of files. Empty folders also count.
[[nodiscard]] std::size_t files_of(const Snapshot& entries);

// The source of the tensors of a save.
enum class Input : std::uint8_t {
  kCheckpoint,
  kBeside,    // a checkpoint of plain ranges in the output folder, for Layout::kLink
  kCast,      // a checkpoint whose floats are converted to the graph's float16
  kRecorded,  // a checkpoint and recorded inputs for test data
  kGiven,     // a graph that contains its weights, without a checkpoint
  kMemory,    // tensors in memory, one of which is produced on demand
};

// One of several forms of a save.
struct Form {
  std::string name = {};  // "single, no fsync"
  Layout layout = Layout::kPerTensor;
  Sync sync = Sync::kFiles;
  Verification verification = Verification::kOff;
  Input input = Input::kCheckpoint;
  bool rename_flags = true;  // false if the file system has no flags for renames
};
// Returns the forms for long experiments: one per layout and input, without verification.
[[nodiscard]] std::vector<Form> main_forms();
// Returns these forms with and without verification, those of a checkpoint without syncs or without
// flags for renames, and saves from memory, for which there is no command.
[[nodiscard]] std::vector<Form> all_forms();

// A save on one thread, so that system calls have the same order in each run, and forked children
// can save.
struct SceneSave {
  std::filesystem::path out;
  std::uint32_t seed = 1;  // distinguishes the checkpoints
  Form form = {};
  Overwrite overwrite = Overwrite::kAllow;
  int threads = 1;
  const Team* team = nullptr;
};

// A fault that applies to one save.
struct Injection {
  Fault fault = Fault::kNone;
  std::size_t nth = 0;
  int error_number = 0;
};

class Scene {
 public:
  // Creates graph and checkpoints in `folder`.
  explicit Scene(std::filesystem::path folder);

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  // Return the files that a save in this form reads.
  [[nodiscard]] std::filesystem::path graph(const Form& form = {}, std::uint32_t seed = 1) const;
  [[nodiscard]] std::filesystem::path checkpoint(std::uint32_t seed) const;
  [[nodiscard]] std::vector<std::filesystem::path> checkpoints(const SceneSave& request) const;
  [[nodiscard]] std::filesystem::path recording() const { return folder_ / "inputs.pt"; }

  // Puts the files that must precede a save into the output folder: checkpoints for links.
  void prepare(const SceneSave& request) const;

  // Runs the complete save like the command. Sets `calls` to the number of counted calls.
  [[nodiscard]] Result<SaveReport> save(const SceneSave& request, Injection injection = {},
                                        std::size_t* calls = nullptr) const;

  // Does the same for models that each use some of the keys, under the given names. Several models
  // become a set. Keys that no model uses are left out.
  using KeysOfModel = std::function<std::vector<std::string>(const std::string& model)>;
  [[nodiscard]] Status save_set(const SceneSave& request, const std::vector<std::string>& models,
                                const KeysOfModel& keys_of, Injection injection = {},
                                std::size_t* calls = nullptr) const;

 private:
  [[nodiscard]] SaveOptions options_for(const SceneSave& request) const;

  std::filesystem::path folder_;
};

inline constexpr std::uint32_t kSeeds = 3;  // checkpoints 1, 2 and 3

// Returns "" if the model in `out` is complete: it has a manifest, and verify_model() finds
// nothing.
[[nodiscard]] std::string fault_of_model(const std::filesystem::path& out);

// Runs `work` in a forked child. Returns the child's exit status, or -N for signal N.
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
