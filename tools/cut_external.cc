// cut-external: writes a piece of a model as a small model that refers to the same data files.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "common/command.h"
#include "common/options.h"
#include "common/sandbox.h"
#include "common/text_report.h"
#include "onnx_external/cut.h"
#include "onnx_external/verify.h"
#include "reports/documents.h"

namespace onnx_external {
namespace {

std::string help_text() {
  return fmt::format(
      R"(cut-external writes a piece of an ONNX model to the model's folder; weights stay where they are.

usage: cut-external MODEL.onnx -o PIECE.onnx --module NAME [--without NAMES] [options]
       cut-external MODEL.onnx -o PIECE.onnx [--inputs NAMES] --outputs NAMES [options]

examples:
  cut-external out/model.onnx -o out/layer3.onnx --module model.layers.3
  cut-external out/model.onnx -o out/tail.onnx --inputs hidden --outputs logits

{}
exit codes:
  0  done
  1  the model cannot be read, or the piece cannot be cut or written; nothing was written
  2  the command line is wrong
)",
      options_help(kCutExternal));
}

void set_up(CommandLine& line, CommandOptions& options) {
  add_options(line, kCutExternal, options);
  line.excludes("--module", "--inputs");
  line.excludes("--module", "--outputs");
  line.excludes("--without", "--inputs");
  line.excludes("--without", "--outputs");
  line.needs("--inputs", "--outputs");
}

std::string what_is_missing(const CommandOptions& options) {
  if (options.first.empty()) {
    return "no MODEL.onnx is given";
  }
  if (options.target.folder.empty()) {
    return "no -o PIECE.onnx is given";
  }
  const CutOptions& cut = options.cut;
  const bool selects = !cut.module.empty() || !cut.without.empty() || !cut.outputs.empty();
  return selects ? "" : "neither --module nor --outputs is given";
}

int run(int argc, char** argv) {
  Command command("cut-external", help_text());
  CommandOptions options;
  set_up(command.line(), options);
  if (auto code = command.parse(argc, argv)) {
    return *code;
  }
  if (const std::string missing = what_is_missing(options); !missing.empty()) {
    return command.misuse(missing);
  }
  auto model = find_model(options.first);
  if (!model) {
    return command.fail(model.error());
  }
  options.first = *std::move(model);
  const std::filesystem::path& piece = options.target.folder;
  SandboxPaths paths;
  paths.read_folder_of(options.first);
  paths.write_folder_of(piece);
  enter_sandbox(command, options, paths);
  const auto report =
      cut_model_file(options.first, piece, options.cut,
                     {.overwrite = options.save.write.overwrite, .sync = options.save.write.sync});
  if (!report) {
    return command.fail(report.error());
  }
  if (options.verbose) {
    command.note(peak_memory_text());
  }
  if (options.json) {
    return command.answer(cut_document(*report));
  }
  return options.quiet ? static_cast<int>(kDone)
                       : command.answer(cut_text(piece, *report,
                                                 options.verbose ? Lists::kFull : Lists::kShort));
}

}  // namespace
}  // namespace onnx_external

int main(int argc, char** argv) {
  return onnx_external::run_command("cut-external", [=] { return onnx_external::run(argc, argv); });
}
