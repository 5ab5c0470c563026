// Names files after a tensor, or after the model beside which they lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace onnx_external {

inline constexpr std::size_t kMaxDataFileNameBytes = 200;

// True if the name is a valid file name on every common system: [A-Za-z0-9._-], at most
// kMaxDataFileNameBytes, no "..", no dot at the start or the end, no device name of Windows, not
// the manifest's name, and not of the form that hashed_file_name() gives.
[[nodiscard]] bool is_safe_file_name(std::string_view name);

// "<escaped, cut>-<16 hex digits of the name's SHA-256>".
[[nodiscard]] std::string hashed_file_name(std::string_view name);

// For tensors that come one by one, so that the file name must not depend on other names. Returns
// the name itself if it is safe and has no upper-case letters, otherwise a hashed one. The results
// are distinct on a case-insensitive file system.
[[nodiscard]] std::string streamed_file_name(std::string_view name);

// "<data_dir>" and "<data_dir>.N" are generations: N counts the models that were replaced. The N of
// "<base>.N", 0 for `base` itself; nullopt for any other name.
[[nodiscard]] std::optional<std::uint64_t> generation_of(std::string_view name,
                                                         std::string_view base);

// Files beside the model: "model.data", "model-00001-of-00003.data" and "model.manifest.json"; with
// a generation "model.N.data" and so on. Data files may have another name (PlanOptions::data_name),
// but not the manifest, because a save finds a model's old data by it.
[[nodiscard]] std::string_view data_stem(std::string_view model_name);  // "model" of "model.onnx"
// "model" or "model.N", with the N of `data_dir`.
[[nodiscard]] std::string numbered_stem(std::string_view model_name, std::string_view data_dir);
[[nodiscard]] std::string manifest_file_name(std::string_view numbered_stem);
// The numbered stem of a name that manifest_file_name() gives; nullopt for any other name.
[[nodiscard]] std::optional<std::string_view> stem_of_manifest_file(std::string_view name);

// The names of the data files of a save: "weights.bin" gives "weights.N.bin" and
// "weights.N-00001-of-00003.bin", with the N of `data_dir`. Shards of "model.onnx_data" are called
// "model.N.onnx_data", "model.N.onnx_data_1", "model.N.onnx_data_2", as browsers look for them.
struct DataName {
  std::string stem;
  std::string suffix;  // with its dot; may be empty
};
// `data_name` in its two parts; if it is empty, that of the model: "model" and ".data".
[[nodiscard]] DataName data_name_of(std::string_view model_name, std::string_view data_name);
// The name of the data file of a set: `data_name`; if it is empty, "initializers.data".
[[nodiscard]] std::string set_data_name(std::string_view data_dir, std::string_view data_name);
[[nodiscard]] std::string single_file_name(const DataName& name, std::string_view data_dir);
[[nodiscard]] std::string shard_file_name(const DataName& name, std::string_view data_dir,
                                          std::size_t number, std::size_t count);

// Says why a data file may not have this plain name: other files have names of this form. Nothing
// if it may.
[[nodiscard]] std::optional<std::string_view> data_name_fault(std::string_view model_name,
                                                              std::string_view name);

// The N of a name that the functions above return, 0 if there is none; nullopt for any other name.
[[nodiscard]] std::optional<std::uint64_t> generation_of_data_file(std::string_view file,
                                                                   const DataName& name);
// "-00001-of-00002" of "model.1-00001-of-00002.data"; "" for a file that is not a shard.
[[nodiscard]] std::string_view shard_mark(std::string_view file);
// "model.1" of "model.1.data" and of "model.1-00001-of-00002.data"; nullopt for a name that does
// not end with ".data".
[[nodiscard]] std::optional<std::string_view> stem_of_data_file(std::string_view name);

// "test_data_set_N" and "input_K.pb", as the runner of onnx's backend tests looks for them.
inline constexpr std::string_view kTestSetStem = "test_data_set_";
inline constexpr std::string_view kTestInputStem = "input_";
inline constexpr std::string_view kTestInputSuffix = ".pb";
[[nodiscard]] bool is_test_set_name(std::string_view name);
[[nodiscard]] bool is_test_input_name(std::string_view name);

}  // namespace onnx_external
