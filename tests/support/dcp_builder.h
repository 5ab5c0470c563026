// Writes distributed checkpoints (DCP), either valid ones or ones with a false value in any field.
//
//   write_dcp(dir, {.tensors = {{.name = "w", .shape = {2, 2}, .chunks = {
//       {.offsets = {0, 0}, .sizes = {1, 2}, .bytes = tensor_zip({.shape = {1, 2}, ...})},
//       ...}}}});
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/pickle_builder.h"
#include "support/temp_dir.h"
#include "support/zip_builder.h"

namespace onnx_external {

inline constexpr std::string_view kDcpModule = "torch.distributed.checkpoint.metadata";

// Returns the file that torch.save(tensor) writes, in which the tensor is the root object.
inline std::string tensor_zip(const TestTensor& tensor, const std::string& byte_order = "little",
                              bool deflated = false) {
  PickleBuilder pickle;
  pickle.proto();
  put_tensor(pickle, tensor, "0", tensor.bytes.size());
  pickle.stop();
  ZipBuilder zip;
  zip.add({.name = "archive/data.pkl", .data = pickle.bytes()});
  zip.add({.name = "archive/byteorder", .data = byte_order});
  zip.add({.name = "archive/data/0", .data = tensor.bytes, .deflated = deflated});
  zip.add({.name = "archive/version", .data = "3\n"});
  return zip.finish();
}

struct DcpChunkSpec {
  std::vector<std::int64_t> offsets = {};
  std::vector<std::int64_t> sizes = {};
  std::string bytes = {};  // of the chunk
  std::string file = "__0_0.distcp";
  std::optional<std::int64_t> offset = {};  // in the file; by default, the true one
  std::optional<std::int64_t> length = {};
  std::string transform = {};
  int places = 1;  // number of entries in storage_data for this chunk
};

struct DcpTensorSpec {
  std::string name = {};
  std::string dtype = "float32";
  std::vector<std::int64_t> shape = {};
  std::vector<DcpChunkSpec> chunks = {};
};

struct DcpSpec {
  std::vector<DcpTensorSpec> tensors = {};
  std::vector<std::string> bytes_items = {};
  std::map<std::string, std::vector<std::string>> paths = {};  // planner_data
  std::string root = "Metadata";
};

namespace dcp_builder {

using Attributes = std::vector<std::pair<std::string, std::function<void()>>>;

// Appends an object. One function per attribute appends its value.
inline void put_object(PickleBuilder& pickle, std::string_view module, std::string_view name,
                       const Attributes& attributes) {
  pickle.global(module, name).empty_tuple().new_object().empty_dict().mark();
  for (const auto& [key, put] : attributes) {
    pickle.string(key);
    put();
  }
  pickle.set_items().build();
}

inline void put_size(PickleBuilder& pickle, const std::vector<std::int64_t>& sizes) {
  pickle.global("torch", "Size").mark().integers(sizes).tuple().reduce();
}

inline void put_tensor_item(PickleBuilder& pickle, const DcpTensorSpec& tensor) {
  put_object(pickle, kDcpModule, "TensorStorageMetadata",
             {{"properties",
               [&] {
                 pickle.global(kDcpModule, "TensorProperties").empty_tuple().new_object();
                 pickle.mark().global("torch", tensor.dtype).none().boolean(false).tuple().build();
               }},
              {"size", [&] { put_size(pickle, tensor.shape); }},
              {"chunks", [&] {
                 pickle.empty_list().mark();
                 for (const DcpChunkSpec& chunk : tensor.chunks) {
                   put_object(pickle, kDcpModule, "ChunkStorageMetadata",
                              {{"offsets", [&] { put_size(pickle, chunk.offsets); }},
                               {"sizes", [&] { put_size(pickle, chunk.sizes); }}});
                 }
                 pickle.append_items();
               }}});
}

inline void put_place(PickleBuilder& pickle, const std::string& name, const DcpChunkSpec& chunk,
                      std::int64_t offset) {
  put_object(pickle, kDcpModule, "MetadataIndex",
             {{"fqn", [&] { pickle.string(name); }},
              {"offset", [&] { put_size(pickle, chunk.offsets); }},
              {"index", [&] { pickle.integer(0); }}});
  const auto length = static_cast<std::int64_t>(chunk.bytes.size());
  Attributes info = {{"relative_path", [&] { pickle.string(chunk.file); }},
                     {"offset", [&] { pickle.integer(chunk.offset.value_or(offset)); }},
                     {"length", [&] { pickle.integer(chunk.length.value_or(length)); }}};
  if (!chunk.transform.empty()) {
    info.emplace_back("transform_descriptors",
                      [&] { pickle.mark().string(chunk.transform).tuple(); });
  }
  put_object(pickle, "torch.distributed.checkpoint.filesystem", "_StorageInfo", info);
}

}  // namespace dcp_builder

// Returns the pickle of `.metadata`. The bytes of each chunk are appended to its file in `files`.
inline std::string dcp_metadata(const DcpSpec& spec, std::map<std::string, std::string>& files) {
  using namespace dcp_builder;
  PickleBuilder pickle;
  pickle.proto();
  put_object(pickle, kDcpModule, spec.root,
             {{"state_dict_metadata",
               [&] {
                 pickle.empty_dict().mark();
                 for (const DcpTensorSpec& tensor : spec.tensors) {
                   pickle.string(tensor.name);
                   put_tensor_item(pickle, tensor);
                 }
                 for (const std::string& name : spec.bytes_items) {
                   pickle.string(name);
                   put_object(pickle, kDcpModule, "BytesStorageMetadata", {});
                 }
                 pickle.set_items();
               }},
              {"planner_data",
               [&] {
                 pickle.empty_dict().mark();
                 for (const auto& [name, path] : spec.paths) {
                   pickle.string(name).mark();
                   for (const std::string& part : path) {
                     pickle.string(part);
                   }
                   pickle.tuple();
                 }
                 pickle.set_items();
               }},
              {"storage_data", [&] {
                 pickle.empty_dict().mark();
                 for (const DcpTensorSpec& tensor : spec.tensors) {
                   for (const DcpChunkSpec& chunk : tensor.chunks) {
                     std::string& file = files[chunk.file];
                     for (int i = 0; i < chunk.places; ++i) {
                       put_place(pickle, tensor.name, chunk,
                                 static_cast<std::int64_t>(file.size()));
                     }
                     file += chunk.bytes;
                   }
                 }
                 pickle.set_items();
               }}});
  return pickle.stop().bytes();
}

// Writes the folder, without the files whose names lead out of the folder.
inline std::filesystem::path write_dcp(const TempDir& dir, const DcpSpec& spec) {
  std::map<std::string, std::string> files;
  dir.write(".metadata", dcp_metadata(spec, files));
  for (const auto& [name, bytes] : files) {
    if (name.find('/') == std::string::npos) {
      dir.write(name, bytes);
    }
  }
  return dir.path();
}

}  // namespace onnx_external
