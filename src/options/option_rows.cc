#include <array>
#include <optional>
#include <utility>

#include "base/parallel.h"
#include "base/safe_path.h"
#include "base/text.h"
#include "options/options.h"
#include "options/values.h"

namespace onnx_external {
namespace {

using std::string_view_literals::operator""sv;

constexpr unsigned kMatching = kSaveExternal | kVerifyExternal;  // keys and slots
constexpr unsigned kReading = kMatching | kInspectExternal;      // checkpoints
constexpr unsigned kAll = kReading | kCutExternal;
constexpr std::uint64_t kMaxAccuracyLevel = 4;
constexpr std::uint64_t kMaxExpand = 1'000'000'000'000;

// The words of a choice, and what each of them means.
constexpr std::array kLayoutNames = {"per-tensor"sv, "single"sv, "shards"sv, "inline"sv, "link"sv};
constexpr std::array kLayouts = {Layout::kPerTensor, Layout::kSingle, Layout::kShards,
                                 Layout::kInline, Layout::kLink};
constexpr std::array kDedupNames = {"storage"sv, "content"sv, "off"sv};
constexpr std::array kDedups = {Dedup::kStorage, Dedup::kContent, Dedup::kOff};
constexpr std::array kUnmatchedNames = {"strict"sv, "skip"sv, "keep"sv};
constexpr std::array kUnmatched = {Unmatched::kStrict, Unmatched::kSkip, Unmatched::kKeep};
constexpr std::array kDtypeNames = {"slot"sv, "float32"sv, "float16"sv, "bfloat16"sv, "float64"sv};
constexpr std::array<std::optional<DType>, 5> kDtypes = {
    std::nullopt, DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64};
constexpr std::array kConvertNames = {"sparse"sv, "complex32"sv};
constexpr std::array kConverted = {&OpenOptions::densify, &OpenOptions::widen_complex32};
constexpr std::array kChecksumNames = {"sha1"sv};
constexpr std::array kChecksums = {Checksum::kSha1};
constexpr std::array kHeadNames = {"int8"sv, "int4"sv, "float"sv};
constexpr std::array kHeads = {HeadWeights::kInt8, HeadWeights::kInt4, HeadWeights::kFloat};
constexpr std::array kFormNames = {"matmulnbits"sv, "qdq"sv};
constexpr std::array kForms = {QuantizedForm::kMatMulNBits, QuantizedForm::kDequantizeLinear};
constexpr std::array kOrderNames = {"name"sv, "size"sv};
constexpr std::array kOrders = {ListOrder::kName, ListOrder::kSize};

template <typename Out, typename Value>
Status set(Out& out, const Value& value) {
  out = value;
  return {};
}

template <typename Value>
Status append(std::vector<Value>& values, const std::string& text) {
  values.emplace_back(text);
  return {};
}

template <typename Value>
Status append_parsed(std::vector<Value>& values, Result<Value> value) {
  if (!value) {
    return fail(std::move(value).error());
  }
  values.push_back(*std::move(value));
  return {};
}

// A file name without a folder.
Status set_plain_name(std::string& name, const std::string& text) {
  name = text;
  return check_plain_name(text);
}

Status set_filter(NameFilter& filter, const std::string& text) {
  auto made = NameFilter::make(text);
  if (!made) {
    return fail(made.error().code, quote(text) + ": " + made.error().message);
  }
  filter = *std::move(made);
  return {};
}

// SLOT=KEY, or a file. If there is a file of that name, its name may also contain "=".
Status take_map(CommandOptions& options, const std::string& text) {
  std::error_code ignored;
  const std::size_t equals = text.find('=');
  if (equals != std::string::npos && !std::filesystem::exists(text, ignored)) {
    if (equals == 0 || equals + 1 == text.size()) {
      return fail(ErrorCode::kInvalidArgument, "'" + text + "' is neither a file nor SLOT=KEY");
    }
    options.save.mapping.map.push_back({text.substr(0, equals), text.substr(equals + 1)});
  } else if (!options.map_file.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "'" + text + "' is a second map file; give at most one");
  } else {
    options.map_file = text;
  }
  return {};
}

// The type of its slot for each tensor ("slot"), or one for all.
Status take_dtype(CommandOptions& options, const std::string& text) {
  options.save.mapping.casts = text == "slot" ? Casts::kAllow : options.save.mapping.casts;
  return choose(text, kDtypeNames, kDtypes, options.save.plan.dtype);
}

Status take_convert(CommandOptions& options, const std::string& text) {
  bool OpenOptions::*converted = nullptr;
  Status status = choose(text, kConvertNames, kConverted, converted);
  return status ? set(options.save.open.*converted, true) : status;
}

// The options of a quantized save, however many of them are given.
QuantizeOptions& quantize_of(CommandOptions& options) {
  auto& quantize = options.save.plan.quantize;
  return quantize ? *quantize : quantize.emplace();
}

using K = OptionKind;
using G = OptionGroup;
using O = CommandOptions;
using Text = const std::string&;

constexpr OptionRow kRows[] = {
    {"GRAPH", ".onnx", K::kPositional, G::kInput, kSaveExternal, false,
     "a graph without weights, or with weights to replace; several graphs,\n"
     "recognized by content, share their data files; NAME.onnx= sets the name\n"
     "of the saved model",
     [](O& o, Text text) { return set(o.first, text); }},
    {"CHECKPOINT", "...", K::kWords, G::kInput, kSaveExternal, false,
     ".pt .pth .bin .safetensors files, shard indexes or folders;\n"
     "several form one checkpoint; without a checkpoint, the weights in\n"
     "the graph itself are saved in the layout",
     [](O& o, Text text) { return append(o.files, text); }},
    {"MODEL", ".onnx", K::kPositional, G::kInput, kVerifyExternal, false,
     "the model, with its data files next to it; or a folder with one model,\n"
     "or with several models that were saved together",
     [](O& o, Text text) { return set(o.first, text); }},
    {"MODEL", ".onnx", K::kPositional, G::kInput, kCutExternal, false,
     "the model; its data files are not read", [](O& o, Text text) { return set(o.first, text); }},
    {"FILE", "...", K::kWords, G::kInput, kInspectExternal, false,
     "a checkpoint (file, shard index, folder) or an ONNX model, recognized\n"
     "by content; several form one checkpoint",
     [](O& o, Text text) { return append(o.files, text); }},
    {"against", "CHECKPOINT...", K::kWords, G::kInput, kVerifyExternal, false,
     "compare every byte with these files, indexes or folders; keys are\n"
     "matched to slots again, and the manifest decides ambiguous cases",
     [](O& o, Text text) { return append(o.others, text); }},
    {"diff", "FILE...", K::kWords, G::kInput, kInspectExternal, false,
     "compare with these files by name; print names that only one side has,\n"
     "and differences in types, shapes and bytes",
     [](O& o, Text text) { return append(o.others, text); }},
    {"key", "NAME", K::kText, G::kInput, kReading, true,
     "the dict in a nested checkpoint that maps names to tensors,\n"
     "e.g. state_dict, ema.model or optimizer.state.0",
     [](O& o, Text text) { return set(o.save.open.key, text); }},
    {"variant", "NAME", K::kText, G::kInput, kReading, true,
     "read this variant of the files in a folder: model.NAME.safetensors, ...",
     [](O& o, Text text) { return set(o.save.open.variant, text); }},
    {"overlay", "", K::kFlag, G::kInput, kReading, true,
     "if several files contain a tensor, use the one in the last file",
     [](O& o, Text) { return set(o.save.open.overlay, true); }},
    {"max-expand", "N", K::kNumber, G::kInput, kReading, true,
     "let expanded views take up to N times the size of the files (default 4)",
     [](O& o, Text text) {
       return set_to(o.save.open.max_expand, number_in(text, 1, kMaxExpand));
     }},
    {"convert", "WHAT", K::kNames, G::kInput, kReading, false,
     "convert tensors of a kind that ONNX lacks: sparse: to dense, with all\n"
     "zeros; complex32: to complex64 (repeatable, or separated by a comma)",
     [](O& o, Text text) { return take_convert(o, text); }, kConvertNames},
    {"densify", "", K::kFlag, G::kInput, kPythonAlone, true, "",
     [](O& o, Text) { return set(o.save.open.densify, true); }},
    {"widen-complex32", "", K::kFlag, G::kInput, kPythonAlone, true, "",
     [](O& o, Text) { return set(o.save.open.widen_complex32, true); }},
    {"module", "NAME", K::kText, G::kInput, kCutExternal, false,
     "cut out the nodes that the exporter made for this module\n"
     "(inspect-external MODEL.onnx --modules lists the modules)",
     [](O& o, Text text) { return set(o.cut.module, text); }},
    {"without", "NAMES", K::kNames, G::kInput, kCutExternal, false,
     "leave out the nodes of these submodules, separated by commas\n"
     "(repeatable); their results become inputs of the piece. Without\n"
     "--module, the piece is the rest of the model",
     [](O& o, Text text) { return append(o.cut.without, text); }},
    {"inputs", "NAMES", K::kNames, G::kInput, kCutExternal, false,
     "values that become the inputs of the piece, separated by commas\n"
     "(repeatable; default: the inputs of the model)",
     [](O& o, Text text) { return append(o.cut.inputs, text); }},
    {"outputs", "NAMES", K::kNames, G::kInput, kCutExternal, false,
     "values that become the outputs of the piece, separated by commas\n"
     "(repeatable)",
     [](O& o, Text text) { return append(o.cut.outputs, text); }},
    {"prefix", "P", K::kText, G::kMapping, kMatching, true,
     "use only keys that start with P, and remove P from them",
     [](O& o, Text text) { return set(o.save.mapping.prefix, text); }},
    {"map", "FILE|SLOT=KEY", K::kTexts, G::kMapping, kMatching, false,
     "the key for each slot: a JSON file with {\"slot\": \"key\", ...}, or one\n"
     "pair (repeatable); a key may fill several slots",
     [](O& o, Text text) { return take_map(o, text); }},
    {"rename", "s/RE/REPL/", K::kTexts, G::kMapping, kMatching, true,
     "rewrite keys before they are matched (RE2; repeatable)",
     [](O& o, Text text) { return append_parsed(o.save.mapping.renames, parse_rename(text)); }},
    {"partial", "", K::kFlag, G::kMapping, kMatching, true,
     "also save an incomplete model: slots stay without data or keep old weights",
     [](O& o, Text) { return set(o.save.mapping.partial, Partial::kAllow); }},
    {"unmatched", "WHAT", K::kText, G::kMapping, kMatching, true,
     "keys that fill no slot: strict: fail if they may be weights (default);\n"
     "skip: list them; keep: add them as initializers",
     [](O& o, Text text) {
       return choose(text, kUnmatchedNames, kUnmatched, o.save.mapping.unmatched);
     },
     kUnmatchedNames},
    {"inputs", "NAMES", K::kNames, G::kMapping, kMatching, true,
     "graph inputs that the caller supplies at run time, separated by commas\n"
     "(repeatable)",
     [](O& o, Text text) { return append(o.save.mapping.inputs, text); }},
    {"keep", "NAMES", K::kNames, G::kMapping, kMatching, true,
     "initializers that keep their data in the graph, separated by commas\n"
     "(repeatable)",
     [](O& o, Text text) { return append(o.save.mapping.keep, text); }},
    {"ignore", "RE", K::kTexts, G::kMapping, kMatching, true,
     "do not treat keys that contain a match as weights (RE2; repeatable)",
     [](O& o, Text text) { return append(o.save.mapping.ignore, text); }},
    {"cast", "", K::kFlag, G::kMapping, kPythonAlone, true, "",
     [](O& o, Text) { return set(o.save.mapping.casts, Casts::kAllow); }},
    {"dtype", "slot", K::kText, G::kMapping, kVerifyExternal, false,
     "convert a key of another float type to the type of its slot",
     [](O& o, Text text) {
       return text == "slot" ? take_dtype(o, text) : not_one_of(text, kDtypeNames.data(), 1);
     }},
    {"learn-map", "OLD", K::kPaths, G::kMapping, kSaveExternal, false,
     "the checkpoint that GRAPH was exported from: data in the graph is\n"
     "matched to its keys by content, transposed or not (repeatable)",
     [](O& o, Text text) { return append(o.save.learn_from, text); }},
    {"save-map", "FILE", K::kPath, G::kMapping, kSaveExternal, false,
     "write the mapping that was used, for --map; after a failed or partial\n"
     "save also the slots without a key, with keys that fit them",
     [](O& o, Text text) { return set(o.save_map, text); }},
    {"o,output", "OUT_DIR", K::kPath, G::kOutput, kSaveExternal, false,
     "the folder for the model and its data, created if missing;\n"
     "OUT_DIR/NAME.onnx also sets the name of the model",
     [](O& o, Text text) { return set(o.target.folder, text); }},
    {"o,output", "PIECE.onnx", K::kPath, G::kOutput, kCutExternal, false,
     "the file for the piece, in the folder of the model",
     [](O& o, Text text) { return set(o.target.folder, text); }},
    {"data-name", "NAME", K::kText, G::kOutput, kSaveExternal, true,
     "the name in OUT_DIR of the data folder (per-tensor; default:\n"
     "initializers) or data file (single), or the prefix of the file names\n"
     "(shards)",
     [](O& o, Text text) { return set_plain_name(o.save.plan.data_name, text); }},
    {"layout", "HOW", K::kText, G::kOutput, kSaveExternal, true,
     "per-tensor: one file per tensor (default); single: one NAME.data beside\n"
     "the model; shards: NAME-00001-of-0000N.data, without split tensors;\n"
     "inline: inside the model file, at most 2.15 GB;\n"
     "link: nothing is copied, the model refers to the checkpoint's bytes",
     [](O& o, Text text) { return choose(text, kLayoutNames, kLayouts, o.save.plan.layout); },
     kLayoutNames},
    {"max-shard-size", "SIZE", K::kSize, G::kOutput, kSaveExternal, true,
     "the largest size of a shard, e.g. 500M, 500MB or 4GiB (default: 2GB);\n"
     "a larger tensor gets a larger file of its own",
     [](O& o, Text text) {
       return set_to(o.save.plan.max_shard_bytes, size_in(text, 1, kMaxSizeOption));
     }},
    {"align", "N", K::kSize, G::kOutput, kSaveExternal, true,
     "alignment of tensors in single and shards: a power of two from 16 to\n"
     "2MiB (default: 4096 for tensors of 1 MiB and more, otherwise 64)",
     [](O& o, Text text) { return set_to(o.save.plan.alignment, alignment_of(text)); }},
    {"dedup", "WHAT", K::kText, G::kOutput, kSaveExternal, true,
     "tensors to store once: storage: tied tensors (default); content: also\n"
     "tensors with equal bytes; off: none",
     [](O& o, Text text) { return choose(text, kDedupNames, kDedups, o.save.plan.dedup); },
     kDedupNames},
    {"inline-below", "SIZE", K::kSize, G::kOutput, kSaveExternal, true,
     "store smaller tensors inside the model; SIZE is at most 1MiB (default:\n"
     "tensors below 1024 bytes stay inside if they are there already)",
     [](O& o, Text text) {
       return set_to(o.save.plan.inline_below, size_in(text, 0, kMaxInlineBelow));
     }},
    {"attributes", "", K::kFlag, G::kOutput, kSaveExternal, true,
     "without CHECKPOINT: also save tensors in node attributes in the layout",
     [](O& o, Text) { return set(o.save.plan.existing_data, ExistingData::kMoveAndAttributes); }},
    {"dtype", "TYPE", K::kText, G::kOutput, kSaveExternal, true,
     "convert floats: slot: each key to the float type of its slot; float32,\n"
     "float16, bfloat16, float64: all to that type; if the graph states\n"
     "another type, the save fails: export the module in that type",
     [](O& o, Text text) { return take_dtype(o, text); }, kDtypeNames},
    {"quantize", "SCHEME", K::kText, G::kOutput, kSaveExternal, true,
     "int4: matrices become 4-bit codes in blocks of 64 with zero points, for\n"
     "ONNX Runtime; int4/32, int4/128, ...: other block sizes; int8: 8 bits in\n"
     "blocks of 128; in full: 'int4/64, zero points, 5 steps' or\n"
     "'int4/32, symmetric, nearest'; keep: the codes in a quantized checkpoint\n"
     "(docs/quantize.md)",
     [](O& o, Text text) { return set_scheme(text, quantize_of(o)); }},
    {"quantize-head", "TYPE", K::kText, G::kOutput, kSaveExternal, true,
     "with --quantize: the type of the head and the embeddings: int8 (default),\n"
     "int4 or float",
     [](O& o, Text text) { return choose(text, kHeadNames, kHeads, quantize_of(o).head); },
     kHeadNames},
    {"quantize-weights", "PATTERN=SCHEME", K::kTexts, G::kOutput, kSaveExternal, true,
     "with --quantize: another scheme for some weights, as in\n"
     "'*.down_proj.*=int4/128'; PATTERN may contain * and ?; the last one that\n"
     "matches decides (repeatable)",
     [](O& o, Text text) {
       return append_parsed(quantize_of(o).weights, parse_weight_scheme(text));
     }},
    {"keep-float", "PATTERN", K::kTexts, G::kOutput, kSaveExternal, true,
     "with --quantize: weights not to quantize; PATTERN may contain * and ?\n"
     "(repeatable)",
     [](O& o, Text text) { return append(quantize_of(o).keep_float, text); }},
    {"accuracy-level", "N", K::kNumber, G::kOutput, kSaveExternal, true,
     "with --quantize: 4: round activations to 8 bits, which is fast (default);\n"
     "0: keep activations as floats",
     [](O& o, Text text) {
       return set_to(quantize_of(o).accuracy_level, number_in(text, 0, kMaxAccuracyLevel));
     }},
    {"quantize-form", "HOW", K::kText, G::kOutput, kSaveExternal, true,
     "with --quantize: matmulnbits: ONNX Runtime's own operators (default);\n"
     "qdq: ONNX's DequantizeLinear, opset 21 and newer",
     [](O& o, Text text) { return choose(text, kFormNames, kForms, quantize_of(o).form); },
     kFormNames},
    {"test-data", "FILE", K::kPaths, G::kOutput, kSaveExternal, true,
     "inputs recorded with torch.save: (args, kwargs), a dict, or a list\n"
     "of these; written as test_data_set_N/input_K.pb (repeatable)",
     [](O& o, Text text) { return append(o.save.test_data, text); }},
    {"keep-inputs", "", K::kFlag, G::kOutput, kSaveExternal, true,
     "keep filled graph inputs as inputs, with the weight as their default",
     [](O& o, Text) { return set(o.save.write.inputs, MatchedInputs::kKeep); }},
    {"checksum", "sha1", K::kText, G::kOutput, kSaveExternal, true,
     "record the SHA-1 of each data file in the model",
     [](O& o, Text text) {
       return choose(text, kChecksumNames, kChecksums, o.save.write.checksum);
     },
     kChecksumNames},
    {"filter", "RE", K::kText, G::kOutput, kInspectExternal, false,
     "list only names that contain a match (RE2)",
     [](O& o, Text text) { return set_filter(o.filter, text); }},
    {"sort", "HOW", K::kText, G::kOutput, kInspectExternal, false,
     "size: the largest first; name: alphabetically",
     [](O& o, Text text) { return choose(text, kOrderNames, kOrders, o.order); }, kOrderNames},
    {"tree", "", K::kFlag, G::kOutput, kInspectExternal, false,
     "list modules, indented, with their tensors and bytes",
     [](O& o, Text) { return set(o.tree, true); }},
    {"modules", "", K::kFlag, G::kOutput, kInspectExternal, false,
     "list the modules for which a model's nodes were made, with their nodes,\n"
     "parameters and bytes; an initializer counts once in each module",
     [](O& o, Text) { return set(o.modules, true); }},
    {"raw", "", K::kFlag, G::kOutput, kInspectExternal, false,
     "list the stored parts of quantized weights, not the floats that they\n"
     "encode",
     [](O& o, Text) { return set(o.save.open.stored_parts, true); }},
    {"html", "FILE", K::kPath, G::kOutput, kInspectExternal | kVerifyExternal, false,
     "also write the report as an HTML page", [](O& o, Text text) { return set(o.page, text); }},
    {"overwrite", "", K::kFlag, G::kOutput, kSaveExternal, true,
     "replace an existing model once the new one is complete",
     [](O& o, Text) { return set(o.save.write.overwrite, Overwrite::kAllow); }},
    {"overwrite", "", K::kFlag, G::kOutput, kInspectExternal | kVerifyExternal, false,
     "let --html replace an older page",
     [](O& o, Text) { return set(o.save.write.overwrite, Overwrite::kAllow); }},
    {"overwrite", "", K::kFlag, G::kOutput, kCutExternal, false, "replace an older piece",
     [](O& o, Text) { return set(o.save.write.overwrite, Overwrite::kAllow); }},
    {"dry-run", "", K::kFlag, G::kOutput, kSaveExternal, true,
     "print the mapping and the plan without writing a model; needs no -o",
     [](O& o, Text) { return set(o.save.mode, RunMode::kDryRun); }},
    {"sha256", "", K::kFlag, G::kWork, kInspectExternal, false,
     "read every listed tensor and print its SHA-256",
     [](O& o, Text) { return set(o.sha256, true); }},
    {"bytes", "", K::kOffFlag, G::kWork, kInspectExternal, false,
     "with --diff: compare names, types and shapes only",
     [](O& o, Text) { return set(o.bytes, false); }},
    {"threads", "N", K::kNumber, G::kWork, kReading, true,
     "number of threads, 0 to 1024 (default: 0, one per CPU)",
     [](O& o, Text text) { return set_to(o.save.write.threads, number_in(text, 0, kMaxThreads)); }},
    {"verify", "", K::kOffFlag, G::kWork, kSaveExternal, true,
     "do not read the saved data back to compare it",
     [](O& o, Text) { return set(o.save.verification, Verification::kOff); }},
    {"fsync", "", K::kOffFlag, G::kWork, kSaveExternal | kCutExternal, true,
     "do not wait until the data is on the disk",
     [](O& o, Text) { return set(o.save.write.sync, Sync::kNone); }},
    {"resume", "", K::kOffFlag, G::kWork, kPythonAlone, true, "",
     [](O& o, Text) { return set(o.save.write.resume, Resume::kNo); }},
    {"json", "", K::kFlag, G::kCommon, kAll, false, "print one JSON document",
     [](O& o, Text) { return set(o.json, true); }},
    {"sandbox", "", K::kOffFlag, G::kCommon, kAll, false,
     "do not drop privileges that the job does not need\n"
     "(docs/security.md)",
     [](O& o, Text) { return set(o.sandbox, false); }},
    {"q,quiet", "", K::kFlag, G::kCommon, kAll, false, "print errors only",
     [](O& o, Text) { return set(o.quiet, true); }},
    {"v,verbose", "", K::kFlag, G::kCommon, kAll, false, "also print options, time and peak memory",
     [](O& o, Text) { return set(o.verbose, true); }},
};

}  // namespace

std::span<const OptionRow> option_rows() {
  return kRows;
}

}  // namespace onnx_external
