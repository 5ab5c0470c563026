// inspect-external: lists the tensors of a checkpoint or of an ONNX model.
#include <fmt/format.h>

#include <span>
#include <utility>

#include "base/file.h"
#include "base/remedy.h"
#include "checkpoint/naming/known_classes.h"
#include "common/command.h"
#include "common/difference_report.h"
#include "common/options.h"
#include "common/output.h"
#include "common/progress_bar.h"
#include "common/sandbox.h"
#include "common/text_report.h"
#include "common/treemap_svg.h"
#include "inspect/inspect.h"
#include "inspect/listing.h"
#include "inspect/module_list.h"
#include "reports/documents.h"

namespace onnx_external {
namespace {

std::string help_text() {
  return fmt::format(
      R"(inspect-external lists what is in a checkpoint or an ONNX model; nothing is executed.

usage: inspect-external FILE... [options]
       inspect-external FILE... --diff FILE... [options]
       inspect-external MODEL.onnx --modules [options]

examples:
  inspect-external checkpoint.pt
  inspect-external out/model.onnx --sha256 --json
  inspect-external checkpoint.pt --tree --svg checkpoint.svg
  inspect-external old.pt --diff new.pt --filter '^encoder'

input:
  FILE...                a checkpoint (file, shard index, folder) or an ONNX model, recognized
                         by content; several form one checkpoint
  --diff FILE...         compare with these files by name: what only one side has, other
                         types and shapes, other bytes
{}
output:
  --filter RE            list only names that contain a match (RE2)
  --sort HOW             size: the largest first; name: alphabetically
  --tree                 list modules, indented, with their tensors and bytes
  --modules              list the modules that a model's nodes were made for, with their nodes,
                         parameters and bytes; an initializer counts once in each module
  --svg FILE             draw where the bytes go: a treemap by module, for a browser
  --overwrite            let --svg replace an older picture

work:
  --sha256               read every tensor that is listed and print its SHA-256
  --no-bytes             with --diff: compare names, types and shapes only
{}
common:
{}
exit codes:
  0  done; with --diff: no difference
  1  a file cannot be read, is neither a checkpoint nor a model, or --svg cannot be written;
     with --diff: there are differences
  2  the command line is wrong
)",
      kValueHelp, kThreadsHelp, kCommonHelp);
}

struct Arguments {
  std::vector<std::filesystem::path> files;
  std::vector<std::filesystem::path> others;  // --diff
  NameFilter filter;
  ListOrder order = ListOrder::kGiven;
  bool bytes = true;
  bool sha256 = false;
  bool tree = false;
  bool modules = false;
  std::filesystem::path svg;
  Overwrite overwrite = Overwrite::kRefuse;
  CommonArguments common;
  InspectOptions options;
};

void set_up(CommandLine& line, Arguments& arguments) {
  line.list("FILE", arguments.files);
  line.list("--diff", arguments.others);
  line.flag("--bytes,!--no-bytes", arguments.bytes);
  line.needs("--bytes", "--diff");
  add_name_filter(line, "--filter", arguments.filter);
  add_list_order(line, arguments.order);
  line.flag("--sha256", arguments.sha256);
  line.flag("--tree", arguments.tree);
  line.flag("--modules", arguments.modules);
  line.value("--svg", arguments.svg);
  for (const char* option : {"--sort", "--sha256", "--tree", "--svg"}) {
    line.excludes(option, "--diff");
  }
  for (const char* option : {"--diff", "--filter", "--sort", "--sha256", "--tree", "--svg"}) {
    line.excludes("--modules", option);
  }
  line.flag("--overwrite", [&] { arguments.overwrite = Overwrite::kAllow; });
  line.needs("--overwrite", "--svg");
  arguments.options.open.classes = &known_classes();
  add_value_options(line, arguments.options.open);
  add_threads_option(line, arguments.options.threads);
  add_common_options(line, arguments.common);
}

// Checks before hours of digests, rather than after them, that --svg replaces nothing but a
// picture.
Status check_svg_target(const Arguments& arguments) {
  const std::filesystem::path& target = arguments.svg;
  std::error_code ignored;
  if (target.empty() ||
      !std::filesystem::exists(std::filesystem::symlink_status(target, ignored))) {
    return {};
  }
  if (arguments.overwrite == Overwrite::kRefuse) {
    return fail_with(ErrorCode::kAlreadyExists, target.string() + ": exists",
                     {{"overwrite", "", "replaces it"}});
  }
  std::string start(kSvgStart.size(), '\0');
  const auto file = SourceFile::open(target);
  const bool is_picture = file && (*file)->size() >= start.size() &&
                          (*file)->read(0, std::as_writable_bytes(std::span(start))) &&
                          start == kSvgStart;
  return is_picture ? Status()
                    : fail(ErrorCode::kAlreadyExists,
                           target.string() + ": exists, and is not a picture of inspect-external");
}

Error shown_error(const Error& error) {
  return error.code == ErrorCode::kCancelled ? Error{ErrorCode::kCancelled, "interrupted"} : error;
}

// "checkpoint.pt", or "checkpoint.pt and 2 more".
std::string title_of(const std::vector<std::filesystem::path>& files) {
  const auto& first = files.front();
  const std::string name = (first.has_filename() ? first : first.parent_path()).filename().string();
  return files.size() == 1 ? name : fmt::format("{} and {} more", name, files.size() - 1);
}

// Keeps the folders: the two sides of --diff may differ in nothing else.
std::string side_name(const std::vector<std::filesystem::path>& files) {
  const std::string name = files.front().string();
  return files.size() == 1 ? name : fmt::format("{} and {} more", name, files.size() - 1);
}

Result<Inspection> inspect_files(Arguments& arguments) {
  ProgressBar bar(arguments.common.show_progress());
  arguments.options.progress = bar.callback();
  arguments.options.digests = arguments.sha256 ? Digests::kSha256 : Digests::kNone;
  arguments.options.digest_if = [&](std::size_t, const InspectedTensor& tensor) {
    return arguments.filter(tensor.name);
  };
  auto inspection = inspect(arguments.files, arguments.options);
  if (inspection) {
    keep_matching(*inspection, arguments.filter);
    sort_tensors(*inspection, arguments.order);
  }
  return inspection;
}

Result<Difference> compare_files(Arguments& arguments) {
  ProgressBar bar(arguments.common.show_progress());
  DifferenceOptions options;
  options.inspect = arguments.options;
  options.inspect.progress = bar.callback();
  options.filter = arguments.filter;
  options.bytes = arguments.bytes ? CompareBytes::kYes : CompareBytes::kNo;
  return find_difference(arguments.files, arguments.others, options);
}

int print_difference(const Command& command, Arguments& arguments) {
  const auto difference = compare_files(arguments);
  if (!difference) {
    return command.fail(shown_error(difference.error()));
  }
  const CompareBytes compared = arguments.bytes ? CompareBytes::kYes : CompareBytes::kNo;
  int code = kDone;
  if (arguments.common.json) {
    code = command.answer(difference_document(*difference, compared));
  } else if (!arguments.common.quiet) {
    code = command.answer(difference_text(*difference, side_name(arguments.files),
                                          side_name(arguments.others), compared));
  }
  return code == kDone && !difference->none() ? static_cast<int>(kFailed) : code;
}

int print_modules(const Command& command, const Arguments& arguments) {
  const auto model = Model::load(arguments.files.front());
  const auto modules = model ? count_modules(*model) : fail(model.error());
  if (!modules) {
    return command.fail(modules.error());
  }
  if (arguments.common.json) {
    return command.answer(modules_document(*modules));
  }
  return arguments.common.quiet ? static_cast<int>(kDone) : command.answer(modules_text(*modules));
}

SandboxPaths sandbox_paths(const Arguments& arguments) {
  SandboxPaths paths;
  for (const auto* files : {&arguments.files, &arguments.others}) {
    paths.read_checkpoints(*files);
    for (const std::filesystem::path& file : *files) {
      paths.read_folder_of(file);  // it may be a model with data beside it
    }
  }
  paths.write.push_back(arguments.options.open.scratch_dir);
  paths.write_folder_of(arguments.svg);
  return paths;
}

int run(int argc, char** argv) {
  Command command("inspect-external", help_text());
  Arguments arguments;
  set_up(command.line(), arguments);
  if (auto code = command.parse(argc, argv)) {
    return *code;
  }
  if (arguments.files.empty()) {
    return command.misuse("no FILE is given");
  }
  if (arguments.modules && arguments.files.size() > 1) {
    return command.misuse("--modules is for one MODEL.onnx");
  }
  if (const Status status = check_svg_target(arguments); !status) {
    return command.fail(status.error());
  }
  enter_sandbox(command, arguments.common, sandbox_paths(arguments));
  if (!arguments.others.empty()) {
    return print_difference(command, arguments);
  }
  if (arguments.modules) {
    return print_modules(command, arguments);
  }
  auto inspection = inspect_files(arguments);
  if (!inspection) {
    return command.fail(shown_error(inspection.error()));
  }
  if (!arguments.svg.empty()) {
    const std::string picture = treemap_svg(title_of(arguments.files), *inspection);
    if (const Status status = write_file(arguments.svg, picture, arguments.overwrite); !status) {
      return command.fail(status.error());
    }
  }
  if (arguments.common.verbose) {
    command.note(peak_memory_text());
  }
  if (arguments.common.json) {
    return command.answer(inspect_document(*inspection));
  }
  return arguments.common.quiet
             ? kDone
             : command.answer(
                   inspect_text(*inspection, arguments.tree ? Listing::kTree : Listing::kFlat));
}

}  // namespace
}  // namespace onnx_external

int main(int argc, char** argv) {
  return onnx_external::run_command("inspect-external",
                                    [=] { return onnx_external::run(argc, argv); });
}
