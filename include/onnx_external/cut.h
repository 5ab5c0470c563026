// Cuts a piece out of a model of any size: a small model that refers to the same data files. No
// external data is read or copied, so a piece of a model with 16 GB of weights takes milliseconds.
//
//   CutOptions options;
//   options.module = "model.layers.3";
//   auto report = cut_model_file("out/model.onnx", "out/layer3.onnx", options);
//
// A piece is selected by module or by values.
//
// By module: all nodes that were made while this module ran, as the exporter states
// (pkg.torch.onnx.name_scopes or namespace in the metadata of the nodes, or names like
// "/layer1/conv/Conv"). A name that no node states may be that of a container ("model.layers"): it
// means the modules in it. Nodes of no module that stand between two nodes of it come along. A
// module that is called several times is one piece, with the inputs and outputs of all calls. It
// may be without some of the modules in it: what these compute is then given to the piece, and what
// they read is among its outputs.
//
// By values: the nodes that compute the outputs from the inputs. It is refused if an output depends
// on anything else that only the caller can give. If no inputs are named, those of the graph that
// the outputs depend on are taken.
//
// Either way the piece has the initializers that its nodes read (external ones keep their location,
// offset and length; data inside the model comes along), subgraphs with the node that owns them,
// the functions that it calls, opset imports and metadata. Outside nodes whose values follow from
// initializers alone come along with a module, so that constants stay constants. Types and shapes
// of new inputs and outputs are those that the model states; where it states none, the element type
// is inferred, and an input whose type stays unknown is refused.
//
// Results are deterministic. Memory: about 8 times the graph without its weights. The functions
// keep no state and may run in several threads at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "onnx_external/model.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"

namespace onnx_external {

// Either `module`, or `without`, or both; or `outputs` with or without `inputs`.
struct CutOptions {
  std::string module;  // "" beside `without`: the model itself
  // Names of values of the main graph. No name may be there twice. An initializer named as an input
  // is left out, so that the caller gives its value.
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  // Modules inside of `module` whose nodes the piece does not have.
  std::vector<std::string> without;
};

// What a piece has. A plain value.
struct CutReport {
  std::vector<std::string> inputs;   // in the order of the piece's graph.input; for a module, that
                                     // of first use. Inputs with a default value come last
  std::vector<std::string> outputs;  // likewise; for a module, in the order of the nodes
  // Inputs whose value in the whole model depends on an output of the piece, because nodes outside
  // stand between two calls of the module.
  std::vector<std::string> fed_back;
  std::vector<std::string> untyped;  // outputs without a known element type
  std::uint64_t nodes = 0;           // of the main graph
  std::uint64_t initializers = 0;
  std::uint64_t functions = 0;
  std::uint64_t weight_bytes = 0;       // of its external tensors and its inline ones
  std::uint64_t model_bytes = 0;        // of the piece's model itself
  std::vector<std::string> data_files;  // locations that it refers to, sorted
};

struct Piece {
  std::string model;  // a serialized ModelProto
  CutReport report;
};

// The piece as bytes. Its locations are relative to model.source_dir(); ONNX Runtime finds the data
// of a model in memory with session.model_external_initializers_file_folder_path.
//
// kInvalidArgument if `options` name no module and no output, or both, a name twice, an output that
// no node makes, an input that no output depends on or that stands beside a value which its node
// makes as well, a module in `without` that has no node in `module`; kNotFound for a module or
// value that the main graph does not have, and the nearest names are listed; kMismatch if the
// inputs do not cut the outputs off from a graph input, which is named; kUnsupported for what lies
// inside a subgraph, for an input of unknown type, and for a model whose data is in memory
// (kLooseLocation); kCorrupt if a value is defined twice or by nothing, or the nodes are not in
// topological order.
[[nodiscard]] Result<Piece> cut_model(const Model& model, const CutOptions& options);

struct CutFileOptions {
  // kAllow replaces an older piece. Other files are never replaced.
  Overwrite overwrite = Overwrite::kRefuse;
  Sync sync = Sync::kFiles;
};

// Writes a piece beside its model, completely or not at all. Its metadata_props have the entry
// "onnx_external.cut_from", which names the parent with its size and CRC-32, so that verify_model()
// notices when the parent was replaced. Saves into the folder treat it as any model that refers to
// data: what it needs is not removed. Errors as for cut_model() and Model::load(); kInvalidArgument
// if `piece_path` is not in the folder of the model, because loaders refuse locations outside a
// model's folder, or does not end with ".onnx", since a save looks for data in use in such files
// only; kAlreadyExists; kIo also if a save is at work in the folder.
[[nodiscard]] Result<CutReport> cut_model_file(const std::filesystem::path& model_path,
                                               const std::filesystem::path& piece_path,
                                               const CutOptions& options,
                                               const CutFileOptions& file_options = {});

}  // namespace onnx_external
