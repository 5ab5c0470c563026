// The options that several commands share, and their lines of the help texts. Numbers are decimal;
// a number out of range is a wrong command line.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/command_line.h"
#include "common/progress_bar.h"
#include "inspect/listing.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/result.h"
#include "onnx_external/save_external.h"

namespace onnx_external {

// The lines of the help texts for the options below.
inline constexpr const char* kValueHelp =
    "  --variant NAME         of a folder, the files of a variant: model.NAME.safetensors, ...\n"
    "  --overlay              if several files have a tensor, take the last one's\n"
    "  --max-expand N         let expanded views grow to N times the files (default 4)\n"
    "  --densify              make sparse tensors dense, with their zeros written out\n"
    "  --widen-complex32      make complex32 tensors, which ONNX lacks, complex64\n";
inline constexpr const char* kTestDataHelp =
    "  --test-data FILE       inputs recorded with torch.save: (args, kwargs), a dict, or a list\n"
    "                         of these; written as test_data_set_N/input_K.pb (repeatable)\n";
inline constexpr const char* kKeyHelp =
    "  --key NAME             the dict of names to tensors in a nested checkpoint,\n"
    "                         e.g. state_dict, ema.model or optimizer.state.0\n";
inline constexpr const char* kLayoutHelp =
    "  --layout HOW           per-tensor: a file each (default); single: NAME.data beside the "
    "model;\n"
    "                         shards: NAME-00001-of-0000N.data, no tensor split;\n"
    "                         inline: inside the model file, at most 2.15 GB;\n"
    "                         link: nothing is copied, the model refers to the checkpoint's bytes\n"
    "  --max-shard-size SIZE  with shards, e.g. 500M, 500MB or 4GiB; default: 2GB\n"
    "  --align N              offsets in single and shards: a power of two from 16 to 2MiB\n"
    "                         (default: 4096 for tensors of 1 MiB and more, else 64)\n"
    "  --dedup WHAT           tensors to store once: storage: tied ones (default); content: also\n"
    "                         those of equal bytes; off: none\n"
    "  --inline-below SIZE    store smaller tensors inside the model; SIZE is at most 1MiB\n";
inline constexpr const char* kMappingHelp =
    "  --prefix P             use only keys that start with P, and remove P from them\n"
    "  --map FILE|SLOT=KEY    what fills what: a JSON file with {\"slot\": \"key\", ...}, or one\n"
    "                         pair (repeatable); a key may fill several slots\n"
    "  --rename s/RE/REPL/    rewrite keys before they are matched (RE2; repeatable)\n"
    "  --partial              allow slots without weights, and old weights beside new\n"
    "  --unmatched WHAT       keys that no slot takes: strict: refuse those that may be weights\n"
    "                         (default); skip: list them; keep: add them as initializers\n"
    "  --inputs NAMES         graph inputs that are the caller's, separated by commas "
    "(repeatable)\n"
    "  --keep NAMES           initializers that keep the graph's data, separated by commas\n"
    "                         (repeatable)\n"
    "  --ignore RE            keys that contain a match are not weights (RE2; repeatable)\n"
    "  --cast                 convert a key of another float type to the type of its slot\n";
inline constexpr const char* kCommonHelp =
    "  --json                 print one JSON document\n"
    "  --no-progress          draw no progress bar (there is one only on a terminal)\n"
    "  --no-sandbox           do not give up rights that the job does not need\n"
    "                         (docs/security.md)\n"
    "  -q, --quiet            print errors only\n"
    "  -v, --verbose          also print options, time and peak memory\n"
    "  --version              print the versions of this program and its libraries\n"
    "  -h, --help             print this\n";
inline constexpr const char* kThreadsHelp =
    "  --threads N            1 to 1024 (default: one per CPU)\n";

// The options of kValueHelp.
void add_value_options(CommandLine& line, OpenOptions& options);
// The options of kValueHelp and kKeyHelp.
void add_checkpoint_options(CommandLine& line, OpenOptions& options);
// An option whose value is a file name without a folder.
void add_plain_name(CommandLine& line, const std::string& name, std::string& out);
// An option whose value is an RE2 expression; the filter takes names that contain a match.
void add_name_filter(CommandLine& line, const std::string& name, NameFilter& out);
// --sort: name or size.
void add_list_order(CommandLine& line, ListOrder& out);
// An option whose value is names that are separated by commas; may be given several times.
void add_name_list(CommandLine& line, const std::string& name, std::vector<std::string>& out);
void add_threads_option(CommandLine& line, int& threads);

// --dtype: float64, float32, float16 or bfloat16.
void add_dtype_option(CommandLine& line, std::optional<DType>& dtype);

// The options of kLayoutHelp.
void add_layout_options(CommandLine& line, PlanOptions& options);

struct MappingArguments {
  MappingOptions options;
  std::filesystem::path map_file;
};
void add_mapping_options(CommandLine& line, MappingArguments& arguments);
// The mapping options, with the contents of the map file.
[[nodiscard]] Result<MappingOptions> mapping_options(const MappingArguments& arguments);

struct CommonArguments {
  bool json = false;
  bool progress = true;
  bool sandbox = true;
  bool quiet = false;
  bool verbose = false;

  [[nodiscard]] ShowProgress show_progress() const {
    return progress && !quiet ? ShowProgress::kYes : ShowProgress::kNo;
  }
};
void add_common_options(CommandLine& line, CommonArguments& arguments);

}  // namespace onnx_external
