// Parses a command line, with a small interface to CLI11. Because CLI11's header takes ten seconds
// to compile, only command_line.cc includes it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace onnx_external {

// The options of a command. The name of an option contains all its spellings: "-q,--quiet". A
// spelling that turns a flag off is marked with "!": "--fsync,!--no-fsync". Names without a dash
// are positional arguments.
class CommandLine {
 public:
  // A function that receives the value of an option, and calls refuse() if the value is invalid.
  using TakeText = std::function<void(const std::string&)>;

  explicit CommandLine(const std::string& command);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Adds a flag. `on_given` is called if the flag is on the command line and no later spelling
  // turns it off.
  void flag(const std::string& name, const std::function<void()>& on_given);
  // Adds an option with one value, which may be given once.
  void value(const std::string& name, const TakeText& take);
  // Adds an option with one value, which may be given several times.
  void repeatable(const std::string& name, const TakeText& take);
  // Adds an option that takes all arguments up to the next option.
  void list(const std::string& name, const TakeText& take);

  // Restrict the use of the option `name`. After excludes(), it must not be given together with
  // `other`; after needs(), it must be given together with `other`.
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
    std::string wrong;  // the error in the command line
  };
  [[nodiscard]] Parsed parse(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> app_;
};

// Stops parsing because the value of `option` is invalid. To be called only in TakeText functions.
[[noreturn]] void refuse(const std::string& option, const std::string& why);

// Returns name and version of the parser: "CLI11 2.1.2".
[[nodiscard]] std::string parser_version();

}  // namespace onnx_external
