// Decides which tensor of a checkpoint fills which weight of a graph, and explains the decision.
// The tensors of the checkpoint are called keys; the values of the graph that they can fill are
// called slots.
//
// docs/mapping.md documents the order of the rules and all errors. All functions except
// read_map_file() are pure, and all may be called from any thread. Their run time is nearly linear
// in the number of names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "onnx_external/derived.h"
#include "onnx_external/model.h"
#include "onnx_external/recipe.h"
#include "onnx_external/result.h"

namespace onnx_external {

// The facts about a tensor of the checkpoint that the mapping uses. It is a plain value, so tests
// can construct it without a checkpoint.
struct MappingKey {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;                 // as ONNX writes it
  std::uint32_t argument = 0;  // index of the path argument that contains the tensor
  // Tensors with the same `bytes_id` are tied weights, that is, they share their bytes in the same
  // order. A reshaped view therefore has the same id as its tensor, and a transposed view has a
  // different id. Empty tensors have no id.
  std::optional<std::uint64_t> bytes_id;
  // For a derived tensor, the indices of the keys that it is computed from. If the derived tensor
  // is used, these keys count as used.
  std::vector<std::uint32_t> made_of = {};
};

struct MappingKeys {
  std::vector<MappingKey> keys;                                 // in checkpoint order
  std::vector<std::pair<std::string, std::string>> tied_names;  // Checkpoint::tied_names()
};

// Returns the keys of a checkpoint, in the order of checkpoint.tensors(). Fails with kUnsupported
// for a shape that ONNX cannot express (a 0-d kFloat4E2M1FnX2).
[[nodiscard]] Result<MappingKeys> mapping_keys(const Checkpoint& checkpoint);

// Decides what happens to keys that fill no slot. The scale of a float8 weight that is saved as
// floats is always an error, unless MappingOptions::ignore matches it.
enum class Unmatched : std::uint8_t {
  kStrict,  // an error, unless they are known not to belong to the graph (docs/mapping.md)
  kSkip,    // the report lists them
  kKeep,    // they become new initializers under their own names
};
enum class Partial : std::uint8_t { kRefuse, kAllow };
// With kAllow, a slot and its key may have different float types, and values are converted to the
// type of the slot. With kRefuse, different types are an error.
enum class Casts : std::uint8_t { kRefuse, kAllow };

struct Rename {
  std::string pattern;      // RE2 regular expression
  std::string replacement;  // RE2 rewrite (\1 ...)
  bool every = false;       // replace all matches in a name, not only the first, like "s/.../.../g"

  friend bool operator==(const Rename&, const Rename&) = default;
};

// A slot and the key that fills it, by their names in the graph and in the checkpoint.
struct MapEntry {
  std::string slot;
  std::string key;
  Recipe recipe = {};  // how the slot's bytes are made from the key's
  std::string model =
      {};  // the only model that the entry applies to; if empty, every model with the slot

  friend bool operator==(const MapEntry&, const MapEntry&) = default;
};

struct MappingOptions {
  Unmatched unmatched = Unmatched::kStrict;
  Partial partial = Partial::kRefuse;  // kAllow: weights may lack data or keep old data
  Casts casts = Casts::kRefuse;
  // Only keys under this prefix are used, and it is removed from their names; a final dot is
  // optional. If it is "", keys are used under their full names, and no prefix or suffix is tried.
  std::optional<std::string> prefix;
  std::vector<Rename> renames;  // applied to the names of keys, in order
  // The definitions of the derived tensors in the checkpoint (add_derived_tensors()). The mapping
  // uses derived tensors like any other key, and needs the definitions only for the manifest.
  std::vector<DerivedTensor> derived;
  std::vector<MapEntry> map;        // the caller's pairs; a key may fill several slots
  std::vector<MapEntry> learned;    // the pairs of learn_map(); `map` takes precedence
  std::vector<std::string> inputs;  // all graph inputs that are not weights: they remain inputs
  std::vector<std::string> keep;    // initializers that keep their data in the graph
  // True if `keep` was set by with_extra() and not by the caller. It then contains all initializers
  // that no extra tensor replaces.
  bool keeps_rest = false;
  std::vector<std::string> ignore;  // RE2 expressions; keys that contain a match are not weights

  friend bool operator==(const MappingOptions&, const MappingOptions&) = default;
};

// The rule that filled a slot. rule_name() gives its stable name in JSON and messages.
enum class Rule : std::uint8_t {
  kMap,            // "map": an entry of MappingOptions::map
  kLearned,        // "learned": an entry of MappingOptions::learned
  kMetadataTie,    // "metadata-tie": safetensors dropped the slot's name and kept the key's
  kGraphTie,       // "graph-tie": the graph ties the slot to another slot, which has the key's name
  kRenamed,        // "renamed": torch appended ".1" to the name to make it unique
  kExact,          // "exact": equal names
  kRefined,        // "refined": equal if dots count as underscores
  kPrefixAdded,    // "prefix-added": the slot's name is a prefix plus the key's
  kPrefixRemoved,  // "prefix-removed": the key's name is a prefix plus the slot's
  kSuffix,         // "suffix": one name uniquely ends with the other, at a component
  kKept,           // "kept": the key fills no slot and becomes a new initializer (kKeep)
};
[[nodiscard]] std::string_view rule_name(Rule rule);

struct MappedPair {
  std::uint32_t slot = kNoSlot;  // index into GraphFacts::slots; kNoSlot for Rule::kKept
  std::uint32_t key = 0;         // index into MappingKeys::keys
  Rule rule = Rule::kExact;
  Recipe recipe = {};

  friend bool operator==(const MappedPair&, const MappedPair&) = default;
};

// The result of a mapping for a key. If several graphs share a checkpoint, each key still has one
// verdict: of the verdicts for the single graphs, the one that is listed first here.
enum class KeyVerdict : std::uint8_t {
  kUsed,           // Mapping::pairs contains the key, or a derived tensor that is computed from it
  kTied,           // it has the same bytes as a used key
  kBaked,          // a buffer that exporters store in graphs (position ids, masks), or a key whose
                   // values are already in the graph: it needs no slot
  kAdapter,        // a weight of an adapter, such as LoRA
  kUnused,         // a weight that should have a slot
  kUnusedModule,   // a weight of a module that the graph does not use
  kNonWeight,      // a counter, an empty tensor, a parameter that only training uses, or a key
                   // outside the prefix that the mapping found
  kIgnored,        // MappingOptions::ignore excludes it
  kOutsidePrefix,  // it is not under MappingOptions::prefix
};

struct MappedKey {
  KeyVerdict verdict = KeyVerdict::kUsed;
  bool in_unused_module = false;  // its name is under one of Mapping::unused_modules
  std::uint32_t tied_to = 0;      // for a tied key: the used key

  friend bool operator==(const MappedKey&, const MappedKey&) = default;
};

// The result of a mapping for a slot.
enum class SlotVerdict : std::uint8_t {
  kFilled,         // filled by a key
  kDoubtful,       // filled by a key of the same name, but it may be an input of the caller
  kKept,           // it correctly keeps the graph's data, which is a constant or equals a key
  kOld,            // a weight that keeps the graph's data, because the checkpoint lacks it
  kStale,          // it keeps data that was, or may have been, computed from weights at export
  kMissing,        // it has neither a key nor data
  kUserInput,      // an input of the caller
  kUnconfirmed,    // an input of the caller or a weight; the graph does not show which
  kNotNeeded,      // it needs no key, because it is the output of an Identity node
  kStaleConstant,  // only in LeftName, for Mapping::stale_constants, which are not slots
};

// A module of the checkpoint that the graph does not use at all.
struct UnusedModule {
  std::string name;        // as it is in the checkpoint, without the last dot
  std::uint32_t keys = 0;  // number of keys in it

  friend bool operator==(const UnusedModule&, const UnusedModule&) = default;
};

struct Mapping {
  std::vector<MappedPair> pairs;             // ordered by slot index; pairs without a slot are last
  std::vector<MappedKey> keys;               // same index as MappingKeys::keys
  std::vector<UnusedModule> unused_modules;  // without modules whose keys are kept (kKeep)
  std::vector<SlotVerdict> slots;            // same index as GraphFacts::slots
  // Inputs of the caller that are not slots, because they are not tensors: indices into
  // GraphFacts::graph_inputs.
  std::vector<std::uint32_t> other_inputs;
  // Names of Constant nodes with as many elements as a weight that has no slot. They may contain
  // old values of that weight.
  std::vector<std::string> stale_constants;
  // The prefix that the mapping added to the names of keys ("+prefix") or removed from them
  // ("-prefix"); "" if none. "-a. +b." means that --prefix removed "a." and the mapping then added
  // "b.".
  std::string key_prefix;
  // The options of the mapping, as a save records them in the manifest. `map` and `learned` are
  // empty and `casts` has its default, because each pair records its own rule and recipe.
  MappingOptions options;

  // Return the indices of the keys or slots that have one of the verdicts, grouped by verdict in
  // the given order, and in ascending order within a group.
  [[nodiscard]] std::vector<std::uint32_t> keys_with(
      std::initializer_list<KeyVerdict> verdicts) const;
  [[nodiscard]] std::vector<std::uint32_t> slots_with(
      std::initializer_list<SlotVerdict> verdicts) const;
};

// A name in a graph that no key fills.
struct LeftName {
  std::string name;
  SlotVerdict verdict = SlotVerdict::kMissing;
  bool by_option =
      false;  // for a kept slot in a report: the caller's MappingOptions::keep names it

  friend bool operator==(const LeftName&, const LeftName&) = default;
};

// Returns the names that need a value but that no key fills. The slots and Mapping::other_inputs
// come first, in the order of the graph, followed by Mapping::stale_constants.
[[nodiscard]] std::vector<LeftName> left_names(const GraphFacts& graph, const Mapping& mapping);

// Functions that compare tensors by reading their bytes. The mapping calls them if names, types and
// shapes allow two results. Each call may read two tensors. A function that is not set counts as
// returning false. Indices refer to MappingKeys::keys and GraphFacts::slots.
struct MappingEvidence {
  // Returns whether two keys have the same type, shape and bytes.
  std::function<Result<bool>(std::uint32_t key, std::uint32_t other)> same_bytes = {};
  // Returns whether the graph's data for a slot equals, bit by bit, the result of applying `recipe`
  // to the key. If the recipe is empty, the shapes may differ, but the number of elements must be
  // equal.
  std::function<Result<bool>(std::uint32_t slot, std::uint32_t key, const Recipe& recipe)>
      slot_holds = {};
  // Returns whether the graph holds the same data for two slots.
  std::function<Result<bool>(std::uint32_t slot, std::uint32_t other)> same_data = {};
  // Return whether all elements of the tensor are equal, as in a tensor of zeros. Equal bytes of
  // such tensors do not prove that they have the same source. Functions that are not set count as
  // returning true.
  std::function<Result<bool>(std::uint32_t key)> key_is_uniform = {};
  std::function<Result<bool>(std::uint32_t slot)> slot_is_uniform = {};
};

// One of the graphs that share a checkpoint.
struct GraphToMap {
  std::string name;  // for messages and MapEntry::model: "encoder.onnx"
  const GraphFacts* facts = nullptr;
  MappingEvidence evidence = {};
};

// Applies the rules to one or more graphs and returns their mappings, in the same order. The
// checkpoint must contain the weights of every graph. A key counts as used if any of the graphs
// uses it, and a key that no graph uses is an error. All mappings therefore have the same `keys`.
// `options` apply to every graph, but the slots, inputs and initializers that they name need to
// exist in only one of the graphs.
//
// A message shows at most kMaxListed names of each list. Error::details has the full lists and the
// options that may help. With several graphs, a sentence about one graph begins with the name of
// the graph.
//
// Errors:
// - kAmbiguous if two results are possible. Both are listed.
// - kMismatch if a shape or an element type differs within the chosen key_prefix.
// - kNotFound if a weight is missing, a key is unused, nothing matches, or an option names
//   something that does not exist.
// - kInvalidArgument, for example for a bad regular expression. Unmatched::kKeep is invalid with
//   several graphs, because it does not say which graph gets the new initializers.
// - Errors of the evidence functions are passed on.
[[nodiscard]] Result<std::vector<Mapping>> map_graphs(std::span<const GraphToMap> graphs,
                                                      const MappingKeys& keys,
                                                      const MappingOptions& options);
inline constexpr std::size_t kMaxListed = 8;

// Calls map_graphs() for a single graph without a name. Entries of the map apply even if they name
// a model.
[[nodiscard]] Result<Mapping> map_tensors(const GraphFacts& graph, const MappingKeys& keys,
                                          const MappingOptions& options,
                                          const MappingEvidence& evidence = {});

// Returns the options without the map entries that are for other models than `name`.
[[nodiscard]] MappingOptions options_for_model(MappingOptions options, std::string_view name);

struct MapFile {
  std::vector<MapEntry> map;
  std::vector<DerivedTensor> derived;

  friend bool operator==(const MapFile&, const MapFile&) = default;
};

// Reads a map file. It is JSON: either {"slot": KEY, ...} or a document like those that --save-map
// writes: {"derived": {"name": KEY, ...}, "map": {"slot": KEY, ...}}. The members "derived" and
// "map" are optional, and unknown members are ignored. KEY is "key" or {"key": "key", "recipe":
// ["transpose"]}; for a derived tensor it may also be {"concat" or "stack": [KEY, ...], "dim": 0}.
// The optional member {"models": {"encoder.onnx": {"slot": KEY, ...}, ...}} contains entries for
// individual models. Fails with kCorrupt for duplicate slots, for unknown steps, and for JSON of
// any other structure.
[[nodiscard]] Result<MapFile> read_map_file(const std::filesystem::path& path);
// Parses the text of a map file.
[[nodiscard]] Result<MapFile> parse_map_file(std::string_view text);

// A slot that needs a key, and the keys that have the right type and shape.
struct OpenSlot {
  std::string slot;
  std::string form;                  // type and shape: "FLOAT [64, 3, 7, 7]"
  std::vector<MapEntry> candidates;  // nearest name first
  std::string model = {};            // see MapEntry::model
};

// The contents of a map file that the user completes by hand.
struct MapTemplate {
  std::vector<MapEntry> map;  // the pairs that the rules find
  std::vector<OpenSlot> open;
};

// Returns the pairs that the rules find with Partial::kAllow and Unmatched::kSkip, or no pairs if
// the rules fail. The open slots are those without data and those that `refusal` lists. The
// candidates for a slot are at most kMaxCandidates unused keys that have the type and the shape of
// the slot or, for a matrix, the transposed shape.
[[nodiscard]] MapTemplate map_template(const GraphFacts& graph, const MappingKeys& keys,
                                       const MappingOptions& options,
                                       const ErrorDetails* refusal = nullptr);
inline constexpr std::size_t kMaxCandidates = 8;

// Returns the text of a map file: JSON with one entry per line, in the given order, grouped by
// model if entries name models. A slot that occurs in two subgraphs is written once. `open` is
// written to help the person who completes the file, and read_map_file() ignores it.
[[nodiscard]] std::string map_file_text(std::span<const MapEntry> entries,
                                        std::span<const OpenSlot> open = {},
                                        std::span<const DerivedTensor> derived = {});

// Parses "s/RE/REPL/" or "s/RE/REPL/g"; the delimiter may be any character. Fails with
// kInvalidArgument for any other text or an invalid regular expression.
[[nodiscard]] Result<Rename> parse_rename(std::string_view text);

}  // namespace onnx_external
