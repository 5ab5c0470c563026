// Experiments of the fault machine: each runs many saves under one kind of fault and counts what it
// saw. Used by the tests (a slice of each) and by campaign.py (all of it).
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
  std::filesystem::path folder;      // for everything that is written; made and emptied
  std::filesystem::path commands;    // where save-external is
  std::size_t count = 0;             // how often, where chance decides
  std::size_t every = 1;             // each so manieth place, where all places are gone through
  std::string control;               // a protocol step that is taken out; empty: none
  std::string file_system = "ext4";  // of power cuts
  std::uint32_t seed = 1;
};

// What an experiment saw.
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
  // Nothing is wrong when `what` is empty.
  void check(const std::string& where, const std::string& what) {
    if (!what.empty()) {
      bad(where + ": " + what);
    }
  }
  [[nodiscard]] std::size_t runs() const { return runs_; }
  [[nodiscard]] std::size_t bad() const { return bad_; }
  // One line of JSON: {"runs": 12, "bad": 0, "counts": {...}, "examples": [...]}.
  [[nodiscard]] std::string json() const;

 private:
  static constexpr std::size_t kMostExamples = 5;
  std::size_t runs_ = 0;
  std::size_t bad_ = 0;
  std::map<std::string, std::size_t> counts_;
  std::vector<std::string> examples_;
};

// Why an experiment cannot run here, for the caller to report as skipped.
struct Skipped {
  std::string why;
};

// Every call of a save fails, is interrupted, or is where the process dies.
[[nodiscard]] Tally sweep_calls(const Settings& settings);
// The same for several models over one store: each stays complete, the next save finishes the set.
[[nodiscard]] Tally save_sets(const Settings& settings);
// A process of a team is killed at every call, or the call fails.
[[nodiscard]] Tally save_in_teams(const Settings& settings);
// save-external is killed at any time, then run again.
[[nodiscard]] Tally kill_commands(const Settings& settings);
// A save is killed, what it left is perhaps damaged, then it is resumed: the files are the same.
[[nodiscard]] Tally resume_saves(const Settings& settings);
// One bit of a saved model changes: verification finds it.
[[nodiscard]] Tally flip_bits(const Settings& settings);
// Names and files that lead elsewhere, wherever a name is read: nobody follows them.
[[nodiscard]] Tally walk_paths(const Settings& settings);
// Every allocation of a save fails.
[[nodiscard]] Tally fail_allocations(const Settings& settings);
// Disks of all sizes, few inodes, few descriptors, limits on file sizes. Throws Skipped.
[[nodiscard]] Tally fill_disks(const Settings& settings);
// The file system stops at every call, and after the end. Throws Skipped.
[[nodiscard]] Tally cut_power_everywhere(const Settings& settings);

}  // namespace onnx_external
