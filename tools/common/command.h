// Implements the common parts of all commands: parsing the command line, help, version, error
// messages, exit codes and signals.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/command_line.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The exit codes of all commands. The help texts and docs/cli.md document them.
enum ExitCode : int {
  kDone = 0,
  kFailed = 1,  // the data, the disk, the mapping or the verification failed
  kUsage = 2,   // the command line is invalid
};

// A command. The caller adds its options to line().
class Command {
 public:
  // `help` is the complete help text.
  Command(std::string name, std::string help);

  [[nodiscard]] CommandLine& line() { return line_; }

  // Parses the command line. Returns an exit code if the command must end, which is the case after
  // printing help or the version, and after an error.
  [[nodiscard]] std::optional<int> parse(int argc, char** argv);

  // Prints "name: error: message" on stderr, followed by the error's lists and remedies. With
  // --json, also prints a JSON document on stdout. Returns kFailed.
  [[nodiscard]] int fail(const Error& failure) const;
  // Prints only the message on stderr, because the result is already on stdout. Returns kFailed.
  [[nodiscard]] int fail(std::string_view message) const;
  // Reports an invalid command line like fail(), and refers to --help. Returns kUsage.
  [[nodiscard]] int misuse(std::string_view message) const;
  // Prints "name: message" on stderr, for information in addition to the result.
  void note(std::string_view message) const;
  // Writes the result to stdout. Returns kDone, or kFailed if writing fails.
  [[nodiscard]] int answer(std::string_view text) const;

 private:
  [[nodiscard]] Error with_known_options(const Error& error) const;
  [[nodiscard]] std::string file_of(std::string_view message) const;

  std::string name_;
  std::string help_;
  std::vector<std::string> words_;  // arguments of the command line
  bool json_ = false;
  bool verbose_ = false;
  CommandLine line_;
};

// Runs a command. SIGINT, SIGTERM and SIGHUP make interrupted() return true, SIGPIPE and SIGXFSZ
// become errors of the system calls, and unexpected exceptions result in kFailed. If a signal
// arrived, the process ends by this signal after the command has cleaned up, so that the parent
// process can detect the signal.
[[nodiscard]] int run_command(const char* name, const std::function<int()>& command);

// Makes the process end with kFailed after a signal instead of by the signal, because mpirun kills
// all processes if one of them ends by a signal.
void end_by_exit_code();

// Returns true once SIGINT, SIGTERM or SIGHUP has arrived. A second signal ends the process
// immediately.
[[nodiscard]] bool interrupted();

}  // namespace onnx_external
