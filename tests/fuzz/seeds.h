// Makes valid inputs, from which fuzzing starts.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "support/dcp_builder.h"
#include "support/temp_dir.h"
#include "support/zip_builder.h"

namespace onnx_external {

// A tensor in two chunks, and a tensor in another file.
inline DcpSpec dcp_seed() {
  const DcpTensorSpec cut{
      .name = "w",
      .shape = {2, 3},
      .chunks = {{.offsets = {0, 0},
                  .sizes = {2, 2},
                  .bytes = tensor_zip({.shape = {2, 2}, .bytes = f32({1, 2, 3, 4})})},
                 {.offsets = {0, 2},
                  .sizes = {2, 1},
                  .bytes = tensor_zip({.shape = {2, 1}, .bytes = f32({5, 6})})}}};
  const DcpTensorSpec whole{.name = "b",
                            .shape = {2},
                            .chunks = {{.offsets = {0},
                                        .sizes = {2},
                                        .bytes = tensor_zip({.shape = {2}, .bytes = f32({7, 8})}),
                                        .file = "__1_0.distcp"}}};
  return {.tensors = {cut, whole}, .bytes_items = {"step"}, .paths = {{"w", {"model", "w"}}}};
}

// A PT2 archive with this config, two records with bytes, and one written by torch.save.
inline std::string exported_archive(std::string_view config) {
  ZipBuilder zip;
  zip.add({.name = "m/archive_format", .data = "pt2"});
  zip.add({.name = "m/models/model.json", .data = "{}"});
  zip.add({.name = "m/data/weights/model_weights_config.json", .data = std::string(config)});
  zip.add({.name = "m/data/constants/model_constants_config.json", .data = std::string(config)});
  zip.add({.name = "m/data/sample_inputs/model.pt", .data = torch_zip({})});
  zip.add({.name = "m/data/weights/weight_0", .data = std::string(64, 'x')});
  zip.add({.name = "m/data/weights/weight_1", .data = ""});
  zip.add({.name = "m/data/weights/weight_2",
           .data = tensor_zip({.shape = {2}, .bytes = f32({1, 2})})});
  return zip.finish();
}

// A TorchScript archive with these pickles and this code, and a storage of four floats per pickle.
inline std::string script_archive(std::string_view pickle, std::string_view constants,
                                  std::string_view code) {
  ZipBuilder zip;
  zip.add({.name = "m/data/0", .data = f32({1, 2, 3, 4})});
  zip.add({.name = "m/data.pkl", .data = std::string(pickle)});
  zip.add({.name = "m/code/__torch__.py", .data = std::string(code)});
  zip.add({.name = "m/constants/0", .data = f32({5, 6, 7, 8})});
  zip.add({.name = "m/constants.pkl", .data = std::string(constants)});
  return zip.finish();
}

// A torch zip file with this pickle, with records of integers and floats.
inline std::string values_file(std::string_view pickle) {
  ZipBuilder zip;
  zip.add({.name = "a/data.pkl", .data = std::string(pickle)});
  zip.add({.name = "a/data/0", .data = bytes_of<std::int64_t>({0, 1, 2})});
  zip.add({.name = "a/data/1", .data = bytes_of<std::int64_t>({0, 1, 2})});
  zip.add({.name = "a/data/2", .data = f32({4, 5})});
  zip.add({.name = "a/data/3", .data = bytes_of<double>({0.5, 1, 2})});
  return zip.finish();
}

inline std::string safetensors_file(std::string_view header, std::string_view data) {
  std::string file;
  put_le(file, header.size(), 8);
  return file.append(header).append(data);
}

// Two safetensors shards ("a" in a.safetensors, "b" in b.safetensors), a torch zip file ("w" in
// c.bin) and a link out of the folder. Returns the path of the index, which is not written.
inline std::filesystem::path write_shards(const TempDir& folder) {
  for (const std::string name : {"a", "b"}) {
    folder.write(
        name + ".safetensors",
        safetensors_file(R"({")" + name + R"(":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                         f32({1, 2})));
  }
  folder.write("c.bin", torch_zip({{.name = "w", .shape = {2}, .bytes = f32({1, 2})}}));
  std::filesystem::create_symlink("../../blobs/a", folder.path() / "link");
  return folder.path() / "index.json";
}

// The number of parts in the plan whose record is read.
inline constexpr std::size_t kRecordedParts = 16;

inline constexpr std::string_view kExportedConfig =
    R"({"config": {"w": {"path_name": "weight_0", "is_param": true, "use_pickle": false,)"
    R"( "tensor_meta": {"dtype": 7, "sizes": [{"as_int": 2}, {"as_int": 3}], "layout": 7,)"
    R"( "strides": [{"as_int": 3}, {"as_int": 1}], "storage_offset": {"as_int": 1}}},)"
    R"( "e": {"path_name": "weight_1", "use_pickle": false, "tensor_meta": {"dtype": 9,)"
    R"( "sizes": [{"as_int": 0}], "strides": [{"as_int": 1}], "layout": 7,)"
    R"( "storage_offset": {"as_int": 0}}},)"
    R"( "p": {"path_name": "weight_2", "use_pickle": true, "tensor_meta": null}}})";

}  // namespace onnx_external
