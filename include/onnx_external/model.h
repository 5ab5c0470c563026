// An ONNX model whose weights may live outside it, and the places ("slots") that weights can fill.
//
// Works on the protobuf classes of the linked onnx library; fields that it does not know survive.
// The onnx checker is not used: it refuses the IR versions that today's exporters write.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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

// What the exporter says that a value was (torch 2.5 and later: the metadata_props of its
// value_info under pkg.torch.export.graph_signature.InputSpec.kind and .persistent).
enum class SlotOrigin : std::uint8_t {
  kUnstated,
  kParameter,
  kBuffer,       // a persistent buffer: in the state dict
  kLocalBuffer,  // a buffer that is not persistent: in no state dict
  kConstant,     // a tensor that the trace found
  kUserInput,    // an input of the caller
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
  // Where nothing states a shape: what the value must broadcast to, by a node that reads it.
  std::optional<SymbolicShape> bound;
  std::uint32_t input_index = 0;  // kGraphInput: position in graph.input
  bool has_data = false;          // kInitializer: bytes (inline or external) are recorded
  std::string merged_into;        // kIdentityOutput: the name that the Identity reads
  SlotOrigin origin = SlotOrigin::kUnstated;
  // Names of the values that an optimizer computed this one from, transitively, without the
  // operators (pkg.onnxscript.optimizer.folded_from): names of the graph as it was then.
  std::vector<std::string> folded_from;
  bool batch_norm_fused =
      false;                  // the optimizer multiplied a BatchNorm into it, under its old name
  bool graph_output = false;  // of the main graph
  std::uint32_t consumer_count = 0;  // node inputs (in any graph) and graph outputs that use it
  // Of these: as the second input of a MatMul; as the data of a Gather; as an input of MatMul, Gemm
  // or Transpose. A tied embedding is gathered and multiplied.
  std::uint32_t matmul_second_count = 0;
  // Consumers whose operation in torch reads a parameter, and those whose operation reads none: the
  // optimizer may have merged the value with an equal constant.
  std::uint32_t parameter_uses = 0;
  std::uint32_t other_uses = 0;
  bool is_gathered = false;
  bool is_multiplied = false;
  // Modules whose nodes use it, where its name is of another: indices into GraphFacts::modules, the
  // first few. torch lists a parameter that two modules share under both.
  std::vector<std::uint32_t> used_in;
  std::string consumer_op;    // the first node among them; empty = there is none
  std::string consumer_name;  // that node's name
};

// Numbers of a floating type that stand in the value of a Constant node.
struct ConstantTensor {
  std::string name;  // the output of the node
  std::int32_t elem_type = 0;
  Shape shape;
};

// Instead of a place in GraphFacts::slots: a tensor that fills none.
inline constexpr std::uint32_t kNoSlot = 0xFFFFFFFF;

// What the mapping needs to know of a graph; a plain value that tests build by hand.
struct GraphFacts {
  std::vector<Slot> slots;                // names are unique within one graph
  std::vector<std::string> graph_inputs;  // all of graph.input of the main graph, in order
  // Every other name that some graph defines (inputs, outputs of nodes), in no order: what, beside
  // the slots, a new initializer must not be called.
  std::vector<std::string> defined_names;
  // Names that feed the scales of Resize or Upsample, sorted; see must_stay_inline.
  std::vector<std::string> inline_names;
  // In any graph, of two elements and more.
  std::vector<ConstantTensor> constants;
  // Modules that nodes were made for, as torch's exporters say: "layer1.0.conv1". Sorted.
  std::vector<std::string> modules;
  std::int64_t ir_version = 0;
};

// Subgraphs (bodies of If, Loop, Scan) nested deeper than this are refused.
inline constexpr std::size_t kMaxGraphDepth = 100;

// Where in a model a tensor stands.
enum class TensorPlace : std::uint8_t {
  kInitializer,
  kSparse,     // values or indices of a sparse initializer
  kAttribute,  // of a node, sparse ones too
};

// A tensor of the given model whose bytes are already in an external file. Graphs of functions and
// of training count behind the main graph's.
struct ExternalTensor {
  // An initializer's own name; "NAME" and "NAME.indices" of a sparse one; "OUTPUT.ATTRIBUTE" of an
  // attribute, by the first output of its node, with ".N" in lists and ".indices" as above;
  // "DOMAIN::FUNCTION.ATTRIBUTE" of the default value of a function's attribute.
  std::string name;
  TensorPlace place = TensorPlace::kInitializer;
  std::uint32_t graph = 0;
  std::int32_t data_type = 0;
  Shape dims;
  std::string location;  // as the model spells it, relative to Model::source_dir()
  std::uint64_t offset = 0;
  std::uint64_t length = 0;  // bytes; computed from type and dims, checked against a stated one
};

// A tensor of the given model with its numbers inside the model. Strings are not listed, nor
// tensors without elements or of a type whose size is not known: they stay where they are.
struct InlineTensor {
  std::string name;  // as in ExternalTensor
  TensorPlace place = TensorPlace::kInitializer;
  std::uint32_t graph = 0;
  std::string value;  // what nodes see: the initializer's name, or the first output of the node
  std::int32_t data_type = 0;
  Shape dims;
  std::uint64_t length = 0;  // bytes that type and dims make
};

enum class MatchedInputs : std::uint8_t {
  kRemove,  // a filled graph input leaves graph.input (when IR version >= 4; below it must stay)
  kKeep,
};

// A loaded model. No call changes what it describes: a save writes another file. Copies share what
// they hold. Const members may be called from several threads.
class Model {
 public:
  // Reads and parses `path`, but for the data of its tensors: that is left in the file, which stays
  // open, so a model of 2 GB takes the memory of its graph. kNotFound, kIo; kUnsupported past
  // 2^31-1 bytes and for subgraphs nested too deeply; kCorrupt when it is no ONNX model (the
  // message says what it seems to be instead: a checkpoint, a web page, ...) or has no graph, and
  // for external_data entries that break the rules.
  [[nodiscard]] static Result<Model> load(const std::filesystem::path& path);

  // Takes a model from memory. `source_dir`: where the locations of its external data start.
  [[nodiscard]] static Result<Model> from_proto(onnx::ModelProto proto,
                                                std::filesystem::path source_dir);

  // A tensor whose data was left in the file has a placeholder as raw_data.
  [[nodiscard]] const onnx::ModelProto& proto() const;
  // The file that it was loaded from; empty for one from memory.
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const std::filesystem::path& source_dir() const { return source_dir_; }
  void set_source_dir(std::filesystem::path folder) { source_dir_ = std::move(folder); }
  [[nodiscard]] const GraphFacts& facts() const;

  // Tensors in any graph that are external, in graph order. Their entries are checked for form
  // (known keys, once each; plain decimal numbers; length = type x dims); opening the files, and
  // whether the location is safe, is the reader's business.
  [[nodiscard]] const std::vector<ExternalTensor>& external_tensors() const;

  // Those that have their numbers in the model, in graph order. Their bytes are not looked at.
  [[nodiscard]] const std::vector<InlineTensor>& inline_tensors() const;

  // Serialized deterministically, with the data that was left in the file. kUnsupported when it
  // would pass 2^31-1 bytes; kIo when the file cannot be read any more.
  [[nodiscard]] Result<std::string> serialize() const;

 private:
  struct Parts;
  friend struct ModelAccess;

  Model(std::shared_ptr<const Parts> parts, std::filesystem::path source_dir)
      : parts_(std::move(parts)), source_dir_(std::move(source_dir)) {}

  std::shared_ptr<const Parts> parts_;
  std::filesystem::path path_;
  std::filesystem::path source_dir_;
};

// True for names whose consumers ONNX Runtime must see inline: what feeds scales of Resize or
// Upsample (any graph), directly or through Identity. Used by the planner. Logarithmic.
[[nodiscard]] bool must_stay_inline(const Model& model, std::string_view initializer_name);

}  // namespace onnx_external
