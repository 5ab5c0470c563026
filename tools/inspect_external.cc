// inspect-external: lists the tensors of a checkpoint or of an ONNX model.
#include <fmt/format.h>

#include <span>
#include <utility>

#include "checkpoint/naming/known_classes.h"
#include "common/command.h"
#include "common/difference_report.h"
#include "common/options.h"
#include "common/output.h"
#include "common/progress_bar.h"
#include "common/sandbox.h"
#include "common/text_report.h"
#include "inspect/inspect.h"
#include "inspect/listing.h"
#include "inspect/module_list.h"
#include "reports/documents.h"
#include "reports/page.h"

namespace onnx_external {
namespace {

std::string help_text() {
  return fmt::format(
      R"(inspect-external lists the contents of a checkpoint or an ONNX model; it executes nothing.

usage: inspect-external FILE... [options]
       inspect-external FILE... --diff FILE... [options]
       inspect-external MODEL.onnx --modules [options]

examples:
  inspect-external checkpoint.pt
  inspect-external out/model.onnx --sha256 --json
  inspect-external checkpoint.pt -q --html checkpoint.html
  inspect-external old.pt --diff new.pt --filter '^encoder'

{}
exit codes:
  0  done; with --diff: no difference
  1  a file cannot be read, is neither a checkpoint nor a model, or --html cannot be written;
     with --diff: there are differences
  2  the command line is wrong
)",
      options_help(kInspectExternal));
}

void set_up(CommandLine& line, CommandOptions& options) {
  add_options(line, kInspectExternal, options);
  line.needs("--bytes", "--diff");
  for (const char* option : {"--sort", "--sha256", "--tree", "--html"}) {
    line.excludes(option, "--diff");
  }
  for (const char* option : {"--diff", "--filter", "--sort", "--sha256", "--tree", "--html"}) {
    line.excludes("--modules", option);
  }
  line.needs("--overwrite", "--html");
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

// Keeps the folders in the name, because the two sides of --diff may differ only in their folders.
std::string side_name(const std::vector<std::filesystem::path>& files) {
  const std::string name = files.front().string();
  return files.size() == 1 ? name : fmt::format("{} and {} more", name, files.size() - 1);
}

InspectOptions inspect_options(const CommandOptions& options, ProgressBar& bar) {
  InspectOptions how;
  how.open = options.save.open;
  how.threads = options.save.write.threads;
  how.progress = bar.callback();
  return how;
}

Result<Inspection> inspect_files(const CommandOptions& options) {
  ProgressBar bar(show_progress(options));
  InspectOptions how = inspect_options(options, bar);
  how.digests = options.sha256 ? Digests::kSha256 : Digests::kNone;
  how.digest_if = [&](std::size_t, const InspectedTensor& tensor) {
    return options.filter(tensor.name);
  };
  auto inspection = inspect(options.files, how);
  if (inspection) {
    keep_matching(*inspection, options.filter);
    sort_tensors(*inspection, options.order);
  }
  return inspection;
}

Result<Difference> compare_files(const CommandOptions& options) {
  ProgressBar bar(show_progress(options));
  DifferenceOptions how;
  how.inspect = inspect_options(options, bar);
  how.filter = options.filter;
  how.bytes = options.bytes ? CompareBytes::kYes : CompareBytes::kNo;
  return find_difference(options.files, options.others, how);
}

int print_difference(const Command& command, const CommandOptions& options) {
  const auto difference = compare_files(options);
  if (!difference) {
    return command.fail(shown_error(difference.error()));
  }
  const CompareBytes compared = options.bytes ? CompareBytes::kYes : CompareBytes::kNo;
  int code = kDone;
  if (options.json) {
    code = command.answer(difference_document(*difference, compared));
  } else if (!options.quiet) {
    code = command.answer(difference_text(*difference, side_name(options.files),
                                          side_name(options.others), compared));
  }
  return code == kDone && !difference->none() ? static_cast<int>(kFailed) : code;
}

int print_modules(const Command& command, const CommandOptions& options) {
  const auto model = Model::load(options.files.front());
  const auto modules = model ? count_modules(*model) : fail(model.error());
  if (!modules) {
    return command.fail(modules.error());
  }
  if (options.json) {
    return command.answer(modules_document(*modules));
  }
  return options.quiet ? static_cast<int>(kDone) : command.answer(modules_text(*modules));
}

SandboxPaths sandbox_paths(const CommandOptions& options) {
  SandboxPaths paths;
  for (const auto* files : {&options.files, &options.others}) {
    paths.read_checkpoints(*files);
    for (const std::filesystem::path& file : *files) {
      paths.read_folder_of(file);  // it may be a model with data beside it
    }
  }
  paths.write.push_back(options.save.open.scratch_dir);
  paths.write_folder_of(options.page);
  return paths;
}

int run(int argc, char** argv) {
  Command command("inspect-external", help_text());
  CommandOptions options;
  set_up(command.line(), options);
  if (auto code = command.parse(argc, argv)) {
    return *code;
  }
  if (options.files.empty()) {
    return command.misuse("no FILE is given");
  }
  if (options.modules && options.files.size() > 1) {
    return command.misuse("--modules accepts only a single MODEL.onnx");
  }
  if (const Status status = check_page(options.page, options.save.write.overwrite); !status) {
    return command.fail(status.error());
  }
  enter_sandbox(command, options, sandbox_paths(options));
  if (!options.others.empty()) {
    return print_difference(command, options);
  }
  if (options.modules) {
    return print_modules(command, options);
  }
  auto inspection = inspect_files(options);
  if (!inspection) {
    return command.fail(shown_error(inspection.error()));
  }
  if (!options.page.empty()) {
    const std::string page = html_page(title_of(options.files), inspect_document(*inspection));
    if (const Status status = write_page(options.page, page, options.save.write.overwrite);
        !status) {
      return command.fail(status.error());
    }
  }
  if (options.verbose) {
    command.note(peak_memory_text());
  }
  if (options.json) {
    return command.answer(inspect_document(*inspection));
  }
  return options.quiet ? kDone
                       : command.answer(inspect_text(
                             *inspection, options.tree ? Listing::kTree : Listing::kFlat));
}

}  // namespace
}  // namespace onnx_external

int main(int argc, char** argv) {
  return onnx_external::run_command("inspect-external",
                                    [=] { return onnx_external::run(argc, argv); });
}
