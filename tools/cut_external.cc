// cut-external: writes a piece of a model as a small model that refers to the same data files.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "common/command.h"
#include "common/options.h"
#include "common/sandbox.h"
#include "common/text_report.h"
#include "onnx_external/cut.h"
#include "reports/documents.h"

namespace onnx_external {
namespace {

std::string help_text() {
  return fmt::format(
      R"(cut-external writes a piece of an ONNX model beside it; weights stay where they are.

usage: cut-external MODEL.onnx -o PIECE.onnx --module NAME [--without NAMES] [options]
       cut-external MODEL.onnx -o PIECE.onnx [--inputs NAMES] --outputs NAMES [options]

examples:
  cut-external out/model.onnx -o out/layer3.onnx --module model.layers.3
  cut-external out/model.onnx -o out/tail.onnx --inputs hidden --outputs logits

input:
  MODEL.onnx             the model; its data files are not read
  --module NAME          take the nodes that the exporter made for this module
                         (inspect-external MODEL.onnx --modules lists them)
  --without NAMES        leave out the nodes of these modules in it, separated by commas
                         (repeatable); what they compute becomes inputs. Without --module: of all
  --inputs NAMES         values that the piece takes as inputs, separated by commas (repeatable);
                         by default the inputs of the model
  --outputs NAMES        values that it computes from them, likewise

output:
  -o, --output PIECE.onnx
                         the piece, in the folder of the model
  --overwrite            replace an older piece

work:
  --no-fsync             do not wait until the bytes are on the disk

common:
{}
exit codes:
  0  done
  1  the model cannot be read, or the piece cannot be cut or written; nothing was written
  2  the command line is wrong
)",
      kCommonHelp);
}

struct Arguments {
  std::filesystem::path model;
  std::filesystem::path piece;
  CutOptions options;
  CutFileOptions file;
  CommonArguments common;
};

void set_up(CommandLine& line, Arguments& arguments) {
  line.value("MODEL", arguments.model);
  line.value("-o,--output", arguments.piece);
  line.value("--module", arguments.options.module);
  add_name_list(line, "--without", arguments.options.without);
  add_name_list(line, "--inputs", arguments.options.inputs);
  add_name_list(line, "--outputs", arguments.options.outputs);
  line.excludes("--module", "--inputs");
  line.excludes("--module", "--outputs");
  line.excludes("--without", "--inputs");
  line.excludes("--without", "--outputs");
  line.needs("--inputs", "--outputs");
  line.flag("--overwrite", [&] { arguments.file.overwrite = Overwrite::kAllow; });
  line.flag("--no-fsync", [&] { arguments.file.sync = Sync::kNone; });
  add_common_options(line, arguments.common);
}

std::string what_is_missing(const Arguments& arguments) {
  if (arguments.model.empty()) {
    return "no MODEL.onnx is given";
  }
  if (arguments.piece.empty()) {
    return "no -o PIECE.onnx is given";
  }
  const CutOptions& options = arguments.options;
  const bool selects =
      !options.module.empty() || !options.without.empty() || !options.outputs.empty();
  return selects ? "" : "neither --module nor --outputs is given";
}

int run(int argc, char** argv) {
  Command command("cut-external", help_text());
  Arguments arguments;
  set_up(command.line(), arguments);
  if (auto code = command.parse(argc, argv)) {
    return *code;
  }
  if (const std::string missing = what_is_missing(arguments); !missing.empty()) {
    return command.misuse(missing);
  }
  SandboxPaths paths;
  paths.read_folder_of(arguments.model);
  paths.write_folder_of(arguments.piece);
  enter_sandbox(command, arguments.common, paths);
  const auto report =
      cut_model_file(arguments.model, arguments.piece, arguments.options, arguments.file);
  if (!report) {
    return command.fail(report.error());
  }
  if (arguments.common.verbose) {
    command.note(peak_memory_text());
  }
  if (arguments.common.json) {
    return command.answer(cut_document(*report));
  }
  return arguments.common.quiet
             ? static_cast<int>(kDone)
             : command.answer(cut_text(arguments.piece, *report,
                                       arguments.common.verbose ? Lists::kFull : Lists::kShort));
}

}  // namespace
}  // namespace onnx_external

int main(int argc, char** argv) {
  return onnx_external::run_command("cut-external", [=] { return onnx_external::run(argc, argv); });
}
