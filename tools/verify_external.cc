// verify-external: reads a written model back and lists what is wrong with it.
#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "base/try.h"
#include "common/command.h"
#include "common/options.h"
#include "common/progress_bar.h"
#include "common/sandbox.h"
#include "common/text_report.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/verify.h"
#include "reports/documents.h"

namespace onnx_external {
namespace {

std::string help_text() {
  return fmt::format(
      R"(verify-external reads an ONNX model's external data back and lists what is wrong with it.

usage: verify-external MODEL.onnx [--against CHECKPOINT...] [options]

examples:
  verify-external out/model.onnx
  verify-external out/model.onnx --against checkpoint.pt

Entries, paths, kinds of files, lengths and dims are always checked. If there is a manifest
of save-external, so is the CRC-32 of every tensor and of the model.

input:
  MODEL.onnx             the model, with its data beside it; a folder means the model in it, or
                         all of them if they were saved together
  --against CHECKPOINT...
                         compare every byte with these files, indexes or folders; keys are
                         matched again, and where that is open the manifest decides
{}{}
mapping (docs/mapping.md has the rules):
{}
work:
{}
common:
{}
exit codes:
  0  no findings
  1  there are findings, or the model or the checkpoint cannot be read
  2  the command line is wrong
)",
      kKeyHelp, kValueHelp, kMappingHelp, kThreadsHelp, kCommonHelp);
}

struct Arguments {
  std::filesystem::path model;
  std::vector<std::filesystem::path> models;  // that MODEL means
  std::vector<std::filesystem::path> checkpoints;
  OpenOptions open;
  MappingArguments mapping;
  CommonArguments common;
  VerifyOptions options;
};

void set_up(CommandLine& line, Arguments& arguments) {
  line.value("MODEL", arguments.model);
  add_checkpoint_options(line, arguments.open);
  add_mapping_options(line, arguments.mapping);
  const std::vector<std::string> about_checkpoints = line.options();
  line.list("--against", arguments.checkpoints);
  for (const std::string& option : about_checkpoints) {
    line.needs(option, "--against");
  }
  add_threads_option(line, arguments.options.threads);
  add_common_options(line, arguments.common);
}

// A model with broken entries cannot be mapped. The list of all that is wrong with it says more
// than the first error of the mapping.
Result<VerifyReport> verify_unmapped(const Arguments& arguments, Error error) {
  auto report = verify_model(arguments.model, arguments.options);
  if (report && report->ok()) {
    return fail(std::move(error));
  }
  if (report) {
    report->findings.push_back(
        {FindingCode::kNotInCheckpoint, "", "", "nothing was compared: " + error.message});
  }
  return report;
}

Result<VerifyReport> verify_against(const Arguments& arguments) {
  TRY_ASSIGN(const auto mapping, mapping_options(arguments.mapping));
  OpenOptions open = arguments.open;
  open.threads = arguments.options.threads;
  TRY_ASSIGN(auto checkpoint, open_checkpoint(arguments.checkpoints, open));
  if (auto added = add_derived_tensors_of(arguments.model, mapping, checkpoint, open.max_expand);
      !added) {
    return verify_unmapped(arguments, std::move(added).error());
  }
  auto expected = expected_tensors(arguments.model, checkpoint, mapping);
  if (!expected) {
    return verify_unmapped(arguments, std::move(expected).error());
  }
  return verify_model_against(arguments.model, checkpoint, *expected, arguments.options);
}

// One report for each model. Without a checkpoint, bytes that the models share are read once.
Result<std::vector<VerifyReport>> verify(Arguments& arguments) {
  ProgressBar bar(arguments.common.show_progress());
  arguments.options.progress = bar.callback();
  std::vector<VerifyReport> reports;
  if (arguments.checkpoints.empty()) {
    std::vector<ModelToVerify> models;
    for (const std::filesystem::path& model : arguments.models) {
      models.push_back({model});
    }
    return verify_models(models, nullptr, arguments.options);
  }
  for (const std::filesystem::path& model : arguments.models) {
    arguments.model = model;
    TRY_ASSIGN(auto report, verify_against(arguments));
    reports.push_back(std::move(report));
  }
  return reports;
}

std::string answer_text(const Arguments& arguments, const std::vector<VerifyReport>& reports) {
  if (arguments.common.json) {
    return verify_document(arguments.models, reports);
  }
  std::string text;
  for (std::size_t i = 0; i < reports.size() && !arguments.common.quiet; ++i) {
    text += verify_text(arguments.models[i], reports[i],
                        arguments.checkpoints.empty() ? Compared::kNothing : Compared::kCheckpoint,
                        arguments.common.verbose ? Names::kAll : Names::kFirst);
  }
  return text;
}

SandboxPaths sandbox_paths(const Arguments& arguments) {
  SandboxPaths paths;
  paths.read_folder_of(arguments.model);
  paths.read_checkpoints(arguments.checkpoints);
  paths.read.push_back(arguments.mapping.map_file);
  paths.write.push_back(arguments.open.scratch_dir);
  return paths;
}

int run(int argc, char** argv) {
  Command command("verify-external", help_text());
  Arguments arguments;
  set_up(command.line(), arguments);
  if (auto code = command.parse(argc, argv)) {
    return *code;
  }
  if (arguments.model.empty()) {
    return command.misuse("no MODEL.onnx is given");
  }
  auto models = find_models(arguments.model);
  if (!models) {
    return command.fail(models.error());
  }
  arguments.models = *std::move(models);
  arguments.model = arguments.models.front();
  enter_sandbox(command, arguments.common, sandbox_paths(arguments));
  const auto start = std::chrono::steady_clock::now();
  const auto reports = verify(arguments);
  if (!reports) {
    return command.fail(reports.error().code == ErrorCode::kCancelled
                            ? Error{ErrorCode::kCancelled, "interrupted"}
                            : reports.error());
  }
  std::uint64_t bytes = 0;
  std::size_t findings = 0;
  for (const VerifyReport& report : *reports) {
    bytes += report.bytes;
    findings += report.findings.size();
  }
  if (arguments.common.verbose) {
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    command.note(fmt::format("{}, {}", speed_text(bytes, time.count()), peak_memory_text()));
  }
  const int answered = command.answer(answer_text(arguments, *reports));
  if (answered != kDone || findings == 0) {
    return answered;
  }
  const std::filesystem::path& verified = arguments.models.size() == 1
                                              ? arguments.models.front()
                                              : arguments.models.front().parent_path();
  return command.fail(
      fmt::format("{}: {} finding{}", verified.string(), findings, findings == 1 ? "" : "s"));
}

}  // namespace
}  // namespace onnx_external

int main(int argc, char** argv) {
  return onnx_external::run_command("verify-external",
                                    [=] { return onnx_external::run(argc, argv); });
}
