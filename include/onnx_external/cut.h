// Cuts a piece out of a model of any size. The piece is a small model that refers to the data files
// of the original. Because no external data is read or copied, cutting a model with 16 GB of
// weights takes milliseconds.
//
//   CutOptions options;
//   options.module = "model.layers.3";
//   auto report = cut_model_file("out/model.onnx", "out/layer3.onnx", options);
//
// A piece is selected by module or by values.
//
// A piece selected by module consists of all nodes that the exporter traced while this module ran.
// The exporter records the module in the nodes' metadata (pkg.torch.onnx.name_scopes or namespace)
// or in their names ("/layer1/conv/Conv"). The name of a container that has no nodes of its own
// ("model.layers") selects all modules in it. Nodes without a module are included if they connect
// two nodes of the piece. If a module is called several times, one piece contains all calls, with
// the inputs and outputs of each. `without` leaves out modules inside the selected module: their
// outputs become inputs of the piece, and their inputs become outputs of the piece.
//
// A piece selected by values consists of the nodes that compute the given outputs from the given
// inputs. It is an error if an output depends on a graph input that is not among `inputs`. If
// `inputs` is empty, the piece has the graph inputs that its outputs depend on.
//
// In both cases the piece contains the initializers that its nodes read (external ones keep their
// location, offset and length; inline data is copied), the subgraphs that its nodes own, the
// functions that it calls, opset imports and metadata. A piece cut by module also contains nodes
// outside the module that compute constants from initializers alone, so that constants remain
// constants. New inputs and outputs have the types and shapes that the model states. If it states
// none, the element type is inferred; an input whose type remains unknown is an error.
//
// Results are deterministic. Memory use is about 8 times the size of the graph without its weights.
// The functions have no shared state and may run in several threads at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "onnx_external/model.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"

namespace onnx_external {

// Selects a piece. Set either `module`, `without` or both, or `outputs` with or without `inputs`.
struct CutOptions {
  std::string module;  // if "" and `without` is set, the whole model
  // Names of values of the main graph, each at most once. An initializer that is named as an input
  // is not part of the piece; the caller supplies its value when running the piece.
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  // Modules inside `module` whose nodes are left out of the piece.
  std::vector<std::string> without;
};

// Describes the contents of a piece.
struct CutReport {
  std::vector<std::string> inputs;   // in the order of the piece's graph.input; for a module, the
                                     // order of first use. Inputs with a default value come last
  std::vector<std::string> outputs;  // in the order of the piece's graph.output; for a module, the
                                     // order of the nodes
  // Inputs of the piece that the whole model computes from outputs of the piece. They occur if the
  // module is called more than once, with other nodes between the calls.
  std::vector<std::string> fed_back;
  std::vector<std::string> untyped;  // outputs without a known element type
  std::uint64_t nodes = 0;           // nodes in the main graph
  std::uint64_t initializers = 0;
  std::uint64_t functions = 0;
  std::uint64_t weight_bytes = 0;       // size of external and inline tensors
  std::uint64_t model_bytes = 0;        // size of the serialized model
  std::vector<std::string> data_files;  // locations that the piece refers to, sorted
};

struct Piece {
  std::string model;  // a serialized ModelProto
  CutReport report;
};

// Returns the piece as bytes. Locations of its external data are relative to model.source_dir(). To
// run the piece from memory, pass that folder to ONNX Runtime as the session option
// session.model_external_initializers_file_folder_path.
//
// Errors:
// - kInvalidArgument if `options` name both a module and an output or neither, or if a name occurs
//   twice.
// - kInvalidArgument for an output that no node computes, an input that no output depends on, and
//   an input whose node the piece needs for another of its outputs.
// - kInvalidArgument for a module in `without` that has no node in `module`.
// - kNotFound for a module or value that the main graph does not have. The message lists the
//   nearest names.
// - kMismatch if an output depends on a graph input that is not among the inputs. The message names
//   this graph input.
// - kUnsupported for a module or value inside a subgraph, an input of unknown type, and a model
//   whose data is in memory.
// - kCorrupt if a value is defined twice or not at all, or if the nodes are not in topological
//   order.
[[nodiscard]] Result<Piece> cut_model(const Model& model, const CutOptions& options);

struct CutFileOptions {
  // kAllow replaces an older piece. Other files are never replaced.
  Overwrite overwrite = Overwrite::kRefuse;
  Sync sync = Sync::kFiles;
};

// Writes a piece to a file next to its model, completely or not at all. The entry
// "onnx_external.cut_from" in the piece's metadata_props records the name, size and CRC-32 of the
// model that it was cut from, so that verify_model() can detect that this model was replaced. Later
// saves into the folder keep the data files that the piece refers to.
//
// Errors are those of cut_model() and Model::load(), and:
// - kInvalidArgument if `piece_path` is not in the folder of the model, because loaders reject
//   locations outside a model's folder.
// - kInvalidArgument if `piece_path` does not end with ".onnx", because saves look only into such
//   files for references to data.
// - kAlreadyExists if the file exists and must not be replaced.
// - kIo also if a save is running in the folder.
[[nodiscard]] Result<CutReport> cut_model_file(const std::filesystem::path& model_path,
                                               const std::filesystem::path& piece_path,
                                               const CutOptions& options,
                                               const CutFileOptions& file_options = {});

}  // namespace onnx_external
