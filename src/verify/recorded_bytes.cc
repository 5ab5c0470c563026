#include "verify/recorded_bytes.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/read_back.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx/tensor_list.h"
#include "verify/findings.h"
#include "verify/manifest_check.h"
#include "verify/model_file.h"

namespace onnx_external {
namespace {

bool is_of_checkpoint_alone(const SavePlan& plan, std::uint32_t model_index) {
  const auto is_other = [&](const PlannedTensor& tensor) {
    return tensor.model_index != model_index;
  };
  const auto is_of_checkpoint = [&](const PlannedTensor& tensor) {
    return is_other(tensor) || tensor.source == TensorSource::kCheckpoint;
  };
  return !std::all_of(plan.tensors.begin(), plan.tensors.end(), is_other) &&
         std::all_of(plan.tensors.begin(), plan.tensors.end(), is_of_checkpoint);
}

// Returns nullopt if there is no manifest; the model is read only if there is one.
Result<std::optional<FoundManifest>> manifest_of(ModelFile& model,
                                                 const std::filesystem::path& path,
                                                 const std::vector<ListedTensor>& tensors) {
  auto found = find_manifest(model, tensors);
  if (found && !path.empty()) {
    TRY_ASSIGN(const auto file, SourceFile::open(path));
    TRY_ASSIGN(model.crc32, range_crc32(*file, 0, file->size()));
    model.bytes = file->size();
    found = find_manifest(model, tensors);
  }
  if (found && !found->manifest) {
    Error error = found->manifest.error();
    error.message +=
        "; without a readable manifest, changes to the model's bytes cannot be detected; to "
        "continue anyway, remove it";
    return fail(std::move(error));
  }
  return found;
}

std::string path_of(const ModelFile& file, const std::string& location) {
  return quote((file.folder / location).string());
}

Error changed_since(const ModelFile& file, const FoundManifest& found) {
  return Error{ErrorCode::kMismatch,
               (file.folder / file.name).string() + ": does not match its manifest " +
                   path_of(file, found.location) +
                   "; the model was damaged or changed after it was saved, or the manifest belongs "
                   "to another model: restore the model, or remove the manifest to use this model"};
}

Error contradicted(const ModelFile& file, const FoundManifest& found, const ListedTensor& tensor,
                   const std::string& message) {
  return Error{ErrorCode::kMismatch, (file.folder / file.name).string() + ": tensor " +
                                         quote(tensor.name) + ": " + message + " (" +
                                         path_of(file, found.location) +
                                         "); to continue without the manifest, remove it"};
}

using Crcs = std::vector<std::optional<std::uint32_t>>;  // of each listed tensor

// A model with all data inside can only be checked by its own CRC-32.
bool is_of_model_alone(const Manifest& manifest) {
  return std::all_of(manifest.tensors.begin(), manifest.tensors.end(),
                     [](const ManifestTensor& tensor) { return tensor.file.empty(); });
}

// A manifest that was written for another model is trusted for ranges of a file that this model
// also uses, because they describe the file, not the model.
Result<Crcs> recorded_crcs(const ModelFile& file, const FoundManifest& found,
                           const std::vector<ListedTensor>& tensors, const TensorIndex& index) {
  const Manifest& manifest = *found.manifest;
  const bool is_its_own = knows(manifest, file);
  const bool is_of_another_state = !is_its_own && manifest.model_file == file.name;
  if (is_of_another_state && is_of_model_alone(manifest)) {
    return fail(changed_since(file, found));
  }
  const ManifestFacts facts = match_manifest(manifest, found.location, tensors.size(), index);
  Crcs crcs(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (facts.records[i] == nullptr) {
      continue;
    }
    std::vector<Finding> ignored;  // loading the model has already rejected bad entries
    const bool external = is_external(*tensors[i].proto);
    const auto entry = external ? read_entry(tensors[i], ignored) : std::nullopt;
    if (external && !entry) {
      continue;
    }
    const std::string message =
        contradiction(*facts.records[i], found.folder, tensors[i], entry ? &*entry : nullptr);
    if (!message.empty() && is_its_own) {
      return fail(contradicted(file, found, tensors[i], message));
    }
    if (message.empty() && is_of_another_state) {
      return fail(changed_since(file, found));
    }
    if (message.empty() && (is_its_own || external)) {
      crcs[i] = facts.records[i]->crc32;
    }
  }
  return crcs;
}

Status note_crcs_of(const Model& model, std::uint32_t model_index, SavePlan& plan) {
  TRY_ASSIGN(const auto tensors, list_tensors(model.proto()));
  ModelFile file;  // its tensors are listed already
  file.folder = model.source_dir();
  file.name = model.path().filename().string();
  TRY_ASSIGN(const auto found, manifest_of(file, model.path(), tensors));
  if (!found) {
    return {};
  }
  const TensorIndex index = index_tensors(tensors);
  TRY_ASSIGN(const auto crcs, recorded_crcs(file, *found, tensors, index));
  for (PlannedTensor& tensor : plan.tensors) {
    if (tensor.model_index != model_index) {
      continue;
    }
    if (tensor.source == TensorSource::kModelExternal) {
      const ExternalTensor& given = model.external_tensors()[tensor.source_index];
      tensor.recorded_crc = crcs[index.at({given.graph, given.place, given.name})];
    } else if (tensor.source == TensorSource::kModelInline) {
      const InlineTensor& given = model.inline_tensors()[tensor.source_index];
      tensor.recorded_crc = crcs[index.at({given.graph, given.place, given.name})];
    }
  }
  return {};
}

}  // namespace

Status note_recorded_crcs(const SourceModels& models, SavePlan& plan) {
  for (std::uint32_t model_index = 0; model_index < models.all().size(); ++model_index) {
    if (!is_of_checkpoint_alone(plan, model_index)) {
      TRY(note_crcs_of(models.all()[model_index], model_index, plan));
    }
  }
  return {};
}

}  // namespace onnx_external
