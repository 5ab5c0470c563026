#include "common/command.h"

#include <fmt/format.h>
#include <google/protobuf/stubs/common.h>
#include <libdeflate.h>
#include <openssl/crypto.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>

#include "base/parallel.h"
#include "common/allocator.h"
#include "common/output.h"
#include "common/text_report.h"
#include "onnx_external/version.h"
#include "reports/error_document.h"

namespace onnx_external {
namespace {

volatile std::sig_atomic_t arrived_signal = 0;
bool ends_by_signal = true;
std::terminate_handler usual_end = nullptr;

void on_signal(int number) {
  arrived_signal = number;
}

// A shell stops a loop only if the signal itself ended the command.
void end_by_signal() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  sigemptyset(&action.sa_mask);
  ::sigaction(arrived_signal, &action, nullptr);
  (void)::raise(arrived_signal);
}

void handle_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  // A second signal ends a command whose cleaning up takes long.
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGHUP, &action, nullptr);
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, nullptr);
  ::sigaction(SIGXFSZ, &action, nullptr);
}

// A checkpoint of many files holds all of them open. The usual soft limit exists for select(2),
// which is not used here.
void raise_descriptor_limit() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
  }
}

std::string version_text(const std::string& name) {
  return fmt::format(
             "{} {}\n{}\n"
             "protobuf {}\nonnx {}\nzlib {}\nlibdeflate {}\n{}\n{}\nfmt {}.{}.{}\n"
             "nlohmann-json {}.{}.{}\n",
             name, ONNX_EXTERNAL_VERSION, thread_runtime(),
             google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION),
             ONNX_PACKAGE_VERSION, zlibVersion(), LIBDEFLATE_VERSION_STRING,
             OpenSSL_version(OPENSSL_VERSION), parser_version(), FMT_VERSION / 10000,
             FMT_VERSION / 100 % 100, FMT_VERSION % 100, NLOHMANN_JSON_VERSION_MAJOR,
             NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH) +
         allocator_text();
}

void report_exception(const char* name) noexcept {
  const Error error = error_in_flight();
  try {
    write_stderr(
        fmt::format("{}: error: {}", name, error_text(error, {.how_to_see_all = kHowToSeeAll})));
  } catch (const std::bad_alloc&) {  // no memory for a formatted text
    for (const char* text : {name, ": error: ", kOutOfMemory, "\n"}) {
      (void)!::write(STDERR_FILENO, text, std::strlen(text));
    }
  }
}

// Some noexcept functions of CLI11 allocate memory. If that fails, std::terminate calls this
// function. There is nothing to clean up, because nothing is written while a command line is read.
void on_terminate() {
  try {
    if (std::current_exception()) {
      throw;
    }
  } catch (const std::bad_alloc&) {
    for (const char* text : {"error: ", kOutOfMemory, "\n"}) {
      (void)!::write(STDERR_FILENO, text, std::strlen(text));
    }
    ::_exit(kFailed);
  } catch (...) {
    usual_end();
  }
  usual_end();
}

}  // namespace

Command::Command(std::string name, std::string help)
    : name_(std::move(name)), help_(std::move(help)), line_(name_) {}

std::optional<int> Command::parse(int argc, char** argv) {
  words_.assign(argv, argv + argc);
  // Even if another part of the command line is wrong.
  json_ = std::find(words_.begin(), words_.end(), "--json") != words_.end();
  const CommandLine::Parsed parsed = line_.parse(argc, argv);
  switch (parsed.outcome) {
    case CommandLine::Outcome::kHelp:
      return answer(help_);
    case CommandLine::Outcome::kVersion:
      return answer(version_text(name_));
    case CommandLine::Outcome::kWrong:
      return misuse(parsed.wrong);
    case CommandLine::Outcome::kParsed:
      verbose_ = line_.count("--verbose") > 0;
  }
  return std::nullopt;
}

// Drops remedies of the library whose option this command does not have.
Error Command::with_known_options(const Error& error) const {
  if (!error.details) {
    return error;
  }
  auto details = std::make_shared<ErrorDetails>(*error.details);
  std::erase_if(details->remedies, [&](const Remedy& remedy) {
    return !line_.has("--" + std::string(option_name(remedy.option)));
  });
  return {error.code, error.message, std::move(details)};
}

int Command::fail(const Error& failure) const {
  const Error error = with_known_options(failure);
  write_stderr(fmt::format("{}: error: {}", name_,
                           error_text(error, {.max_items = verbose_ ? kAllItems : kShownItems,
                                              .how_to_see_all = kHowToSeeAll})));
  if (json_) {
    (void)write_stdout(error_document(error_code_name(error.code), error.message,
                                      file_of(error.message), error.details.get()));
  }
  return kFailed;
}

// The file that a message begins with, if it is about one. The file may no longer exist.
std::string Command::file_of(std::string_view message) const {
  constexpr int kMostColons = 4;  // names may hold ": " themselves
  std::size_t end = 0;
  for (int i = 0; i < kMostColons; ++i) {
    end = message.find(": ", end + 1);
    if (end == std::string_view::npos) {
      return "";
    }
    std::string name(message.substr(0, end));
    std::error_code ignored;
    if (std::find(words_.begin(), words_.end(), name) != words_.end() ||
        std::filesystem::exists(std::filesystem::symlink_status(name, ignored))) {
      return name;
    }
  }
  return "";
}

int Command::fail(std::string_view message) const {
  write_stderr(fmt::format("{}: error: {}\n", name_, message));
  return kFailed;
}

int Command::misuse(std::string_view message) const {
  if (json_) {
    (void)write_stdout(error_document("usage", message, "", nullptr));
  }
  write_stderr(fmt::format("{}: error: {}; see {} --help\n", name_, message, name_));
  return kUsage;
}

void Command::note(std::string_view message) const {
  write_stderr(fmt::format("{}: {}\n", name_, message));
}

int Command::answer(std::string_view text) const {
  Status status = write_stdout(text);
  return status ? static_cast<int>(kDone) : fail(std::string_view(status.error().message));
}

int run_command(const char* name, const std::function<int()>& command) {
  throw_bad_alloc_from_now_on();
  usual_end = std::set_terminate(on_terminate);
  handle_signals();
  raise_descriptor_limit();
  int code = kFailed;
  try {
    code = command();
  } catch (...) {
    report_exception(name);
  }
  if (interrupted() && ends_by_signal) {
    end_by_signal();
  }
  return code;
}

void end_by_exit_code() {
  ends_by_signal = false;
}

bool interrupted() {
  return arrived_signal != 0;
}

}  // namespace onnx_external
