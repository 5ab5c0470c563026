// verify-external: reads a written model back and lists what is wrong with it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/try.h"
#include "common/command.h"
#include "common/graph_arguments.h"
#include "common/options.h"
#include "common/progress_bar.h"
#include "common/sandbox.h"
#include "common/text_report.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/verify.h"
#include "reports/documents.h"
#include "reports/page.h"

namespace onnx_external {
namespace {

std::string help_text() {
  return fmt::format(
      R"(verify-external reads back the external data of an ONNX model and lists all faults.

usage: verify-external MODEL.onnx [--against CHECKPOINT...] [options]

examples:
  verify-external out/model.onnx
  verify-external out/model.onnx --against checkpoint.pt
  verify-external out/model.onnx -q --html findings.html

Entries, paths, file types, lengths and dims are always checked. If save-external wrote a manifest,
the CRC-32 of every tensor and of the model is checked as well.

{}
exit codes:
  0  no findings
  1  there are findings, the model or the checkpoint cannot be read, or --html cannot be written
  2  the command line is wrong
)",
      options_help(kVerifyExternal));
}

struct Arguments {
  CommandOptions options;
  std::vector<std::filesystem::path> models;  // that MODEL means
  VerifyOptions verify;
};

void set_up(CommandLine& line, CommandOptions& options) {
  add_options(line, kVerifyExternal, options);
  line.needs("--overwrite", "--html");
  for (const OptionRow& row : option_rows()) {
    const bool about_checkpoints =
        row.group == OptionGroup::kInput || row.group == OptionGroup::kMapping;
    const std::string name = "--" + std::string(row.name);
    if ((row.commands & kVerifyExternal) != 0 && about_checkpoints && !row.is_positional() &&
        name != "--against") {
      line.needs(name, "--against");
    }
  }
}

// A model with broken entries cannot be mapped. The list of all that is wrong with it says more
// than the first error of the mapping.
Result<VerifyReport> verify_unmapped(const std::filesystem::path& model,
                                     const VerifyOptions& options, Error error) {
  auto report = verify_model(model, options);
  if (report && report->ok()) {
    return fail(std::move(error));
  }
  if (report) {
    report->findings.push_back(
        {FindingCode::kNotInCheckpoint, "", "", "nothing was compared: " + error.message});
  }
  return report;
}

Result<VerifyReport> verify_against(const std::filesystem::path& model,
                                    const Arguments& arguments) {
  const CommandOptions& options = arguments.options;
  TRY_ASSIGN(const auto mapping, mapping_options(options));
  OpenOptions open = options.save.open;
  open.threads = arguments.verify.threads;
  TRY_ASSIGN(auto checkpoint, open_checkpoint(options.others, open));
  if (auto added = add_derived_tensors_of(model, mapping, checkpoint, open.max_expand); !added) {
    return verify_unmapped(model, arguments.verify, std::move(added).error());
  }
  auto expected = expected_tensors(model, checkpoint, mapping);
  if (!expected) {
    return verify_unmapped(model, arguments.verify, std::move(expected).error());
  }
  return verify_model_against(model, checkpoint, *expected, arguments.verify);
}

// One report for each model. Without a checkpoint, bytes that the models share are read once.
Result<std::vector<VerifyReport>> verify(Arguments& arguments) {
  ProgressBar bar(show_progress(arguments.options));
  arguments.verify.progress = bar.callback();
  std::vector<VerifyReport> reports;
  if (arguments.options.others.empty()) {
    std::vector<ModelToVerify> models;
    for (const std::filesystem::path& model : arguments.models) {
      models.push_back({model});
    }
    return verify_models(models, nullptr, arguments.verify);
  }
  for (const std::filesystem::path& model : arguments.models) {
    TRY_ASSIGN(auto report, verify_against(model, arguments));
    reports.push_back(std::move(report));
  }
  return reports;
}

std::string answer_text(const Arguments& arguments, const std::vector<VerifyReport>& reports) {
  if (arguments.options.json) {
    return verify_document(arguments.models, reports);
  }
  std::string text;
  for (std::size_t i = 0; i < reports.size() && !arguments.options.quiet; ++i) {
    text +=
        verify_text(arguments.models[i], reports[i],
                    arguments.options.others.empty() ? Compared::kNothing : Compared::kCheckpoint,
                    arguments.options.verbose ? Names::kAll : Names::kFirst);
  }
  return text;
}

SandboxPaths sandbox_paths(const Arguments& arguments) {
  const CommandOptions& options = arguments.options;
  SandboxPaths paths;
  paths.read_folder_of(arguments.models.front());
  paths.read_checkpoints(options.others);
  paths.read.push_back(options.map_file);
  paths.write.push_back(options.save.open.scratch_dir);
  paths.write_folder_of(options.page);
  return paths;
}

// --against takes every path after it, so in `--against CHECKPOINT MODEL` it has both.
void take_model_back(CommandOptions& options) {
  auto& paths = options.others;
  const auto model = std::find_if(paths.begin(), paths.end(), is_graph);
  if (options.first.empty() && model != paths.end()) {
    options.first = std::move(*model);
    paths.erase(model);
  }
}

// Says why the command line names no model; empty if it names one.
std::string_view no_model_text(const CommandOptions& options) {
  if (!options.first.empty()) {
    return {};
  }
  return options.others.empty()
             ? "no MODEL.onnx is given"
             : "no MODEL.onnx is given, because --against takes all paths after it; pass the model "
               "first: verify-external MODEL.onnx --against CHECKPOINT";
}

// The model, or the folder of several.
std::filesystem::path subject_of(const Arguments& arguments) {
  const std::filesystem::path& first = arguments.models.front();
  return arguments.models.size() == 1 ? first : first.parent_path();
}

Status write_page_of(const Arguments& arguments, const std::vector<VerifyReport>& reports) {
  const CommandOptions& options = arguments.options;
  if (options.page.empty()) {
    return {};
  }
  const std::string page = verify_page(
      subject_of(arguments).string(), verify_document(arguments.models, reports), arguments.models);
  return write_page(options.page, page, options.save.write.overwrite);
}

// Prints the reports; findings are a failure.
int answer(const Command& command, const Arguments& arguments,
           const std::vector<VerifyReport>& reports, std::chrono::duration<double> time) {
  std::uint64_t bytes = 0;
  std::size_t findings = 0;
  for (const VerifyReport& report : reports) {
    bytes += report.bytes;
    findings += report.findings.size();
  }
  if (arguments.options.verbose) {
    command.note(fmt::format("{}, {}", speed_text(bytes, time.count()), peak_memory_text()));
  }
  if (const Status status = write_page_of(arguments, reports); !status) {
    return command.fail(status.error());
  }
  const int answered = command.answer(answer_text(arguments, reports));
  if (answered != kDone || findings == 0) {
    return answered;
  }
  return command.fail(fmt::format("{}: {} finding{}", subject_of(arguments).string(), findings,
                                  findings == 1 ? "" : "s"));
}

int run(int argc, char** argv) {
  Command command("verify-external", help_text());
  Arguments arguments;
  CommandOptions& options = arguments.options;
  set_up(command.line(), options);
  if (auto code = command.parse(argc, argv)) {
    return *code;
  }
  take_model_back(options);
  if (const std::string_view text = no_model_text(options); !text.empty()) {
    return command.misuse(text);
  }
  auto models = find_models(options.first);
  if (!models) {
    return command.fail(models.error());
  }
  arguments.models = *std::move(models);
  if (const Status status = check_page(options.page, options.save.write.overwrite); !status) {
    return command.fail(status.error());
  }
  arguments.verify.threads = options.save.write.threads;
  enter_sandbox(command, options, sandbox_paths(arguments));
  const auto start = std::chrono::steady_clock::now();
  const auto reports = verify(arguments);
  if (!reports) {
    return command.fail(reports.error().code == ErrorCode::kCancelled
                            ? Error{ErrorCode::kCancelled, "interrupted"}
                            : reports.error());
  }
  return answer(command, arguments, *reports, std::chrono::steady_clock::now() - start);
}

}  // namespace
}  // namespace onnx_external

int main(int argc, char** argv) {
  return onnx_external::run_command("verify-external",
                                    [=] { return onnx_external::run(argc, argv); });
}
