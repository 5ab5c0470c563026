// The frame of every command: parsing, help, version, errors, exit codes, signals.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/command_line.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Part of every help text and of docs/cli.md.
enum ExitCode : int {
  kDone = 0,
  kFailed = 1,  // the data, the disk, the mapping or the verification failed
  kUsage = 2,   // the command line is wrong
};

// One command. Its options are added to line().
class Command {
 public:
  // `help` is the whole help text.
  Command(std::string name, std::string help);

  [[nodiscard]] CommandLine& line() { return line_; }

  // Parses the command line. Returns the exit code if the command ends here: after help, version or
  // an error.
  [[nodiscard]] std::optional<int> parse(int argc, char** argv);

  // Prints "name: error: message" on stderr, followed by the error's lists and remedies; with
  // --json also a document on stdout. Returns kFailed.
  [[nodiscard]] int fail(const Error& failure) const;
  // Prints only the message, because the answer is already on stdout. Returns kFailed.
  [[nodiscard]] int fail(std::string_view message) const;
  // Reports a wrong command line as fail() does, and refers to --help. Returns kUsage.
  [[nodiscard]] int misuse(std::string_view message) const;
  // Prints "name: message" on stderr, for information beside the answer.
  void note(std::string_view message) const;
  // Writes the answer to stdout. Returns kDone, or kFailed if that fails.
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

// Runs a command. SIGINT, SIGTERM and SIGHUP set interrupted(), SIGPIPE and SIGXFSZ become errors
// of the calls, and unexpected exceptions become kFailed. After a signal, and once the command has
// cleaned up, the process ends by that signal, so that its parent sees it.
[[nodiscard]] int run_command(const char* name, const std::function<int()>& command);

// From now on the process ends with kFailed after a signal, because mpirun kills all processes if
// one dies by a signal.
void end_by_exit_code();

// True once SIGINT, SIGTERM or SIGHUP has arrived. A second signal ends the process at once.
[[nodiscard]] bool interrupted();

}  // namespace onnx_external
