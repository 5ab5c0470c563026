#include "common/command_line.h"

#include <CLI/CLI.hpp>
#include <cctype>
#include <cstdint>

namespace onnx_external {
namespace {

// Our messages start in lower case; names of options do not change.
std::string lower_first(std::string text) {
  if (text.size() > 1 && std::islower(static_cast<unsigned char>(text[1])) != 0) {
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  }
  return text;
}

// "--output: 1 required TEXT missing" becomes "--output: a value is missing".
std::string mismatch_text(const std::string& text) {
  return text.starts_with("--") && text.ends_with("missing")
             ? text.substr(0, text.find(':')) + ": a value is missing"
             : lower_first(text);
}

// "--a excludes --b" becomes "--a cannot be combined with --b".
std::string excluded_text(std::string text) {
  constexpr std::string_view kExcludes = " excludes ";
  const std::size_t at = text.find(kExcludes);
  return at == std::string::npos ? text
                                 : text.replace(at, kExcludes.size(), " cannot be combined with ");
}

using Texts = std::vector<std::string>;

std::function<void(const Texts&)> for_each(const CommandLine::TakeText& take) {
  return [take](const Texts& texts) {
    for (const std::string& text : texts) {
      take(text);
    }
  };
}

}  // namespace

CommandLine::CommandLine(const std::string& command) : app_(std::make_unique<CLI::App>()) {
  app_->name(command);
  app_->set_help_flag("-h,--help");
  app_->set_version_flag("--version", "");
}

CommandLine::~CommandLine() = default;

void CommandLine::flag(const std::string& name, const std::function<void()>& on_given) {
  const bool turns_off = name.find('!') != std::string::npos;
  app_->add_flag_function(name, [on_given, turns_off](std::int64_t count) {
    if (turns_off ? count < 0 : count > 0) {  // "--no-fsync" counts -1
      on_given();
    }
  });
}

void CommandLine::value(const std::string& name, const TakeText& take) {
  app_->add_option_function<std::string>(name, take);
}

void CommandLine::repeatable(const std::string& name, const TakeText& take) {
  // Otherwise it would also take the arguments after its value.
  app_->add_option_function<Texts>(name, for_each(take))->allow_extra_args(false);
}

void CommandLine::list(const std::string& name, const TakeText& take) {
  app_->add_option_function<Texts>(name, for_each(take));
}

void CommandLine::excludes(const std::string& name, const std::string& other) {
  app_->get_option(name)->excludes(app_->get_option(other));
}

void CommandLine::needs(const std::string& name, const std::string& other) {
  app_->get_option(name)->needs(app_->get_option(other));
}

std::vector<std::string> CommandLine::options() const {
  std::vector<std::string> names;
  const CLI::App& app = *app_;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->nonpositional() && name != "--help" && name != "--version") {
      names.push_back(name);
    }
  }
  return names;
}

bool CommandLine::has(const std::string& name) const {
  return app_->get_option_no_throw(name) != nullptr;
}

std::size_t CommandLine::count(const std::string& name) const {
  return app_->count(name);
}

CommandLine::Parsed CommandLine::parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
    return {Outcome::kParsed, ""};
  } catch (const CLI::CallForHelp&) {
    return {Outcome::kHelp, ""};
  } catch (const CLI::CallForVersion&) {
    return {Outcome::kVersion, ""};
  } catch (const CLI::ArgumentMismatch& error) {
    return {Outcome::kWrong, mismatch_text(error.what())};
  } catch (const CLI::ExcludesError& error) {
    return {Outcome::kWrong, excluded_text(error.what())};
  } catch (const CLI::ParseError& error) {
    return {Outcome::kWrong, lower_first(error.what())};
  }
}

void refuse(const std::string& option, const std::string& why) {
  throw CLI::ValidationError(option, why);
}

std::string parser_version() {
  return "CLI11 " CLI11_VERSION;
}

}  // namespace onnx_external
