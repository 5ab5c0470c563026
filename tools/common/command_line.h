// Parses a command line: a small interface to CLI11. Because CLI11's header takes ten seconds to
// compile, only command_line.cc includes it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace onnx_external {

// A name contains all spellings of an option: "-q,--quiet". A "!" marks a spelling that turns a
// flag off: "--fsync,!--no-fsync". Names without a dash are positional arguments.
class CommandLine {
 public:
  // Receives the value of an option; calls refuse() if the value is invalid.
  using TakeText = std::function<void(const std::string&)>;

  explicit CommandLine(const std::string& command);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // `on_given` is called if the flag is on the command line and no later flag turns it off.
  void flag(const std::string& name, const std::function<void()>& on_given);
  // Adds an option with one value, which may be given once.
  void value(const std::string& name, const TakeText& take);
  // Adds an option with one value, which may be given several times.
  void repeatable(const std::string& name, const TakeText& take);
  // Adds an option that takes all arguments up to the next option.
  void list(const std::string& name, const TakeText& take);

  // `name` must not be given together with `other` (excludes), or only together with it (needs).
  void excludes(const std::string& name, const std::string& other);
  void needs(const std::string& name, const std::string& other);

  // Returns all options added so far, except positional ones, --help and --version.
  [[nodiscard]] std::vector<std::string> options() const;
  [[nodiscard]] bool has(const std::string& name) const;
  // Returns how often an option was given.
  [[nodiscard]] std::size_t count(const std::string& name) const;

  enum class Outcome { kParsed, kHelp, kVersion, kWrong };
  struct Parsed {
    Outcome outcome;
    std::string wrong;  // what is wrong with the command line
  };
  [[nodiscard]] Parsed parse(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> app_;
};

// Stops parsing because the value of `option` is invalid. For TakeText functions.
[[noreturn]] void refuse(const std::string& option, const std::string& why);

// Returns "CLI11 2.1.2".
[[nodiscard]] std::string parser_version();

}  // namespace onnx_external
