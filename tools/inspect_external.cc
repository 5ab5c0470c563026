// inspect-external: lists the tensors of a checkpoint or of an ONNX model.
#include <fmt/format.h>

#include <utility>

#include "common/command.h"
#include "common/documents.h"
#include "common/options.h"
#include "common/progress_bar.h"
#include "common/text_report.h"
#include "verify/inspect.h"

namespace onnx_external {
namespace {

std::string help_text() {
  return fmt::format(
      R"(inspect-external lists what is in a checkpoint or an ONNX model; nothing is executed.

usage: inspect-external FILE... [options]

examples:
  inspect-external checkpoint.pt
  inspect-external out/model.onnx --sha256 --json

input:
  FILE...                a checkpoint (file, shard index, folder) or an ONNX model, told by
                         content; several are one checkpoint
{}
work:
  --sha256               read every tensor and print its SHA-256
{}
common:
{}
exit codes:
  0  done
  1  a file cannot be read, or is neither a checkpoint nor a model
  2  the command line is wrong
)",
      kValueHelp, kThreadsHelp, kCommonHelp);
}

struct Arguments {
  std::vector<std::filesystem::path> files;
  bool sha256 = false;
  CommonArguments common;
  InspectOptions options;
};

void set_up(CLI::App& app, Arguments& arguments) {
  app.add_option("FILE", arguments.files);
  app.add_flag("--sha256", arguments.sha256);
  arguments.options.open.classes = &known_classes();
  add_value_options(app, arguments.options.open);
  add_threads_option(app, arguments.options.threads);
  add_common_options(app, arguments.common);
}

Result<Inspection> inspect_files(Arguments& arguments) {
  ProgressBar bar(arguments.common.show_progress());
  arguments.options.progress = bar.callback();
  arguments.options.digests = arguments.sha256 ? Digests::kSha256 : Digests::kNone;
  return inspect(arguments.files, arguments.options);
}

int run(int argc, char** argv) {
  Command command("inspect-external", help_text());
  Arguments arguments;
  set_up(command.app(), arguments);
  if (auto code = command.parse(argc, argv)) {
    return *code;
  }
  if (arguments.files.empty()) {
    return command.misuse("no FILE is given");
  }
  auto inspection = inspect_files(arguments);
  if (!inspection) {
    return command.fail(inspection.error().code == ErrorCode::kCancelled
                            ? "interrupted"
                            : inspection.error().message);
  }
  if (arguments.common.verbose) {
    command.note(peak_memory_text());
  }
  if (arguments.common.json) {
    return command.answer(inspect_document(*inspection));
  }
  return arguments.common.quiet ? kDone : command.answer(inspect_text(*inspection));
}

}  // namespace
}  // namespace onnx_external

int main(int argc, char** argv) {
  return onnx_external::run_command("inspect-external",
                                    [=] { return onnx_external::run(argc, argv); });
}
