#include "inspect/quantized_list.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "save/packed_json.h"
#include "verify/manifest_check.h"

namespace onnx_external {
namespace {

// The tensors of a matrix, by rising index. A tied embedding has its codes in two shapes.
using Parts = std::vector<std::pair<std::size_t, MatrixPart>>;

// Names of parts end with that of the part: "q_proj.weight.codes".
std::string matrix_name(const std::string& part) {
  const std::size_t dot = part.rfind('.');
  return dot == std::string::npos || dot == 0 ? part : part.substr(0, dot);
}

// Parts of one matrix have this in common.
using MatrixKey = std::tuple<std::uint32_t, std::string, std::string, std::string, std::string,
                             std::uint64_t, std::uint64_t>;

MatrixKey matrix_key(const ManifestTensor& record) {
  const PackedTensor& packed = *record.packed;
  return {record.graph,
          matrix_name(record.slot),
          record.key,
          recipe_text(record.recipe),
          scheme_text(packed.scheme),
          packed.rows,
          packed.columns};
}

std::optional<std::size_t> find_part(const Parts& parts, MatrixPart wanted) {
  const auto found = std::find_if(parts.begin(), parts.end(),
                                  [&](const auto& part) { return part.second == wanted; });
  return found == parts.end() ? std::nullopt : std::optional(found->first);
}

// The first tensor of each part; nothing if one is missing.
std::optional<std::vector<std::size_t>> bytes_of(const Parts& parts, const Scheme& scheme) {
  std::vector<std::size_t> found;
  for (const MatrixPart part : {MatrixPart::kCodes, MatrixPart::kScales, MatrixPart::kZeroPoints}) {
    if (part == MatrixPart::kZeroPoints && !scheme.zero_points) {
      continue;
    }
    const auto index = find_part(parts, part);
    if (!index) {
      return std::nullopt;
    }
    found.push_back(*index);
  }
  return found;
}

InspectedTensor join(const ManifestTensor& record, const Parts& parts,
                     std::span<const std::size_t> bytes, std::vector<InspectedTensor>& tensors) {
  const PackedTensor& packed = *record.packed;
  InspectedTensor matrix;
  matrix.name = matrix_name(record.slot);
  matrix.dtype = "int" + std::to_string(packed.scheme.bits);
  matrix.shape = {static_cast<std::int64_t>(packed.rows),
                  static_cast<std::int64_t>(packed.columns)};
  matrix.file = tensors[bytes.front()].file;
  matrix.offset = tensors[bytes.front()].offset;
  for (const std::size_t index : bytes) {
    matrix.nbytes = add_bytes(matrix.nbytes, tensors[index].nbytes);
  }
  matrix.scheme = packed.scheme;
  matrix.key = record.key;
  for (const auto& [index, part] : parts) {
    matrix.parts.push_back(std::move(tensors[index]));
  }
  return matrix;
}

// The parts by matrix.
std::map<MatrixKey, Parts> find_parts(std::span<const ManifestTensor* const> records,
                                      std::span<const InspectedTensor> tensors,
                                      std::span<const ListedTensor> listed) {
  std::map<MatrixKey, Parts> found;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const ManifestTensor* const record = records[i];
    if (record != nullptr && record->packed && tensors[i].problem.empty() &&
        tensors[i].nbytes == packed_bytes(*record->packed) &&
        is_packed_type(*record->packed, listed[i].proto->data_type())) {
      found[matrix_key(*record)].emplace_back(i, record->packed->part);
    }
  }
  return found;
}

}  // namespace

std::vector<std::vector<std::size_t>> join_parts(const ModelFile& model,
                                                 std::span<const ListedTensor> listed,
                                                 Inspection& inspection) {
  std::vector<InspectedTensor>& tensors = inspection.tensors;
  std::vector<std::vector<std::size_t>> sources(tensors.size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    sources[i] = {i};
  }
  const auto found = find_manifest(model, listed);
  if (!found || !found->manifest || !knows(*found->manifest, model)) {
    return sources;
  }
  const TensorIndex index = index_tensors(listed);
  const ManifestFacts facts =
      match_manifest(*found->manifest, found->location, listed.size(), index);
  for (const auto& [key, parts] : find_parts(facts.records, tensors, listed)) {
    const ManifestTensor& record = *facts.records[parts.front().first];
    auto bytes = bytes_of(parts, record.packed->scheme);
    if (!bytes) {
      continue;
    }
    InspectedTensor matrix = join(record, parts, *bytes, tensors);
    for (const auto& [part, kind] : parts) {
      sources[part].clear();
    }
    tensors[parts.front().first] = std::move(matrix);
    sources[parts.front().first] = std::move(*bytes);
  }
  std::vector<InspectedTensor> left;
  inspection.bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!sources[i].empty()) {
      inspection.bytes = add_bytes(inspection.bytes, tensors[i].nbytes);
      left.push_back(std::move(tensors[i]));
    }
  }
  tensors = std::move(left);
  std::erase_if(sources, [](const auto& each) { return each.empty(); });
  return sources;
}

}  // namespace onnx_external
