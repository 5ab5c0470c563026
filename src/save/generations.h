// What saves have left in an output folder: generations of data ("initializers", "initializers.1"),
// each with the manifest that knows its model, and recorded inputs. Never through a link.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/directory.h"
#include "save/manifest.h"

namespace onnx_external {

// The N of "<base>.N", 0 for `base` itself; nothing for any other name.
[[nodiscard]] std::optional<std::uint64_t> generation_of(std::string_view name,
                                                         std::string_view base);

// "initializers" of "initializers" and of "initializers.12".
[[nodiscard]] std::string_view generation_base(std::string_view data_dir);

// By which a manifest knows its model.
struct ModelIdentity {
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;
  friend bool operator==(const ModelIdentity&, const ModelIdentity&) = default;
};

// Nothing when there is no such regular file, or it cannot be read.
[[nodiscard]] std::optional<ModelIdentity> identify(const Directory& folder,
                                                    const std::string& model_name);

// The manifest of the model that is in place.
[[nodiscard]] std::optional<Manifest> current_manifest(const Directory& out,
                                                       const std::string& model_name,
                                                       std::string_view base);

// True for a folder that holds nothing but files of recorded inputs.
[[nodiscard]] bool holds_only_inputs(const Directory& folder);

// True when the file has the length and the CRC-32 of the record.
[[nodiscard]] bool is_as_recorded(const Directory& folder, const std::string& name,
                                  const ManifestFile& record);

// Removes the data folder `name` if its manifest says that it belongs to the model: the files that
// the manifest lists, the manifest last (so that a killed removal can be finished), and the folder
// when nothing else is in it. What cannot be removed stays; the new model is complete without that.
// `kept`: the test data of the model that is now in place.
void remove_generation(const Directory& out, const std::string& name, const std::string& model_name,
                       const ModelIdentity& model, const std::set<std::string>& kept);

}  // namespace onnx_external
