// Makes torch files from a pickle and its storages.
#pragma once

#include <string>
#include <vector>

#include "support/open_bytes.h"
#include "support/pickle_builder.h"

namespace onnx_external {

// Returns a zip file with a pickle and the records data/0, data/1, ...
inline std::string zip_of(const PickleBuilder& pickle, const std::vector<std::string>& storages) {
  ZipBuilder zip;
  zip.add({.name = "a/data.pkl", .data = pickle.bytes()});
  for (std::size_t i = 0; i < storages.size(); ++i) {
    zip.add({.name = "a/data/" + std::to_string(i), .data = storages[i]});
  }
  zip.add({.name = "a/version", .data = "3\n"});
  return zip.finish();
}

}  // namespace onnx_external
