// Which tensor of a checkpoint fills which slot of a graph: decided without IO, and explained.
//
// The order of the rules, and every refusal, is documented in docs/mapping.md. All functions are
// pure and safe from any thread; near-linear in the number of names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "onnx_external/model.h"
#include "onnx_external/recipe.h"
#include "onnx_external/result.h"

namespace onnx_external {

// What the mapping needs to know of a tensor; a plain value that tests build by hand.
struct MappingKey {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;                 // as ONNX writes it
  std::uint32_t argument = 0;  // which checkpoint argument it came from
  // Tensors with equal, present `bytes_id` are the same bytes (tied weights). mapping_keys() gives
  // one to each range of a storage, for strided tensors to each range with its shape and strides.
  std::optional<std::uint64_t> bytes_id;
};

struct MappingKeys {
  std::vector<MappingKey> keys;                                 // in checkpoint order
  std::vector<std::pair<std::string, std::string>> tied_names;  // safetensors: (dropped, kept)
};

// The keys of a checkpoint: same order and index as checkpoint.tensors(). kUnsupported for a shape
// that ONNX cannot write (a 0-d kFloat4E2M1FnX2).
[[nodiscard]] Result<MappingKeys> mapping_keys(const Checkpoint& checkpoint);

enum class Match : std::uint8_t {
  kAuto,   // all rules
  kExact,  // stops after equal names
};
// What becomes of keys that no slot takes.
enum class Unmatched : std::uint8_t {
  kStrict,  // refused, unless they are known to be no weights of this graph (docs/mapping.md)
  kSkip,    // listed
  kKeep,    // they become new initializers under their own names
  kError,   // refused, whatever they are
};
enum class Partial : std::uint8_t { kRefuse, kAllow };
// kAllow: a slot and a key may be of different float types; the values are converted to the slot's.
enum class Casts : std::uint8_t { kRefuse, kAllow };

struct Rename {
  std::string pattern;      // RE2 regular expression
  std::string replacement;  // RE2 rewrite (\1 ...)
  bool every = false;       // all matches in a name, not only the first ("s/.../.../g")

  friend bool operator==(const Rename&, const Rename&) = default;
};

// A slot and the key that fills it, as the files spell them.
struct MapEntry {
  std::string slot;
  std::string key;
  Recipe recipe = {};  // how the slot's bytes are made from the key's

  friend bool operator==(const MapEntry&, const MapEntry&) = default;
};

struct MappingOptions {
  Match match = Match::kAuto;
  Unmatched unmatched = Unmatched::kStrict;
  Partial partial = Partial::kRefuse;  // allow missing and mixed weights
  Casts casts = Casts::kRefuse;
  // Only keys under it (with or without its last dot); it is removed. "": the keys' own names are
  // meant, so no prefix is looked for.
  std::optional<std::string> prefix;
  std::vector<Rename> renames;    // on keys, in order
  std::vector<MapEntry> map;      // of a map file
  std::vector<MapEntry> learned;  // of learn_map(); entries of `map` and `ties` win
  std::vector<std::pair<std::string, std::string>> ties;  // slot -> key
  std::vector<std::string> inputs;  // graph inputs that belong to the caller: all of them
  std::vector<std::string> keep;    // initializers that keep the data which the graph holds
  std::vector<std::string> ignore;  // RE2 expressions; keys that contain a match are no weights

  friend bool operator==(const MappingOptions&, const MappingOptions&) = default;
};

// Which rule filled a slot. rule_name gives its stable name in JSON and messages.
enum class Rule : std::uint8_t {
  kMap,            // "map": the map file
  kTie,            // "tie": --tie
  kLearned,        // "learned": learn_map()
  kMetadataTie,    // "metadata-tie": safetensors' record of a dropped name
  kGraphTie,       // "graph-tie": the graph ties the slot to one that the key names
  kRenamed,        // "renamed": torch put ".1" behind a name that something else has
  kExact,          // "exact": equal names
  kRefined,        // "refined": equal once dots are underscores
  kPrefixAdded,    // "prefix-added": the slot's name is a prefix plus the key
  kPrefixRemoved,  // "prefix-removed": the key's name is a prefix plus the slot
  kSuffix,         // "suffix": unique at a component boundary
  kKept,           // "kept": no slot, --unmatched keep
};
[[nodiscard]] std::string_view rule_name(Rule rule);

struct MappedPair {
  std::uint32_t slot = kNoSlot;  // index into GraphFacts::slots; kNoSlot for kKept
  std::uint32_t key = 0;         // index into MappingKeys::keys
  Rule rule = Rule::kExact;
  Recipe recipe = {};

  friend bool operator==(const MappedPair&, const MappedPair&) = default;
};

// A leftover key whose bytes are those of a matched one.
struct TiedKey {
  std::uint32_t key = 0;
  std::uint32_t matched_key = 0;
};

// A module of the checkpoint of which the graph uses nothing.
struct UnusedModule {
  std::string name;        // as the checkpoint spells it, without the last dot
  std::uint32_t keys = 0;  // how many keys it has

  friend bool operator==(const UnusedModule&, const UnusedModule&) = default;
};

struct Mapping {
  std::vector<MappedPair> pairs;              // by slot index, kept keys last
  std::vector<std::uint32_t> unmatched_keys;  // without tied ones
  std::vector<UnusedModule> unused_modules;   // their keys are among unmatched_keys
  // Those of unmatched_keys that a graph needs no slot for: buffers that exporters bake into it
  // (position ids, masks), and keys whose values its data has.
  std::vector<std::uint32_t> baked_keys;
  std::vector<TiedKey> tied_keys;
  std::vector<std::string> inputs_left;        // the caller's inputs
  std::vector<std::string> initializers_kept;  // initializers with data that no key replaced
  std::vector<std::string> slots_left;         // only with Partial::kAllow: still without data
  // "", "+prefix" (added to the keys), "-prefix" (removed); "-a. +b." when --prefix removed one and
  // another was found.
  std::string alignment;
  // The options that it was made with, but for what the pairs tell: no `map`, `learned`, `ties` and
  // `casts`.
  MappingOptions asked;
};

// What only bytes can tell. The mapping asks when names, types and shapes leave two answers open;
// whoever asks gets an answer at the cost of reading two tensors. Without a function the answer is
// no. Indices are those of MappingKeys::keys and GraphFacts::slots.
struct MappingEvidence {
  // Whether two keys have the same type, shape and bytes.
  std::function<Result<bool>(std::uint32_t key, std::uint32_t other)> same_bytes = {};
  // Whether the data that the graph holds for a slot is what `recipe` makes of the key, bit by bit;
  // without a recipe in any shape of as many elements.
  std::function<Result<bool>(std::uint32_t slot, std::uint32_t key, const Recipe& recipe)>
      slot_holds = {};
  // Whether the data that the graph holds for two slots is the same.
  std::function<Result<bool>(std::uint32_t slot, std::uint32_t other)> same_data = {};
  // Whether all elements are equal (zeros, ones): then equal bytes do not prove a common source.
  // Without these functions the answer is yes.
  std::function<Result<bool>(std::uint32_t key)> key_is_uniform = {};
  std::function<Result<bool>(std::uint32_t slot)> slot_is_uniform = {};
};

// Applies the rules. Failures: kAmbiguous (two answers fit: both listed), kMismatch (shape or
// element type differ within the chosen alignment), kNotFound (a weight is missing, a key is
// unused, nothing matches, a name of an option does not exist), kInvalidArgument (a bad regular
// expression, ...). Each message names what it is about (at most kMaxListed names of each list);
// Error::details has the lists in full, and the options that are ways out. What the evidence fails
// with is passed on.
[[nodiscard]] Result<Mapping> map_tensors(const GraphFacts& graph, const MappingKeys& keys,
                                          const MappingOptions& options,
                                          const MappingEvidence& evidence = {});
inline constexpr std::size_t kMaxListed = 8;

// Reads a map file: JSON, either {"slot": KEY, ...} or a document written by --save-map
// ({"map": {"slot": KEY, ...}, ...}, of which nothing else is read). KEY is "key", or {"key":
// "key", "recipe": ["transpose"]}. kCorrupt for twin slots, unknown steps or other forms.
[[nodiscard]] Result<std::vector<MapEntry>> read_map_file(const std::filesystem::path& path);

// A slot that still needs a key, and the keys that would fit it.
struct OpenSlot {
  std::string slot;
  std::string form;                  // "FLOAT [64, 3, 7, 7]"
  std::vector<MapEntry> candidates;  // the nearest name first
};

// A map file to be completed by hand.
struct MapTemplate {
  std::vector<MapEntry> map;  // what the rules find
  std::vector<OpenSlot> open;
};

// What the rules find with Partial::kAllow and Unmatched::kSkip (nothing, where they refuse even
// then), the slots that stay without data, and those that `refusal` lists. Candidates are unused
// keys of the slot's type and shape, as they are or transposed: at most kMaxCandidates.
[[nodiscard]] MapTemplate map_template(const GraphFacts& graph, const MappingKeys& keys,
                                       const MappingOptions& options,
                                       const ErrorDetails* refusal = nullptr);
inline constexpr std::size_t kMaxCandidates = 8;

// The text of a map file: JSON, one entry a line, in the given order; a slot that stands twice (in
// two subgraphs) is written once. `open` stands beside the map, for the reader alone.
[[nodiscard]] std::string map_file_text(std::span<const MapEntry> entries,
                                        std::span<const OpenSlot> open = {});

// "s/RE/REPL/" or "s/RE/REPL/g" with any delimiter; kInvalidArgument for another form or a bad
// expression.
[[nodiscard]] Result<Rename> parse_rename(std::string_view text);

}  // namespace onnx_external
