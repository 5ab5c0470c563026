// Loads ONNX models, whose weights may be in other files, and finds their slots: the values that a
// tensor of a checkpoint can supply.
//
// Models are protobuf messages of the linked onnx library. Fields that this library does not know
// are preserved. The onnx checker is not used, because it rejects the IR versions that today's
// exporters write.
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

// The facts about a graph that the mapping uses, including its slots. Callers get this structure
// from Model::facts() and pass it to other functions. Its definition is internal
// (onnx/graph_facts.h).
struct GraphFacts;

// The slot index of a tensor that fills no slot.
inline constexpr std::uint32_t kNoSlot = 0xFFFFFFFF;

// Subgraphs (bodies of If, Loop, Scan) nested deeper than this are an error (kUnsupported).
inline constexpr std::size_t kMaxGraphDepth = 100;

// The part of a model that holds a tensor.
enum class TensorPlace : std::uint8_t {
  kInitializer,
  kSparse,     // values or indices of a sparse initializer
  kAttribute,  // an attribute of a node, dense or sparse
};

// Irregularities in external data that this library accepts. Each is either rejected by another
// loader or absent from the models that a save writes.
enum class DataRemark : std::uint8_t {
  kNoLength,       // no length: other readers use the rest of the file, or reject the model
  kZeroLength,     // length 0 for a tensor with elements: treated as no length; onnx rejects it
  kPrepacked,      // keys prepacked_N: weights that ONNX Runtime packed for its own use
  kBasepath,       // key basepath: onnx ignores it, ONNX Runtime rejects it
  kDuplicateKeys,  // a repeated key with equal values: ONNX Runtime rejects some cases
  kOtherChecksum,  // the checksum is not a SHA-1, so it is ignored
  kDots,           // the file's name has "..", which onnx rejects
  kHardLinks,      // the file has several names, which onnx rejects
  kHubLink,        // the file is a link in the Hugging Face Hub's cache, which onnx rejects
};
inline constexpr std::size_t kDataRemarks = 9;

// A set of remarks. It is stored in two bytes, because a model may have many tensors.
class DataRemarks {
 public:
  void add(DataRemark remark) { bits_ = static_cast<std::uint16_t>(bits_ | bit(remark)); }
  [[nodiscard]] bool has(DataRemark remark) const { return (bits_ & bit(remark)) != 0; }
  [[nodiscard]] bool empty() const { return bits_ == 0; }

 private:
  [[nodiscard]] static unsigned bit(DataRemark remark) {
    return 1U << static_cast<unsigned>(remark);
  }
  std::uint16_t bits_ = 0;
};

// The number of tensors with a remark, and the name of the first one.
struct CountedRemark {
  DataRemark remark = DataRemark::kNoLength;
  std::string first;
  std::uint64_t tensors = 0;
};

// A tensor of a loaded model whose bytes are in an external file. Graphs of functions and of
// training information are numbered after the main graph and its subgraphs.
struct ExternalTensor {
  // The name of an initializer, or "NAME" and "NAME.indices" for a sparse initializer. A tensor in
  // an attribute is named "OUTPUT.ATTRIBUTE", where OUTPUT is the first output of the node,
  // followed by ".N" in a list and ".indices" for sparse indices. The default value of a function's
  // attribute is named "DOMAIN::FUNCTION.ATTRIBUTE".
  std::string name;
  TensorPlace place = TensorPlace::kInitializer;
  std::uint32_t graph = 0;
  std::int32_t data_type = 0;
  Shape dims;
  // The location, relative to Model::source_dir() and normalized: "d/w" for "./d//w". A location
  // outside that folder is not normalized.
  std::string location;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;  // in bytes, computed from type and dims; must equal a stated length
  DataRemarks remarks = {};
};

// A tensor of a loaded model whose data is inside the model. Not listed are tensors that always
// stay in the model: tensors of strings, tensors without elements, and tensors with a type of
// unknown size.
struct InlineTensor {
  std::string name;  // as in ExternalTensor
  TensorPlace place = TensorPlace::kInitializer;
  std::uint32_t graph = 0;
  std::string value;  // the value that nodes read: the initializer, or the node's first output
  std::int32_t data_type = 0;
  Shape dims;
  std::uint64_t length = 0;  // bytes, computed from type and dims
  // True for a tensor in training_info, which stays in the model because no loader looks for
  // external data there.
  bool in_training = false;
};

enum class MatchedInputs : std::uint8_t {
  kRemove,  // a filled graph input is removed from graph.input (below IR version 4 it must stay)
  kKeep,
};

// A loaded model. A save does not change this object, but writes another file. Copies share their
// contents. Const members may be called from several threads at once.
class Model {
 public:
  // Reads and parses the model file `path`, except for tensor data, which is left in the file. The
  // file stays open. A model of 2 GB therefore needs only the memory for its graph. Errors:
  // kNotFound, kIo, kUnsupported for files of more than 2^31-1 bytes and for subgraphs nested too
  // deeply, and kCorrupt for a file without a graph or with external_data entries that break the
  // rules. If the file is not an ONNX model at all, the error is kCorrupt, and the message says
  // what the file seems to be (a checkpoint, a web page, ...).
  [[nodiscard]] static Result<Model> load(const std::filesystem::path& path);

  // Creates a Model from a message in memory. Locations of its external data are relative to
  // `source_dir`.
  [[nodiscard]] static Result<Model> from_proto(onnx::ModelProto proto,
                                                std::filesystem::path source_dir);

  // Returns the parsed message. Tensors whose data was left in the file have a placeholder as
  // raw_data.
  [[nodiscard]] const onnx::ModelProto& proto() const;
  // Returns the file from which the model was loaded; empty for a model from memory.
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const std::filesystem::path& source_dir() const { return source_dir_; }
  void set_source_dir(std::filesystem::path folder) { source_dir_ = std::move(folder); }
  [[nodiscard]] const GraphFacts& facts() const;
  // Returns the name of a slot (MappedPair::slot). Requires: `slot` is from a mapping of this
  // model.
  [[nodiscard]] const std::string& slot_name(std::uint32_t slot) const;

  // Returns the external tensors of all graphs, in graph order. Loading a model checks the syntax
  // of their entries: keys must be known and have one value each, numbers must be plain decimal
  // numbers, and the length must match type and dims. Code that reads the data must check that the
  // location is safe.
  [[nodiscard]] const std::vector<ExternalTensor>& external_tensors() const;

  // Returns the tensors whose data is in the model, in graph order. Their bytes are not read.
  [[nodiscard]] const std::vector<InlineTensor>& inline_tensors() const;

  // Returns the serialized model, including the data that was left in the file. Serialization is
  // deterministic. Errors: kUnsupported for more than 2^31-1 bytes; kIo if the file can no longer
  // be read.
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

// Returns whether ONNX Runtime cannot read an initializer from an external file. This is the case
// if the initializer is used, directly or through Identity nodes, as the scales of a Resize or
// Upsample node in any graph. Takes logarithmic time.
[[nodiscard]] bool must_stay_inline(const Model& model, std::string_view initializer_name);

}  // namespace onnx_external
