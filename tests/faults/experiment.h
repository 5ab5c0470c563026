// Declares the experiments of the fault machine. Each runs many saves under one kind of fault and
// counts the outcomes. The tests run a part of each experiment, and campaign.py runs all of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace onnx_external {

struct Settings {
  std::filesystem::path folder;      // for all output; created and emptied
  std::filesystem::path commands;    // the folder with save-external
  std::size_t count = 0;             // number of runs of random experiments
  std::size_t every = 1;             // step width of experiments that try all places
  std::string control;               // a protocol step to leave out, or empty
  std::string file_system = "ext4";  // for power cuts
  std::uint32_t seed = 1;
};

// Counts the outcomes of an experiment.
class Tally {
 public:
  void run() { ++runs_; }
  void count(const std::string& what) { ++counts_[what]; }
  void bad(std::string what) {
    ++bad_;
    if (examples_.size() < kMostExamples) {
      examples_.push_back(std::move(what));
    }
  }
  // Counts a run. The run is bad unless `what`, the fault that was found, is empty.
  void check(const std::string& where, const std::string& what) {
    if (!what.empty()) {
      bad(where + ": " + what);
    }
  }
  [[nodiscard]] std::size_t runs() const { return runs_; }
  [[nodiscard]] std::size_t bad() const { return bad_; }
  // Returns one line of JSON: {"runs": 12, "bad": 0, "counts": {...}, "examples": [...]}.
  [[nodiscard]] std::string json() const;

 private:
  static constexpr std::size_t kMostExamples = 5;
  std::size_t runs_ = 0;
  std::size_t bad_ = 0;
  std::map<std::string, std::size_t> counts_;
  std::vector<std::string> examples_;
};

// The reason for which an experiment cannot run here. The caller reports it as skipped.
struct Skipped {
  std::string why;
};

// Lets each system call of a save fail, be interrupted, or kill the process.
[[nodiscard]] Tally sweep_calls(const Settings& settings);
// Does the same for several models that share data. Each model stays complete, and the next save
// finishes the set.
[[nodiscard]] Tally save_sets(const Settings& settings);
// Kills a process of a team at each call, or lets the call fail.
[[nodiscard]] Tally save_in_teams(const Settings& settings);
// Kills save-external at random times, then runs it again.
[[nodiscard]] Tally kill_commands(const Settings& settings);
// Kills a save, damages what it left in some runs, and resumes it. The files must be the same.
[[nodiscard]] Tally resume_saves(const Settings& settings);
// Flips one bit of a saved model, which verification must find.
[[nodiscard]] Tally flip_bits(const Settings& settings);
// Uses names and files that lead to other places wherever a name is read. None may be followed.
[[nodiscard]] Tally walk_paths(const Settings& settings);
// Lets each allocation of a save fail.
[[nodiscard]] Tally fail_allocations(const Settings& settings);
// Saves to disks of all sizes, with few inodes or descriptors, or limits on file sizes. Throws
// Skipped.
[[nodiscard]] Tally fill_disks(const Settings& settings);
// Stops the file system at each call, and after the end. Throws Skipped.
[[nodiscard]] Tally cut_power_everywhere(const Settings& settings);

}  // namespace onnx_external
