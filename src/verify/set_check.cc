#include "verify/set_check.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/directory.h"
#include "base/try.h"
#include "save/identity.h"
#include "save/output_folder.h"
#include "save/record.h"
#include "verify/findings.h"

namespace onnx_external {
namespace {

ModelIdentity identity_of(const SetMember& member) {
  return {member.bytes, member.crc32};
}

// Returns the models that are not in place, in a set whose save was killed and to which this model
// belongs; empty if there is no such set.
std::vector<std::string> not_in_place(const Directory& folder, const Publication& publication,
                                      const std::string& model) {
  std::vector<std::string> names;
  bool is_of_set = false;
  for (const PublishedModel& published : publication.models) {
    is_of_set = is_of_set || published.name == model;
    if (identify(folder, published.name) != published.model) {
      names.push_back(published.name);
    }
  }
  const bool is_mixed = is_of_set && names.size() < publication.models.size();
  return is_mixed ? names : std::vector<std::string>();
}

std::vector<std::string> cut_off_models(const Directory& folder, const std::string& model) {
  const auto entries = folder.entries();
  for (std::size_t i = 0; entries && i < entries->size(); ++i) {
    const auto staging = is_staging_name((*entries)[i]) ? folder.open_folder((*entries)[i])
                                                        : fail(ErrorCode::kNotFound, "");
    const auto record = staging ? read_record(*staging) : fail(staging.error());
    if (!record || !*record || !(*record)->publication) {
      continue;
    }
    if (auto names = not_in_place(folder, *(*record)->publication, model); !names.empty()) {
      return names;
    }
  }
  return {};
}

}  // namespace

std::vector<SetMember> set_of(const Directory& folder, const std::string& name) {
  const auto model = identify(folder, name);
  auto manifests = model ? find_manifests(folder, name, *model)
                         : Result<std::vector<PlacedManifest>>(std::vector<PlacedManifest>());
  for (std::size_t i = 0; manifests && i < manifests->size(); ++i) {
    if (auto& set = (*manifests)[i].manifest.set; !set.empty()) {
      return std::move(set);
    }
  }
  return {};
}

namespace {

// The models of the manifest's set that belong to a set with another state of this model.
std::vector<std::string> models_of_other_saves(const Directory& folder, const ModelFile& model,
                                               const Manifest& manifest) {
  std::vector<std::string> names;
  for (const SetMember& member : manifest.set) {
    const auto found = member.file == model.name ? std::nullopt : identify(folder, member.file);
    if (!found || *found == identity_of(member)) {
      continue;
    }
    const std::vector<SetMember> set = set_of(folder, member.file);
    const bool is_mixed = std::any_of(set.begin(), set.end(), [&](const SetMember& other) {
      return other.file == model.name &&
             identity_of(other) != ModelIdentity{model.bytes, model.crc32};
    });
    if (is_mixed) {
      names.push_back(member.file);
    }
  }
  return names;
}

void report_mixed(const std::vector<std::string>& names, const char* why,
                  std::vector<Finding>& findings) {
  for (const std::string& name : names) {
    findings.push_back({FindingCode::kMixedSet, "", name_in_finding(name), why});
  }
}

bool report_if_mixed(const Directory& folder, const ModelFile& model, const Manifest* manifest,
                     std::vector<Finding>& findings) {
  if (const auto names = cut_off_models(folder, model.name); !names.empty()) {
    report_mixed(names,
                 "not in place yet: a save of several models was interrupted; the next save to "
                 "this folder completes it",
                 findings);
    return true;
  }
  if (manifest == nullptr || manifest->set.empty()) {
    return false;
  }
  const auto names = models_of_other_saves(folder, model, *manifest);
  if (!names.empty()) {
    report_mixed(
        names, "was saved together with a different version of this model; save both models again",
        findings);
  }
  return !names.empty();
}

}  // namespace

void check_set(const ModelFile& model, const Manifest* manifest, std::vector<Finding>& findings) {
  const auto folder = Directory::open(model.folder);
  std::vector<Finding> suspicion;
  if (!folder || !report_if_mixed(*folder, model, manifest, suspicion) || folder->is_locked()) {
    return;
  }
  // A save that was at work may have ended in between.
  (void)report_if_mixed(*folder, model, manifest, findings);
}

Result<std::vector<std::filesystem::path>> find_models(const std::filesystem::path& path) {
  const auto folder = Directory::open(path);
  const auto entries = folder ? folder->entries() : fail(folder.error());
  std::vector<std::string> names;
  for (std::size_t i = 0; entries && i < entries->size(); ++i) {
    if ((*entries)[i].ends_with(".onnx")) {
      names.push_back((*entries)[i]);
    }
  }
  // A model that was replaced on its own does not concern the others.
  const auto names_all = [&](const std::string& member) {
    const std::vector<SetMember> set = set_of(*folder, member);
    return !set.empty() && std::all_of(names.begin(), names.end(), [&](const std::string& name) {
      return std::any_of(set.begin(), set.end(),
                         [&](const SetMember& other) { return other.file == name; });
    });
  };
  const bool are_one_set = names.size() > 1 && std::any_of(names.begin(), names.end(), names_all);
  if (!are_one_set) {
    TRY_ASSIGN(auto model, find_model(path));
    return std::vector<std::filesystem::path>{std::move(model)};
  }
  std::vector<std::filesystem::path> models;
  for (const std::string& name : names) {
    models.push_back(path / name);
  }
  return models;
}

}  // namespace onnx_external
