// Chooses and recognizes the names of data files, shards and manifests, which are derived from the
// name of the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace onnx_external {

// A data folder is called "<data_dir>" or "<data_dir>.N", where N counts how often the model was
// replaced (the generation). This function returns N for "<base>.N", 0 for `base` itself, and
// nullopt for any other name.
[[nodiscard]] std::optional<std::uint64_t> generation_of(std::string_view name,
                                                         std::string_view base);

// Files next to the model are called "model.data", "model-00001-of-00003.data" and
// "model.manifest.json", or with a generation "model.N.data" and so on. The caller may choose
// another name for data files (PlanOptions::data_name), but not for the manifest, by which a save
// finds a model's old data.
[[nodiscard]] std::string_view data_stem(std::string_view model_name);  // "model" for "model.onnx"
// Returns "model" or "model.N", with the N of `data_dir`.
[[nodiscard]] std::string numbered_stem(std::string_view model_name, std::string_view data_dir);
[[nodiscard]] std::string manifest_file_name(std::string_view numbered_stem);
// Returns the numbered stem of a name that manifest_file_name() returned, or nullopt for any other
// name.
[[nodiscard]] std::optional<std::string_view> stem_of_manifest_file(std::string_view name);

// The name of the data files of a save, in two parts. "weights.bin" becomes "weights.N.bin" and
// "weights.N-00001-of-00003.bin", with the N of `data_dir`. Shards of "model.onnx_data" are called
// "model.N.onnx_data", "model.N.onnx_data_1", "model.N.onnx_data_2", because browsers look for
// these names.
struct DataName {
  std::string stem;
  std::string suffix;  // with the dot; may be empty
};
// Splits `data_name`; if it is empty, returns the default for the model: "model" and ".data".
[[nodiscard]] DataName data_name_of(std::string_view model_name, std::string_view data_name);
// Returns the name of the data file of a set of models: `data_name`, or "initializers.data" if it
// is empty.
[[nodiscard]] std::string set_data_name(std::string_view data_dir, std::string_view data_name);
[[nodiscard]] std::string single_file_name(const DataName& name, std::string_view data_dir);
[[nodiscard]] std::string shard_file_name(const DataName& name, std::string_view data_dir,
                                          std::size_t number, std::size_t count);

// Returns the reason why a data file must not have this plain name, because other files have names
// of this form. Returns nullopt if it may have the name.
[[nodiscard]] std::optional<std::string_view> data_name_fault(std::string_view model_name,
                                                              std::string_view name);

// Returns the generation N of a name that the functions above return, 0 if the name has none, and
// nullopt for any other name.
[[nodiscard]] std::optional<std::uint64_t> generation_of_data_file(std::string_view file,
                                                                   const DataName& name);
// Returns "-00001-of-00002" for "model.1-00001-of-00002.data", and "" for a file that is not a
// shard.
[[nodiscard]] std::string_view shard_mark(std::string_view file);
// Returns "model.1" for "model.1.data" and for "model.1-00001-of-00002.data", and nullopt for a
// name that does not end with ".data".
[[nodiscard]] std::optional<std::string_view> stem_of_data_file(std::string_view name);

// The names "test_data_set_N" and "input_K.pb", for which the runner of onnx's backend tests looks.
inline constexpr std::string_view kTestSetStem = "test_data_set_";
inline constexpr std::string_view kTestInputStem = "input_";
inline constexpr std::string_view kTestInputSuffix = ".pb";
[[nodiscard]] bool is_test_set_name(std::string_view name);
[[nodiscard]] bool is_test_input_name(std::string_view name);

}  // namespace onnx_external
