// Writes recorded inputs of a model as ONNX test data, and infers which dimensions must be
// symbolic.
//
// A recording is a file written by torch.save that contains (args, kwargs), a dict of inputs, or a
// list of such input sets. Each input set becomes test_data_set_N/input_K.pb next to the model: one
// TensorProto per graph input, in the order of graph.input, as onnx's backend test runner reads
// them (onnx/backend/test/runner). Planning functions are pure, and all functions may be called
// from several threads at once.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"
#include "onnx_external/tensor.h"

namespace onnx_external {

inline constexpr std::size_t kMaxTestDataSets = 1000;

// An input of a graph, with the type and shape that the graph states.
struct GraphInput {
  struct Dimension {
    std::optional<std::int64_t> value;
    std::string symbol;  // name of a symbolic dimension, may be empty
  };
  std::string name;
  std::int32_t elem_type = 0;                   // TensorProto.DataType; 0 = not stated
  std::optional<std::vector<Dimension>> shape;  // nullopt = not stated
};

// Returns the inputs of `graph` whose names are in `names`, in the graph's order.
[[nodiscard]] std::vector<GraphInput> graph_inputs(const onnx::GraphProto& graph,
                                                   std::span<const std::string> names);

// Opens a file of recorded inputs; options.selection and options.key are ignored. Errors as for
// open_checkpoint.
[[nodiscard]] Result<Checkpoint> open_recording(const std::filesystem::path& path,
                                                const OpenOptions& options = {});

// One tensor of an input set.
struct TestInput {
  std::string name;           // name of the graph input
  std::string recorded;       // the tensor's name in the recording: "past.key_cache.0", "[1]"
  std::size_t recording = 0;  // index of the recording
  std::size_t tensor = 0;     // index into its Checkpoint::tensors()
  std::int32_t data_type = 0;
  Shape dims;
};

struct TestDataSet {
  std::vector<TestInput> inputs;    // one per graph input, in the graph's order
  std::vector<std::string> unused;  // recorded tensors that are not inputs of the graph
};

// The result of comparing one dimension of a graph input in two or more sets.
enum class DimensionVerdict : std::uint8_t {
  kSymbolic,        // symbolic in the graph, and it varied
  kMustBeSymbolic,  // fixed in the graph, but it varied
  kNeverVaried,     // symbolic in the graph, but equal in all sets
};
[[nodiscard]] std::string_view verdict_name(DimensionVerdict verdict);  // "must-be-symbolic", ...

struct DimensionGuess {
  std::string input;
  std::size_t axis = 0;
  std::string graph;               // dimension in the graph: "4", "batch", or "?" if it has no name
  std::vector<std::int64_t> seen;  // distinct values, ascending
  DimensionVerdict verdict = DimensionVerdict::kSymbolic;
};

struct TestData {
  std::vector<TestDataSet> sets;  // ordered by recording, then by set
  // The dimensions that are symbolic or varied, in the order of the inputs; empty if there is a
  // single set.
  std::vector<DimensionGuess> dimensions;
};

// Decides which recorded tensor is the value of which input. Keyword arguments are matched by name:
// names are equal, or are equal if dots count as underscores, or spell the parts of a cache
// differently (docs/formats.md). Positional arguments are matched to the remaining inputs in order.
// If no keyword argument matches and there are as many arguments as inputs, all arguments are
// matched in order. Fails with kMismatch for an input without a tensor, for too many positional
// tensors, for a different element type or rank, and if the graph expects the values of a cache
// where its keys were recorded. Fails with kUnsupported for a type that ONNX lacks, and for more
// than kMaxTestDataSets sets. Sizes of dimensions are not compared here, but by check_test_data().
[[nodiscard]] Result<TestData> plan_test_data(std::span<const GraphInput> inputs,
                                              std::span<const Checkpoint> recordings);

// Test data and the recordings from which its tensors are read.
struct RecordedInputs {
  TestData data;
  std::vector<Checkpoint> recordings;  // TestInput::recording indexes them
};

// Compares every dimension with the graph's. Fails with kMismatch if a fixed dimension differs (the
// message names all dimensions that must become symbolic) or if a symbol has two values within one
// set.
[[nodiscard]] Status check_test_data(std::span<const GraphInput> inputs, const TestData& data);

// Return the names of a set's folder and of an input's file: "test_data_set_0", "input_0.pb".
[[nodiscard]] std::string test_set_name(std::size_t set);
[[nodiscard]] std::string test_input_name(std::size_t input);

// Returns the beginning of input_K.pb, before the tensor's bytes: a TensorProto whose last field is
// raw_data. Fails with kUnsupported if the file would exceed protobuf's limit of 2 GiB.
[[nodiscard]] Result<std::string> test_input_header(const TestInput& input, std::uint64_t nbytes);

}  // namespace onnx_external
