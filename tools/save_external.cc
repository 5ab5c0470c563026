// save-external: the whole job, from a graph and a checkpoint to a verified model.
#include "onnx_external/save_external.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/new_folders.h"
#include "base/remedy.h"
#include "base/size_text.h"
#include "base/text.h"
#include "base/try.h"
#include "common/command.h"
#include "common/graph_arguments.h"
#include "common/mpi_team.h"
#include "common/options.h"
#include "common/output.h"
#include "common/progress_bar.h"
#include "common/sandbox.h"
#include "common/text_report.h"
#include "onnx_external/verify.h"
#include "reports/documents.h"
#include "save/plan_checks.h"

namespace onnx_external {
namespace {

std::string help_text() {
  return fmt::format(
      R"(save-external attaches the weights of a PyTorch checkpoint to an ONNX graph as external data.

usage: save-external [NAME.onnx=]GRAPH.onnx... [CHECKPOINT...] -o OUT_DIR [options]

examples:
  save-external graph.onnx checkpoint.pt -o out
  save-external graph.onnx llama-7b-hf/ -o out --dry-run
  save-external model.onnx -o out --layout single
  save-external encoder.onnx decoder.onnx weights/ -o out

{}
exit codes:
  0  done
  1  the data, the disk, the mapping or the verification failed; no model was written,
     unless the message is about stdout or --save-map
  2  the command line is wrong
)",
      options_help(kSaveExternal));
}

struct Arguments {
  CommandOptions options;
  std::vector<GraphToSave> graphs;
  MpiTeam* team = nullptr;

  [[nodiscard]] bool leads() const { return team == nullptr || team->team.rank == 0; }
  [[nodiscard]] bool is_dry_run() const { return options.save.mode == RunMode::kDryRun; }
  [[nodiscard]] bool verifies() const { return options.save.verification == Verification::kOn; }
  [[nodiscard]] bool syncs() const { return options.save.write.sync == Sync::kFiles; }
  [[nodiscard]] Lists lists() const { return options.verbose ? Lists::kFull : Lists::kShort; }
};

// Returns the error about an argument that is missing or has no effect; empty if there is none.
std::string wrong_argument(CommandLine& line, Arguments& arguments) {
  if (arguments.options.target.folder.empty()) {
    if (!arguments.is_dry_run()) {
      return "no -o OUT_DIR is given";
    }
    if (arguments.options.save.plan.layout == Layout::kLink) {
      return "no -o OUT_DIR is given; --layout link also requires it in a dry run";
    }
  }
  if (arguments.options.files.empty()) {
    for (const char* option : {"--key", "--prefix", "--map", "--rename", "--unmatched", "--keep",
                               "--ignore", "--overlay", "--dtype", "--learn-map", "--save-map"}) {
      if (line.count(option) > 0) {
        return fmt::format("{}: requires a CHECKPOINT", option);
      }
    }
  } else if (line.count("--attributes") > 0) {
    return "--attributes: cannot be combined with a CHECKPOINT";
  }
  if (line.count("--quantize") == 0) {
    for (const char* option : {"--quantize-head", "--quantize-weights", "--keep-float",
                               "--accuracy-level", "--quantize-form"}) {
      if (line.count(option) > 0) {
        return fmt::format("{}: requires --quantize", option);
      }
    }
  }
  return "";
}

// "-o out/model.onnx" means the folder "out" and the model's name. Returns what is wrong with it,
// or "".
std::string split_output(Arguments& arguments) {
  const std::filesystem::path& out = arguments.options.target.folder;
  std::error_code ignored;
  if (out.extension() != ".onnx" || std::filesystem::is_directory(out, ignored)) {
    return "";
  }
  std::string name = out.filename().string();
  if (arguments.graphs.size() > 1) {
    return fmt::format(
        "--output: names a single model, {}, but there are several graphs; give a folder instead",
        quote(name));
  }
  arguments.options.target.model_name = std::move(name);
  arguments.options.target.folder = out.has_parent_path() ? out.parent_path() : ".";
  return "";
}

// Tells graphs from checkpoints. Returns what is wrong, or "".
std::string split_inputs(CommandLine& line, Arguments& arguments) {
  if (arguments.options.first.empty()) {
    return "no GRAPH.onnx is given";
  }
  if (auto model = find_model(arguments.options.first)) {  // in a folder
    arguments.options.first = *std::move(model);
  } else if (model.error().code == ErrorCode::kAmbiguous) {
    return model.error().message;
  }
  GraphArguments sorted = sort_arguments(arguments.options.first, arguments.options.files);
  arguments.options.files = std::move(sorted.checkpoints);
  arguments.graphs = std::move(sorted.graphs);
  if (arguments.graphs.size() == 1) {
    const GraphToSave& graph = arguments.graphs.front();
    if (path_of(graph) != arguments.options.first) {  // it was given a name
      arguments.options.target.model_name = graph.model_name;
    }
    return "";
  }
  for (const char* option : {"--test-data", "--learn-map"}) {
    if (line.count(option) > 0) {
      return fmt::format(
          "{}: can be used with only one graph, but there are several; save them one by one",
          option);
    }
  }
  return wrong_graph_names(arguments.graphs);
}

// The name of a single graph is known only after all options were parsed.
std::string name_graph(CommandLine&, Arguments& arguments) {
  const std::string wrong = split_output(arguments);
  if (arguments.graphs.size() == 1) {
    arguments.graphs.front().model_name = arguments.options.target.model_name;
  }
  return wrong;
}

// Options that do not go together.
std::string wrong_options(CommandLine&, Arguments& arguments) {
  SaveOptions& save = arguments.options.save;
  save.open.threads = save.write.threads;
  // The files of several models are called after the folder that they have with another layout.
  const bool names_folder = save.plan.layout == Layout::kPerTensor || arguments.graphs.size() > 1;
  if (names_folder && !save.plan.data_name.empty()) {
    arguments.options.target.data_dir = std::exchange(save.plan.data_name, "");
  }
  save.plan.max_expand = save.open.max_expand;
  const Status rules = check_option_rules(save.plan, save.write, save.mapping.casts);
  return rules ? "" : rules.error().message;
}

// Checks before hours of work, rather than after them, that the map file can be written and that it
// replaces nothing but a map file.
Status check_map_target(const Arguments& arguments) {
  const std::filesystem::path& target = arguments.options.save_map;
  std::error_code ignored;
  if (target.empty()) {
    return {};
  }
  const auto same = [&](const std::filesystem::path& a, const std::filesystem::path& b) {
    return std::filesystem::weakly_canonical(a, ignored) ==
           std::filesystem::weakly_canonical(b, ignored);
  };
  for (const GraphToSave& graph : arguments.graphs) {
    if (same(target, arguments.options.target.folder / graph.model_name)) {
      return fail(
          ErrorCode::kInvalidArgument,
          target.string() +
              ": this path is reserved for the model that is being saved; choose another path");
    }
  }
  if (std::filesystem::exists(target, ignored)) {
    if (!read_map_file(target)) {
      return fail(ErrorCode::kAlreadyExists,
                  target.string() + ": exists, but is not a map file; choose another path");
    }
    if (arguments.options.save.write.overwrite == Overwrite::kRefuse) {
      return fail_with(ErrorCode::kAlreadyExists, target.string() + ": exists",
                       {{RemedyOption::kOverwrite, "", "replaces it"}});
    }
  }
  const auto folder = target.has_parent_path() ? target.parent_path() : ".";
  const bool made_by_save =
      !arguments.is_dry_run() && same(folder, arguments.options.target.folder);
  if (!made_by_save && ::access(folder.c_str(), W_OK | X_OK) != 0) {
    return fail(errno_error(errno, target.string() + ": cannot write into its folder"));
  }
  return {};
}

// Writes a map file for the user to complete, after a save that left slots open or failed because
// of them.
void save_template(const Command& command, const Arguments& arguments, const Error& refusal) {
  const auto text = map_template_text(arguments.options.files, path_of(arguments.graphs.front()),
                                      arguments.options.save, refusal.details.get());
  if (!text) {
    return;  // the save was refused for another reason
  }
  const Status status =
      write_file(arguments.options.save_map, *text, arguments.options.save.write.overwrite);
  command.note(status
                   ? fmt::format("{}: the keys that were found, and the slots without a key with "
                                 "keys that fit; complete this file, and pass it with --map",
                                 shown(arguments.options.save_map.string()))
                   : status.error().message);
}

// Returns the map file for --map of a later save. With several models, each has its own entries.
std::string map_text(const Arguments& arguments, const SaveReport& report) {
  std::vector<MapEntry> entries;
  for (std::size_t i = 0; i < report.models.size(); ++i) {
    const std::string model = report.models.size() == 1 ? "" : arguments.graphs[i].model_name;
    for (const SavedTensor& tensor : report.models[i].tensors) {
      if (tensor.rule && *tensor.rule != Rule::kKept) {
        entries.push_back({tensor.slot, tensor.key, tensor.recipe, model});
      }
    }
  }
  return map_file_text(entries, {}, report.derived);
}

SandboxPaths sandbox_paths(const Arguments& arguments, const NewFolders& made) {
  SandboxPaths paths;
  paths.read = arguments.options.save.test_data;
  for (const GraphToSave& graph : arguments.graphs) {
    paths.read_folder_of(path_of(graph));  // it may contain the graph's external data
  }
  paths.read_checkpoints(arguments.options.files);
  paths.read_checkpoints(arguments.options.save.learn_from);
  paths.read.push_back(arguments.options.map_file);
  paths.write.push_back(arguments.is_dry_run()
                            ? nearest_existing_folder(arguments.options.target.folder)
                            : arguments.options.target.folder);
  paths.write_folder_of(arguments.options.save_map);
  for (const std::filesystem::path& folder : made.made()) {
    paths.remove_folders_in.push_back(folder.parent_path());
  }
  return paths;
}

// Creates the output folder before the sandbox is entered, because the sandbox cannot allow access
// to a folder that does not exist.
Result<NewFolders> make_out_dir(const Arguments& arguments) {
  if (!arguments.options.sandbox || arguments.is_dry_run() || arguments.team != nullptr) {
    return NewFolders();
  }
  TRY_ASSIGN(auto made, NewFolders::make(arguments.options.target.folder));
  if (arguments.syncs()) {
    TRY(made.sync());
  }
  return made;
}

// The phases of the save that take time, for the progress bar.
std::vector<Phase> phases_of(const Arguments& arguments) {
  std::vector<Phase> phases;
  if (arguments.options.save.plan.dedup == Dedup::kContent) {
    phases.push_back(Phase::kCompare);
  }
  phases.push_back(Phase::kCopy);
  if (arguments.syncs()) {
    phases.push_back(Phase::kSync);
  }
  if (arguments.verifies()) {
    phases.push_back(Phase::kVerify);
  }
  return phases;
}

bool may_lack_keys(ErrorCode code) {
  return code == ErrorCode::kNotFound || code == ErrorCode::kMismatch ||
         code == ErrorCode::kAmbiguous;
}

bool saves_map(const Arguments& arguments) {
  return !arguments.options.save_map.empty() && arguments.leads() &&
         !arguments.options.files.empty();
}

// Does what precedes and follows every save.
Result<SaveReport> carry_out(const Command& command, Arguments& arguments) {
  TRY(check_map_target(arguments));
  TRY_ASSIGN(auto made, make_out_dir(arguments));
  enter_sandbox(command, arguments.options, sandbox_paths(arguments, made));
  TRY_ASSIGN(arguments.options.save.mapping, mapping_options(arguments.options));
  ProgressBar bar(arguments.leads() ? show_progress(arguments.options) : ShowProgress::kNo,
                  phases_of(arguments));
  arguments.options.save.write.team = arguments.team == nullptr ? nullptr : &arguments.team->team;
  arguments.options.save.write.progress = bar.callback();
  auto report =
      arguments.options.files.empty()
          ? relayout_models(arguments.options.target, arguments.graphs, arguments.options.save)
          : save_graphs_with_external_data(arguments.options.target, arguments.options.files,
                                           arguments.graphs, arguments.options.save);
  arguments.options.save.write.progress = {};  // the bar is gone
  if (report) {
    made.keep();
  }
  return report;
}

// Returns whether the user must complete the map of a single graph.
bool lacks_keys(const Arguments& arguments, const Result<SaveReport>& report) {
  return arguments.graphs.size() == 1 && (report ? !report->models.front().slots_left().empty()
                                                 : may_lack_keys(report.error().code));
}

Result<SaveReport> save(const Command& command, Arguments& arguments) {
  auto report = carry_out(command, arguments);
  if (!saves_map(arguments)) {
    return report;
  }
  if (lacks_keys(arguments, report)) {
    save_template(command, arguments, report ? Error{} : report.error());
  } else if (report) {
    TRY(write_file(arguments.options.save_map, map_text(arguments, *report),
                   arguments.options.save.write.overwrite));
  }
  return report;
}

void note_details(const Command& command, const Arguments& arguments, const SaveReport& report) {
  const int threads = arguments.options.save.write.threads;
  const std::string key_prefix =
      report.models.size() == 1 ? report.models.front().key_prefix : std::string();
  command.note(fmt::format(
      "verify {}, fsync {}, threads {}{}", arguments.verifies() ? "on" : "off",
      arguments.syncs() ? "on" : "off", threads == 0 ? "one per CPU" : std::to_string(threads),
      key_prefix.empty() ? "" : ", names aligned by " + quote(shown(key_prefix))));
  if (report.bytes_resumed > 0) {
    command.note(fmt::format("resumed a killed save: {} of {} had already been written",
                             size_text(report.bytes_resumed), size_text(report.bytes)));
  }
  command.note(fmt::format("{}, {}", speed_text(report.bytes, report.seconds), peak_memory_text()));
}

std::string answer_text(const Arguments& arguments, const SaveReport& report) {
  const RunMode mode = arguments.options.save.mode;
  return arguments.options.json ? save_document(report, mode)
                                : save_text(report, mode, arguments.lists());
}

int answer(const Command& command, const Arguments& arguments, const Result<SaveReport>& report,
           MpiTeam* team) {
  if (team != nullptr && !team->end(report.has_value())) {
    // The leader speaks for all. A second failure would make mpirun kill it while it does.
    return kDone;
  }
  if (!report) {
    return command.fail(report.error().code == ErrorCode::kCancelled
                            ? Error{ErrorCode::kCancelled, "interrupted; nothing was written"}
                            : report.error());
  }
  if (arguments.options.verbose) {
    note_details(command, arguments, *report);
  }
  return arguments.options.quiet && !arguments.options.json
             ? static_cast<int>(kDone)
             : command.answer(answer_text(arguments, *report));
}

int run(int argc, char** argv) {
  Command command("save-external", help_text());
  Arguments arguments;
  add_options(command.line(), kSaveExternal, arguments.options);
  if (auto code = command.parse(argc, argv)) {
    return *code;
  }
  for (const auto check : {split_inputs, name_graph, wrong_argument, wrong_options}) {
    if (const std::string wrong = check(command.line(), arguments); !wrong.empty()) {
      return command.misuse(wrong);
    }
  }
  const auto team = join_team();
  arguments.team = team.get();
  if (team) {
    end_by_exit_code();
    int& threads = arguments.options.save.write.threads;
    threads = threads == 0 ? team->threads : threads;
  }
  arguments.options.verbose = arguments.options.verbose && arguments.leads();
  return answer(command, arguments, save(command, arguments), team.get());
}

}  // namespace
}  // namespace onnx_external

int main(int argc, char** argv) {
  return onnx_external::run_command("save-external",
                                    [=] { return onnx_external::run(argc, argv); });
}
