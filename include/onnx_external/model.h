// An ONNX model whose weights may live outside it, and the places ("slots") that weights can fill.
//
// Works on the protobuf classes of the linked onnx library; fields that it does not know survive.
// The onnx checker is not used: it refuses the IR versions that today's exporters write.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

// The forms in which exporters leave weights open (design: mapping, "Slots").
enum class SlotKind : std::uint8_t {
  kGraphInput,      // a graph input without an initializer
  kUndefinedName,   // a name that nodes use and nothing defines
  kInitializer,     // an initializer that is already in the graph, its data replaceable
  kIdentityOutput,  // output of an Identity node over a slot or an initializer: merged weights
};

// A dimension: a number, or nothing when it is symbolic or unstated.
using SymbolicShape = std::vector<std::optional<std::int64_t>>;

// One place that a tensor can fill. A plain value.
struct Slot {
  std::string name;
  SlotKind kind = SlotKind::kGraphInput;
  std::uint32_t graph = 0;             // 0 = main graph, else index into Model's list of subgraphs
  std::int32_t elem_type = 0;          // TensorProto.DataType; 0 = not stated
  std::optional<SymbolicShape> shape;  // nothing = not stated
  std::uint32_t input_index = 0;       // kGraphInput: position in graph.input
  bool has_data = false;               // kInitializer: bytes (inline or external) are recorded
  std::string merged_into;             // kIdentityOutput: the name that the Identity reads
  std::uint32_t consumer_count = 0;    // node inputs (in any graph) and graph outputs that use it
  std::vector<std::string> consumers;  // up to kMaxListedConsumers of them, "MatMul 'node_name'"
};
inline constexpr std::size_t kMaxListedConsumers = 4;

// What the mapping needs to know of a graph; a plain value that tests build by hand.
struct GraphFacts {
  std::vector<Slot> slots;                // names are unique within one graph
  std::vector<std::string> graph_inputs;  // all of graph.input of the main graph, in order
  // Every name that some graph defines (inputs, initializers, outputs of nodes), sorted: what a new
  // initializer must not be called.
  std::vector<std::string> defined_names;
  // Names that feed the scales of Resize or Upsample, sorted; see must_stay_inline.
  std::vector<std::string> inline_names;
  std::int64_t ir_version = 0;
};

// Subgraphs (bodies of If, Loop, Scan) nested deeper than this are refused.
inline constexpr std::size_t kMaxGraphDepth = 100;

// An initializer of the given model whose bytes are already in an external file.
struct ExternalTensor {
  std::string name;
  std::uint32_t graph = 0;
  std::int32_t data_type = 0;
  Shape dims;
  std::string location;  // as the model spells it, relative to Model::source_dir()
  std::uint64_t offset = 0;
  std::uint64_t length = 0;  // bytes; computed from type and dims, checked against a stated one
};

// Where the bytes of an attached tensor are, relative to the model file that will be written.
struct ExternalRef {
  std::string location;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::string checksum;  // lower-case hex SHA-1 of the whole file; empty = not recorded
};

// One tensor to put into the graph: an initializer `name` in graph `graph`, made from a slot or
// (slot == kNoSlot) new.
struct Attachment {
  static constexpr std::uint32_t kNoSlot = 0xFFFFFFFF;
  std::uint32_t slot = kNoSlot;  // index into GraphFacts::slots
  std::string name;              // used with kNoSlot only
  std::int32_t data_type = 0;
  Shape dims;
  std::variant<ExternalRef, std::string> data;  // a reference, or the raw little-endian bytes
};

enum class MatchedInputs : std::uint8_t {
  kRemove,  // a filled graph input leaves graph.input (when IR version >= 4; below it must stay)
  kKeep,
};

// Not thread-safe while it is being changed; const members may be called from several threads.
class Model {
 public:
  // Reads and parses `path`. kNotFound, kIo; kUnsupported past 2^31-1 bytes, for subgraphs nested
  // too deeply and for attribute tensors in external files; kCorrupt when it is no ONNX model (the
  // message says what it seems to be instead: a checkpoint, a web page, ...) or has no graph, and
  // for external_data entries that break the rules.
  [[nodiscard]] static Result<Model> load(const std::filesystem::path& path);

  // Takes a model from memory. `source_dir`: where the locations of its external data start.
  [[nodiscard]] static Result<Model> from_proto(onnx::ModelProto proto,
                                                std::filesystem::path source_dir);

  Model(Model&&) noexcept = default;
  Model& operator=(Model&&) noexcept = default;

  [[nodiscard]] const onnx::ModelProto& proto() const { return proto_; }
  [[nodiscard]] const std::filesystem::path& source_dir() const { return source_dir_; }
  void set_source_dir(std::filesystem::path folder) { source_dir_ = std::move(folder); }
  [[nodiscard]] const GraphFacts& facts() const { return facts_; }

  // Initializers in any graph that are external, in graph order. Their entries are checked for form
  // (known keys, once each; plain decimal numbers; length = type x dims); opening the files, and
  // whether the location is safe, is the reader's business.
  [[nodiscard]] const std::vector<ExternalTensor>& external_tensors() const { return external_; }

  // Puts tensors into the graph: fills slots (removing Identity nodes of kIdentityOutput slots) and
  // adds new initializers; nothing inline remains in an external one. New initializers stand in the
  // order of their slots, then the slotless ones in the given order. facts() keeps
  // describing the model as it was, so that the slots of a plan keep their meaning, until
  // refresh(); external_tensors() is empty until then: relocate() first. kInvalidArgument: a slot
  // index out of range or used twice, a new name that the graph defines; the model is then
  // unchanged.
  [[nodiscard]] Status attach(std::span<const Attachment> attachments, MatchedInputs inputs);

  // Recomputes facts() and external_tensors() after attach(). Errors as load().
  [[nodiscard]] Status refresh() { return analyze(); }

  // Points the external_tensors()[i] to a new place. Requires: i < external_tensors().size().
  void relocate(std::size_t external_tensor, const ExternalRef& ref);

  // Serialized deterministically. kUnsupported when it would pass 2^31-1 bytes.
  [[nodiscard]] Result<std::string> serialize() const;

 private:
  Model() = default;
  [[nodiscard]] Status analyze();

  onnx::ModelProto proto_;
  std::filesystem::path source_dir_;
  GraphFacts facts_;
  std::vector<ExternalTensor> external_;
  std::vector<onnx::TensorProto*> external_protos_;  // into proto_, same index as external_
};

// True for names whose consumers ONNX Runtime must see inline: what feeds scales of Resize or
// Upsample (any graph), directly or through Identity. Used by the planner. Logarithmic.
[[nodiscard]] bool must_stay_inline(const Model& model, std::string_view initializer_name);

}  // namespace onnx_external
