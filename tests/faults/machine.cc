// fault_machine EXPERIMENT [--folder DIR] [--commands DIR] [--count N] [--every N] [--seed N]
//               [--control STEP] [--file-system ext4|ext4-writeback|xfs]
//
// Prints one line of JSON. Exit: 0 nothing was wrong, 1 something was, 2 usage, 77 cannot run here.
// With --control a step of the protocol is taken out, and something must be wrong: 0 and 1 change
// places.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "faults/experiment.h"
#include "faults/fault_injection.h"

namespace onnx_external {
namespace {

constexpr int kSkippedExit = 77;  // SKIP_RETURN_CODE of the tests

const std::map<std::string, std::function<Tally(const Settings&)>>& experiments() {
  static const std::map<std::string, std::function<Tally(const Settings&)>> all{
      {"calls", sweep_calls},    {"kills", kill_commands},
      {"resumes", resume_saves}, {"flips", flip_bits},
      {"paths", walk_paths},     {"allocations", fail_allocations},
      {"disks", fill_disks},     {"power-cuts", cut_power_everywhere},
      {"sets", save_sets},       {"teams", save_in_teams}};
  return all;
}

const std::map<std::string, Sabotage>& controls() {
  static const std::map<std::string, Sabotage> all{{"", Sabotage::kNone},
                                                   {"no-sync", Sabotage::kNoSync},
                                                   {"model-first", Sabotage::kModelFirst},
                                                   {"no-cleanup", Sabotage::kNoCleanup},
                                                   {"lie", Sabotage::kNone},
                                                   {"no-check", Sabotage::kNone},
                                                   {"trespass", Sabotage::kNone}};
  return all;
}

// In memory where there is such a place: thousands of saves sync all their files.
std::filesystem::path default_folder() {
  std::error_code ignored;
  const std::filesystem::path memory = "/dev/shm";
  const auto base = std::filesystem::is_directory(memory, ignored)
                        ? memory
                        : std::filesystem::temp_directory_path();
  return base / fmt::format("fault_machine.{}", ::getpid());
}

int run(const std::string& name, const Settings& settings) {
  try {
    std::filesystem::remove_all(settings.folder);
    std::filesystem::create_directories(settings.folder);
    sabotage(controls().at(settings.control));
    const Tally tally = experiments().at(name)(settings);
    sabotage(Sabotage::kNone);
    std::filesystem::remove_all(settings.folder);
    std::puts(tally.json().c_str());
    return (tally.bad() == 0) == settings.control.empty() && tally.runs() > 0 ? 0 : 1;
  } catch (const Skipped& skipped) {
    std::printf("{\"skipped\": \"%s\"}\n", skipped.why.c_str());
    return kSkippedExit;
  }
}

}  // namespace
}  // namespace onnx_external

int main(int argc, char** argv) {
  using namespace onnx_external;
  CLI::App app;
  std::string name;
  Settings settings;
  settings.folder = default_folder();
  app.add_option("EXPERIMENT", name)->required()->check(CLI::IsMember(experiments()));
  app.add_option("--folder", settings.folder);
  app.add_option("--commands", settings.commands);
  app.add_option("--count", settings.count);
  app.add_option("--every", settings.every)->check(CLI::PositiveNumber);
  app.add_option("--seed", settings.seed);
  app.add_option("--control", settings.control)->check(CLI::IsMember(controls()));
  app.add_option("--file-system", settings.file_system)
      ->check(CLI::IsMember({"ext4", "ext4-writeback", "xfs"}));
  CLI11_PARSE(app, argc, argv);
  return run(name, settings);
}
