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
#include "reports/documents.h"
#include "save/option_rules.h"

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

input:
  GRAPH.onnx             a graph whose weights were left out, or are to be replaced; several,
                         told from checkpoints by content, share their data files; NAME.onnx=
                         gives one another name than its file has
  CHECKPOINT...          .pt .pth .bin .safetensors files, shard indexes or folders;
                         several form one checkpoint; without any, the weights that the
                         graph holds get the layout
{}{}
mapping (docs/mapping.md has the rules):
{}  --learn-map OLD        the checkpoint that GRAPH was exported from: data that the graph holds
                         is paired with it by its bytes, transposed or not (repeatable)
  --save-map FILE        write the mapping that was used, for --map; after a refused or partial
                         save also the open slots, with keys that fit them

output:
  -o, --output OUT_DIR   the folder for the model and its data, created if missing;
                         OUT_DIR/NAME.onnx also names the model
  --model-name NAME      default: model.onnx
  --data-dir NAME        the folder of data files in OUT_DIR (per-tensor); default: initializers
  --data-name NAME       the data file in OUT_DIR (single; with shards, what their names are made
                         of); default: as --layout says
{}  --attributes           without CHECKPOINT: tensors in attributes of nodes get the layout, too
  --dtype TYPE           convert all floats to float32, float16, bfloat16 or float64; refused
                         if the graph states another type
{}  --keep-inputs          filled graph inputs stay inputs (with an overridable default)
  --checksum sha1        record the SHA-1 of each data file in the model
  --overwrite            replace an existing model once the new one is complete
  --dry-run              print what would fill what, and write no model; needs no -o

work:
{}  --no-verify            do not read everything back and compare it
  --no-fsync             do not wait until the bytes are on the disk
  --no-resume            write everything again, even if a killed save of the same files
                         could be resumed
  --direct               copy past the page cache: for checkpoints larger than memory

common:
{}
exit codes:
  0  done
  1  the data, the disk, the mapping or the verification failed; no model was written,
     unless the message is about stdout or --save-map
  2  the command line is wrong
)",
      kKeyHelp, kValueHelp, kMappingHelp, kLayoutHelp, kTestDataHelp, kThreadsHelp, kCommonHelp);
}

struct Arguments {
  std::filesystem::path graph;  // the first one
  std::vector<std::filesystem::path> checkpoints;
  std::vector<GraphToSave> graphs;
  SaveTarget target;
  std::filesystem::path save_map;
  std::string checksum;
  bool attributes = false;
  bool keep_inputs = false;
  bool overwrite = false;
  bool dry_run = false;
  bool verify = true;
  bool fsync = true;
  bool resume = true;
  bool direct = false;
  MappingArguments mapping;
  CommonArguments common;
  SaveOptions options;
  MpiTeam* team = nullptr;

  [[nodiscard]] bool leads() const { return team == nullptr || team->rank() == 0; }
};

void set_up(CommandLine& line, Arguments& arguments) {
  line.value("GRAPH", arguments.graph);
  line.list("CHECKPOINT", arguments.checkpoints);
  line.value("-o,--output", arguments.target.folder);
  add_plain_name(line, "--model-name", arguments.target.model_name);
  add_plain_name(line, "--data-dir", arguments.target.data_dir);
  add_plain_name(line, "--data-name", arguments.options.plan.data_name);
  add_layout_options(line, arguments.options.plan);
  line.flag("--attributes", arguments.attributes);
  add_dtype_option(line, arguments.options.plan.dtype);
  line.repeatable("--test-data", arguments.options.test_data);
  line.repeatable("--learn-map", arguments.options.learn_from);
  line.value("--save-map", arguments.save_map);
  line.one_of("--checksum", arguments.checksum, {"sha1"});
  line.flag("--keep-inputs", arguments.keep_inputs);
  line.flag("--overwrite", arguments.overwrite);
  line.flag("--dry-run", arguments.dry_run);
  line.flag("--verify,!--no-verify", arguments.verify);
  line.flag("--fsync,!--no-fsync", arguments.fsync);
  line.flag("--resume,!--no-resume", arguments.resume);
  line.flag("--direct", arguments.direct);
  add_checkpoint_options(line, arguments.options.open);
  add_threads_option(line, arguments.options.write.threads);
  add_mapping_options(line, arguments.mapping);
  add_common_options(line, arguments.common);
}

// What is missing on the command line, or has no effect there; empty if it is right.
std::string wrong_argument(CommandLine& line, Arguments& arguments) {
  if (arguments.target.folder.empty()) {
    if (!arguments.dry_run) {
      return "no -o OUT_DIR is given";
    }
    if (arguments.options.plan.layout == Layout::kLink) {
      return "no -o OUT_DIR is given: --layout link needs it for a dry run, too";
    }
  }
  if (arguments.checkpoints.empty()) {
    for (const char* option :
         {"--key", "--prefix", "--map", "--rename", "--unmatched", "--keep", "--ignore",
          "--overlay", "--cast", "--dtype", "--learn-map", "--save-map"}) {
      if (line.count(option) > 0) {
        return fmt::format("{}: is for a CHECKPOINT, and none is given", option);
      }
    }
  } else if (arguments.attributes) {
    return "--attributes: is for a model without CHECKPOINT";
  }
  return "";
}

// "-o out/model.onnx" means the folder "out" and the model's name. Returns what is wrong with it,
// or "".
std::string split_output(CommandLine& line, Arguments& arguments) {
  const std::filesystem::path& out = arguments.target.folder;
  std::error_code ignored;
  if (out.extension() != ".onnx" || std::filesystem::is_directory(out, ignored)) {
    return "";
  }
  std::string name = out.filename().string();
  if (arguments.graphs.size() > 1) {
    return fmt::format("--output: names the model {}, and several graphs are given: give a folder",
                       quote(name));
  }
  if (line.count("--model-name") > 0 && arguments.target.model_name != name) {
    return fmt::format("--output: names the model {}, and --model-name {}", quote(name),
                       quote(arguments.target.model_name));
  }
  arguments.target.model_name = std::move(name);
  arguments.target.folder = out.has_parent_path() ? out.parent_path() : ".";
  return "";
}

// Tells graphs from checkpoints. Returns what is wrong, or "".
std::string split_inputs(CommandLine& line, Arguments& arguments) {
  if (arguments.graph.empty()) {
    return "no GRAPH.onnx is given";
  }
  GraphArguments sorted = sort_arguments(arguments.graph, arguments.checkpoints);
  arguments.checkpoints = std::move(sorted.checkpoints);
  arguments.graphs = std::move(sorted.graphs);
  if (arguments.graphs.size() == 1) {
    const GraphToSave& graph = arguments.graphs.front();
    if (path_of(graph) != arguments.graph) {  // it was given a name
      arguments.target.model_name = graph.model_name;
    }
    return "";
  }
  for (const char* option : {"--model-name", "--test-data", "--learn-map"}) {
    if (line.count(option) > 0) {
      return fmt::format("{}: is for one graph, and several are given", option);
    }
  }
  return wrong_graph_names(arguments.graphs);
}

// The name of a graph alone is known once all options are.
std::string name_graph(CommandLine& line, Arguments& arguments) {
  const std::string wrong = split_output(line, arguments);
  if (arguments.graphs.size() == 1) {
    arguments.graphs.front().model_name = arguments.target.model_name;
  }
  return wrong;
}

void fill_options(Arguments& arguments) {
  SaveOptions& options = arguments.options;
  options.verification = arguments.verify ? Verification::kOn : Verification::kOff;
  options.mode = arguments.dry_run ? RunMode::kDryRun : RunMode::kWrite;
  options.open.threads = options.write.threads;
  options.plan.given =
      arguments.attributes ? GivenTensors::kMoveAndAttributes : GivenTensors::kStay;
  options.plan.max_expand = options.open.max_expand;
  options.write.sync = arguments.fsync ? Sync::kFiles : Sync::kNone;
  options.write.resume = arguments.resume ? Resume::kYes : Resume::kNo;
  options.write.cache = arguments.direct ? PageCache::kBypass : PageCache::kUse;
  options.write.overwrite = arguments.overwrite ? Overwrite::kAllow : Overwrite::kRefuse;
  options.write.checksum = arguments.checksum.empty() ? Checksum::kNone : Checksum::kSha1;
  options.write.inputs = arguments.keep_inputs ? MatchedInputs::kKeep : MatchedInputs::kRemove;
}

// Options that do not go together.
std::string wrong_options(CommandLine&, Arguments& arguments) {
  fill_options(arguments);
  const Status rules = check_option_rules(arguments.options.plan, arguments.options.write,
                                          arguments.mapping.options.casts);
  return rules ? "" : rules.error().message;
}

// Checks before hours of work, rather than after them, that the map file can be written and that it
// replaces nothing but a map file.
Status check_map_target(const Arguments& arguments) {
  const std::filesystem::path& target = arguments.save_map;
  std::error_code ignored;
  if (target.empty()) {
    return {};
  }
  const auto same = [&](const std::filesystem::path& a, const std::filesystem::path& b) {
    return std::filesystem::weakly_canonical(a, ignored) ==
           std::filesystem::weakly_canonical(b, ignored);
  };
  for (const GraphToSave& graph : arguments.graphs) {
    if (same(target, arguments.target.folder / graph.model_name)) {
      return fail(ErrorCode::kInvalidArgument, target.string() + ": the model goes there");
    }
  }
  if (std::filesystem::exists(target, ignored)) {
    if (!read_map_file(target)) {
      return fail(ErrorCode::kAlreadyExists, target.string() + ": exists, and is not a map file");
    }
    if (!arguments.overwrite) {
      return fail_with(ErrorCode::kAlreadyExists, target.string() + ": exists",
                       {{"overwrite", "", "replaces it"}});
    }
  }
  const auto folder = target.has_parent_path() ? target.parent_path() : ".";
  const bool made_by_save = !arguments.dry_run && same(folder, arguments.target.folder);
  if (!made_by_save && ::access(folder.c_str(), W_OK | X_OK) != 0) {
    return fail(errno_error(errno, target.string() + ": cannot write into its folder"));
  }
  return {};
}

// Writes a map file that the user can complete, after a save that left slots open or was refused
// because of them.
void save_template(const Command& command, const Arguments& arguments, const Error& refusal) {
  const auto text = map_template_text(arguments.checkpoints, path_of(arguments.graphs.front()),
                                      arguments.options, refusal.details.get());
  if (!text) {
    return;  // the save was refused for another reason
  }
  const Status status = write_file(arguments.save_map, *text, arguments.options.write.overwrite);
  command.note(status ? fmt::format("{}: what was found, and the open slots with keys that fit; "
                                    "complete it and give it with --map",
                                    shown(arguments.save_map.string()))
                      : status.error().message);
}

// The map file for --map of a later save; of several models, each has entries of its own.
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
  paths.read = arguments.options.test_data;
  for (const GraphToSave& graph : arguments.graphs) {
    paths.read_folder_of(path_of(graph));  // it may contain the graph's external data
  }
  paths.read_checkpoints(arguments.checkpoints);
  paths.read_checkpoints(arguments.options.learn_from);
  paths.read.push_back(arguments.mapping.map_file);
  paths.write.push_back(arguments.dry_run ? nearest_existing_folder(arguments.target.folder)
                                          : arguments.target.folder);
  paths.write_folder_of(arguments.save_map);
  for (const std::filesystem::path& folder : made.made()) {
    paths.remove_folders_in.push_back(folder.parent_path());
  }
  return paths;
}

// Creates the output folder before the sandbox is entered, because the sandbox cannot allow access
// to a folder that does not exist.
Result<NewFolders> make_out_dir(const Arguments& arguments) {
  if (!arguments.common.sandbox || arguments.dry_run || arguments.team != nullptr) {
    return NewFolders();
  }
  TRY_ASSIGN(auto made, NewFolders::make(arguments.target.folder));
  if (arguments.fsync) {
    TRY(made.sync());
  }
  return made;
}

// The phases of the save that take time, for the progress bar.
std::vector<Phase> phases_of(const Arguments& arguments) {
  std::vector<Phase> phases;
  if (arguments.options.plan.dedup == Dedup::kContent) {
    phases.push_back(Phase::kCompare);
  }
  phases.push_back(Phase::kCopy);
  if (arguments.fsync) {
    phases.push_back(Phase::kSync);
  }
  if (arguments.verify) {
    phases.push_back(Phase::kVerify);
  }
  return phases;
}

bool may_lack_keys(ErrorCode code) {
  return code == ErrorCode::kNotFound || code == ErrorCode::kMismatch ||
         code == ErrorCode::kAmbiguous;
}

bool saves_map(const Arguments& arguments) {
  return !arguments.save_map.empty() && arguments.leads() && !arguments.checkpoints.empty();
}

// Does what precedes and follows every save.
Result<SaveReport> carry_out(const Command& command, Arguments& arguments) {
  TRY(check_map_target(arguments));
  TRY_ASSIGN(auto made, make_out_dir(arguments));
  enter_sandbox(command, arguments.common, sandbox_paths(arguments, made));
  TRY_ASSIGN(arguments.options.mapping, mapping_options(arguments.mapping));
  ProgressBar bar(arguments.leads() ? arguments.common.show_progress() : ShowProgress::kNo,
                  phases_of(arguments));
  arguments.options.write.team = arguments.team;
  arguments.options.write.progress = bar.callback();
  auto report = arguments.checkpoints.empty()
                    ? relayout_models(arguments.target, arguments.graphs, arguments.options)
                    : save_graphs_with_external_data(arguments.target, arguments.checkpoints,
                                                     arguments.graphs, arguments.options);
  arguments.options.write.progress = {};  // the bar is gone
  if (report) {
    made.keep();
  }
  return report;
}

// Whether the map of a graph alone is to be completed by the user.
bool lacks_keys(const Arguments& arguments, const Result<SaveReport>& report) {
  return arguments.graphs.size() == 1 &&
         (report ? !report->models.front().slots_left.empty() : may_lack_keys(report.error().code));
}

Result<SaveReport> save(const Command& command, Arguments& arguments) {
  auto report = carry_out(command, arguments);
  if (!saves_map(arguments)) {
    return report;
  }
  if (lacks_keys(arguments, report)) {
    save_template(command, arguments, report ? Error{} : report.error());
  } else if (report) {
    TRY(write_file(arguments.save_map, map_text(arguments, *report),
                   arguments.options.write.overwrite));
  }
  return report;
}

void note_details(const Command& command, const Arguments& arguments, const SaveReport& report) {
  const int threads = arguments.options.write.threads;
  const std::string alignment =
      report.models.size() == 1 ? report.models.front().alignment : std::string();
  command.note(fmt::format(
      "verify {}, fsync {}, threads {}{}", arguments.verify ? "on" : "off",
      arguments.fsync ? "on" : "off", threads == 0 ? "one per CPU" : std::to_string(threads),
      alignment.empty() ? "" : ", names aligned by " + quote(shown(alignment))));
  if (report.bytes_resumed > 0) {
    command.note(fmt::format("resumed a killed save: {} of {} were already written",
                             size_text(report.bytes_resumed), size_text(report.bytes)));
  }
  command.note(fmt::format("{}, {}", speed_text(report.bytes, report.seconds), peak_memory_text()));
}

std::string answer_text(const Arguments& arguments, const SaveReport& report) {
  const RunMode mode = arguments.options.mode;
  return arguments.common.json
             ? save_document(report, mode)
             : save_text(report, mode, arguments.common.verbose ? Lists::kFull : Lists::kShort);
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
  if (arguments.common.verbose) {
    note_details(command, arguments, *report);
  }
  return arguments.common.quiet && !arguments.common.json
             ? static_cast<int>(kDone)
             : command.answer(answer_text(arguments, *report));
}

int run(int argc, char** argv) {
  Command command("save-external", help_text());
  Arguments arguments;
  set_up(command.line(), arguments);
  if (auto code = command.parse(argc, argv)) {
    return *code;
  }
  for (const auto check : {split_inputs, name_graph, wrong_argument, wrong_options}) {
    if (const std::string wrong = check(command.line(), arguments); !wrong.empty()) {
      return command.misuse(wrong);
    }
  }
  const auto team = MpiTeam::join();
  arguments.team = team.get();
  if (team) {
    end_by_exit_code();
  }
  arguments.common.verbose = arguments.common.verbose && arguments.leads();
  return answer(command, arguments, save(command, arguments), team.get());
}

}  // namespace
}  // namespace onnx_external

int main(int argc, char** argv) {
  return onnx_external::run_command("save-external",
                                    [=] { return onnx_external::run(argc, argv); });
}
