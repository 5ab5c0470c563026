// Makes tensors in memory for tests, and models that use them as data.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "jobs/save_job.h"
#include "onnx/model_access.h"
#include "onnx_external/provided_tensors.h"
#include "support/graph_builder.h"

namespace onnx_external {

// A block of memory that tensors share. Its bytes may change while tensors use it.
using SharedText = std::shared_ptr<std::string>;

inline SharedText shared_text(std::string bytes) {
  return std::make_shared<std::string>(std::move(bytes));
}

inline MemoryBytes memory_of(const SharedText& text) {
  return {reinterpret_cast<const std::byte*>(text->data()), text->size(), text};
}

inline ProvidedTensor in_memory(const std::string& name, DType dtype, Shape shape,
                                const SharedText& text) {
  return {.info = {name, dtype, std::move(shape)}, .storage = memory_of(text)};
}

// Makes a tensor whose function delivers `bytes` and counts its calls.
inline ProvidedTensor made(const std::string& name, DType dtype, Shape shape, std::string bytes,
                           std::shared_ptr<std::atomic<int>> calls = nullptr) {
  const std::uint64_t size = bytes.size();
  return {.info = {name, dtype, std::move(shape)},
          .storage = LazyBytes{size, [bytes = std::move(bytes), calls](std::span<std::byte> out) {
                                 if (calls) {
                                   ++*calls;
                                 }
                                 const auto from = std::as_bytes(std::span(bytes));
                                 std::copy(from.begin(), from.end(), out.begin());
                                 return Status();
                               }}};
}

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Reads the contiguous bytes of a tensor.
inline Result<std::string> bytes_in(const Checkpoint& checkpoint, std::size_t tensor) {
  std::string out(checkpoint.nbytes(tensor), '\0');
  const Status read = checkpoint.read(tensor, 0, std::as_writable_bytes(std::span(out)));
  return read ? Result<std::string>(out) : fail(read.error());
}

// Returns a graph with one initializer per tensor. The data of an initializer is the tensor with
// the same index.
inline onnx::ModelProto graph_of_provided(const std::vector<ProvidedTensor>& tensors) {
  GraphBuilder builder;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& info = tensors[i].info;
    builder.external(info.name, onnx_data_type(info.dtype),
                     onnx_shape(info.dtype, info.shape).value(),
                     {{"location", std::string(kInMemoryLocation)}, {"offset", std::to_string(i)}});
    names.push_back(info.name);
  }
  builder.node("Use", names, {"y"}).output("y", kFloat, {1});
  return builder.model();
}

// Saves a graph whose data is `tensors`.
inline Result<SaveReport> save_provided(const SaveTarget& target, const onnx::ModelProto& graph,
                                        std::vector<ProvidedTensor> tensors,
                                        const SaveOptions& options) {
  SaveInputs inputs{{{target.model_name, &graph}}};
  inputs.tensors = std::move(tensors);
  return relayout(target, std::move(inputs), options);
}

// Returns a graph with one input per tensor. A checkpoint of these tensors fills the inputs.
inline onnx::ModelProto graph_for_keys(const std::vector<ProvidedTensor>& tensors) {
  GraphBuilder builder;
  std::vector<std::string> names;
  for (const ProvidedTensor& tensor : tensors) {
    const TensorInfo& info = tensor.info;
    builder.input(info.name, onnx_data_type(info.dtype),
                  onnx_shape(info.dtype, info.shape).value());
    names.push_back(info.name);
  }
  builder.node("Use", names, {"y"}).output("y", kFloat, {1});
  return builder.model();
}

}  // namespace onnx_external
