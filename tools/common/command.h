// What every command does alike: parse, help, version, errors, exit codes, signals.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/command_line.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Printed in every help text and documented in docs/cli.md.
enum ExitCode : int {
  kDone = 0,
  kFailed = 1,  // it ran: the data, the disk, the mapping or the verification is wrong
  kUsage = 2,   // the command line is wrong
};

// One command. Its options are added to line().
class Command {
 public:
  // `help` is the whole help text.
  Command(std::string name, std::string help);

  [[nodiscard]] CommandLine& line() { return line_; }

  // Parses the command line. The exit code when the command ends here: help, version or an error.
  [[nodiscard]] std::optional<int> parse(int argc, char** argv);

  // "name: error: message" on stderr, below it what the error lists and the ways out of it; with
  // --json also a document on stdout. kFailed.
  [[nodiscard]] int fail(const Error& failure) const;
  // The message alone, where the answer is on stdout already.
  [[nodiscard]] int fail(std::string_view message) const;
  // As the first for a wrong command line, with where to look; kUsage.
  [[nodiscard]] int misuse(std::string_view message) const;
  // "name: message" on stderr, for what is said beside the answer.
  void note(std::string_view message) const;
  // Writes the answer to stdout; kDone, or kFailed when that fails.
  [[nodiscard]] int answer(std::string_view text) const;

 private:
  [[nodiscard]] Error with_known_options(const Error& error) const;
  [[nodiscard]] std::string file_of(std::string_view message) const;

  std::string name_;
  std::string help_;
  std::vector<std::string> words_;  // of the command line
  bool json_ = false;
  bool verbose_ = false;
  CommandLine line_;
};

// Runs a command: signals become interrupted(), SIGPIPE and SIGXFSZ become errors of the calls,
// exceptions that nothing may throw become kFailed. A signal that came ends the process once the
// command has cleaned up, so that whoever started it knows.
[[nodiscard]] int run_command(const char* name, const std::function<int()>& command);

// From now on a signal ends the process by kFailed: mpirun kills all others when one dies.
void end_by_exit_code();

// True once SIGINT, SIGTERM or SIGHUP arrived. The second such signal ends the process at once.
[[nodiscard]] bool interrupted();

}  // namespace onnx_external
