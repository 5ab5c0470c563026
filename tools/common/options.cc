#include "common/options.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "base/parallel.h"
#include "base/safe_path.h"
#include "base/size_text.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/naming/known_classes.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kMaxExpand = 1'000'000'000'000;
constexpr std::uint64_t kMaxShardBytes = std::uint64_t{1} << 62;

std::uint64_t parse_number(const std::string& option, const std::string& text, std::uint64_t least,
                           std::uint64_t most) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || value < least || value > most) {
    refuse(option, "'" + text + "' is not a whole number from " + std::to_string(least) + " to " +
                       std::to_string(most));
  }
  return value;
}

// Parses "500MB", "500M", "4GiB" or plain bytes.
std::uint64_t parse_size(const std::string& option, const std::string& text, std::uint64_t most) {
  const auto size = split_size(text);
  if (!size) {
    refuse(option,
           "'" + text + "' is not a size: a whole number and k, M, G, kB, MB, GB, KiB, MiB or GiB");
  }
  const std::uint64_t bytes = size->factor * parse_number(option, std::string(size->digits), 1,
                                                          kMaxShardBytes / size->factor);
  if (bytes > most) {
    refuse(option, "'" + text + "' is more than " + std::to_string(most) + " bytes");
  }
  return bytes;
}

std::uint64_t parse_alignment(const std::string& option, const std::string& text) {
  const std::uint64_t value = parse_size(option, text, kMaxAlignment);
  if (value < kMinAlignment) {
    refuse(option, "'" + text + "' is less than " + std::to_string(kMinAlignment) + " bytes");
  }
  if (!std::has_single_bit(value)) {
    refuse(option, "'" + text + "' is not a power of two");
  }
  return value;
}

template <typename Choice>
void add_choice(CommandLine& line, const std::string& name, Choice& out,
                const std::map<std::string, Choice>& choices) {
  line.value(name, [name, &out, choices](const std::string& text) {
    const auto found = choices.find(text);
    if (found == choices.end()) {
      std::string list;
      for (const auto& [choice, value] : choices) {
        list += (list.empty() ? "" : ", ") + choice;
      }
      refuse(name, "'" + text + "' is not one of " + list);
    }
    out = found->second;
  });
}

// SLOT=KEY, or a file. A file's name may contain "=", too, if there is such a file.
void add_map(MappingArguments& arguments, const std::string& text) {
  std::error_code ignored;
  const std::size_t equals = text.find('=');
  if (equals != std::string::npos && !std::filesystem::exists(text, ignored)) {
    if (equals == 0 || equals + 1 == text.size()) {
      refuse("--map", "'" + text + "' is neither a file nor SLOT=KEY");
    }
    arguments.options.map.push_back({text.substr(0, equals), text.substr(equals + 1)});
  } else if (!arguments.map_file.empty()) {
    refuse("--map", "'" + text + "' is a second file");
  } else {
    arguments.map_file = text;
  }
}

// Adds names that are separated by commas.
void add_names(std::vector<std::string>& names, const std::string& option, std::string_view text) {
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    if (comma == start) {
      refuse(option, "an empty name");
    }
    names.emplace_back(text.substr(start, comma - start));
    start = comma + 1;
  }
}

template <typename Number>
void add_number(CommandLine& line, const std::string& name, Number& out, std::uint64_t least,
                std::uint64_t most) {
  line.value(name, [=, &out](const std::string& text) {
    out = static_cast<Number>(parse_number(name, text, least, most));
  });
}

}  // namespace

void add_name_list(CommandLine& line, const std::string& name, std::vector<std::string>& out) {
  line.repeatable(name, [name, &out](const std::string& text) { add_names(out, name, text); });
}

void add_value_options(CommandLine& line, OpenOptions& options) {
  line.value("--variant", options.variant);
  line.flag("--overlay", options.overlay);
  add_number(line, "--max-expand", options.max_expand, 1, kMaxExpand);
  line.flag("--densify", options.densify);
  line.flag("--widen-complex32", options.widen_complex32);
}

void add_checkpoint_options(CommandLine& line, OpenOptions& options) {
  options.classes = &known_classes();
  line.value("--key", options.key);
  add_value_options(line, options);
}

void add_plain_name(CommandLine& line, const std::string& name, std::string& out) {
  line.value(name, [name, &out](const std::string& text) {
    if (auto plain = check_plain_name(text); !plain) {
      refuse(name, plain.error().message);
    }
    out = text;
  });
}

void add_name_filter(CommandLine& line, const std::string& name, NameFilter& out) {
  line.value(name, [name, &out](const std::string& text) {
    auto filter = NameFilter::make(text);
    if (!filter) {
      refuse(name, quote(text) + ": " + filter.error().message);
    }
    out = *std::move(filter);
  });
}

void add_list_order(CommandLine& line, ListOrder& out) {
  add_choice<ListOrder>(line, "--sort", out,
                        {{"name", ListOrder::kName}, {"size", ListOrder::kSize}});
}

void add_threads_option(CommandLine& line, int& threads) {
  add_number(line, "--threads", threads, 1, kMaxThreads);
}

void add_layout_options(CommandLine& line, PlanOptions& options) {
  add_choice<Layout>(line, "--layout", options.layout,
                     {{"per-tensor", Layout::kPerTensor},
                      {"single", Layout::kSingle},
                      {"shards", Layout::kShards},
                      {"inline", Layout::kInline},
                      {"link", Layout::kLink}});
  add_choice<Dedup>(
      line, "--dedup", options.dedup,
      {{"off", Dedup::kOff}, {"storage", Dedup::kStorage}, {"content", Dedup::kContent}});
  line.value("--max-shard-size", [&](const std::string& text) {
    options.max_shard_bytes = parse_size("--max-shard-size", text, kMaxShardBytes);
  });
  line.value("--inline-below", [&](const std::string& text) {
    options.inline_below = parse_size("--inline-below", text, kMaxInlineBelow);
  });
  line.value("--align", [&](const std::string& text) {
    options.alignment = parse_alignment("--align", text);
  });
}

void add_dtype_option(CommandLine& line, std::optional<DType>& dtype) {
  line.value("--dtype", [&](const std::string& text) {
    dtype = dtype_from_torch_name(text);
    if (!dtype || !can_cast_to(*dtype)) {
      refuse("--dtype", "'" + text + "' is not one of bfloat16, float16, float32, float64");
    }
  });
}

void add_mapping_options(CommandLine& line, MappingArguments& arguments) {
  MappingOptions& options = arguments.options;
  line.value("--prefix", [&](const std::string& text) { options.prefix = text; });
  line.repeatable("--map", [&](const std::string& text) { add_map(arguments, text); });
  line.repeatable("--rename", [&](const std::string& text) {
    auto rename = parse_rename(text);
    if (!rename) {
      refuse("--rename", rename.error().message);
    }
    options.renames.push_back(*std::move(rename));
  });
  line.flag("--partial", [&] { options.partial = Partial::kAllow; });
  line.flag("--cast", [&] { options.casts = Casts::kAllow; });
  add_choice<Unmatched>(
      line, "--unmatched", options.unmatched,
      {{"strict", Unmatched::kStrict}, {"skip", Unmatched::kSkip}, {"keep", Unmatched::kKeep}});
  add_name_list(line, "--keep", options.keep);
  line.repeatable("--ignore", options.ignore);
  add_name_list(line, "--inputs", options.inputs);
}

Result<MappingOptions> mapping_options(const MappingArguments& arguments) {
  MappingOptions options = arguments.options;
  if (!arguments.map_file.empty()) {
    TRY_ASSIGN(auto file, read_map_file(arguments.map_file));
    options.map.insert(options.map.begin(), std::make_move_iterator(file.map.begin()),
                       std::make_move_iterator(file.map.end()));
    options.derived = std::move(file.derived);
  }
  return options;
}

void add_common_options(CommandLine& line, CommonArguments& arguments) {
  line.flag("--json", arguments.json);
  line.flag("--progress,!--no-progress", arguments.progress);
  line.flag("--sandbox,!--no-sandbox", arguments.sandbox);
  line.flag("-q,--quiet", arguments.quiet);
  line.flag("-v,--verbose", arguments.verbose);
  line.excludes("--verbose", "--quiet");
}

}  // namespace onnx_external
