#include "faults/scene.h"

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/file.h"
#include "base/range_crc.h"
#include "onnx_external/verify.h"
#include "support/save_fixture.h"

namespace onnx_external {

namespace fs = std::filesystem;

namespace {

// Two large enough to be spliced, reserved and journaled; a transposed, a tied and an inline one.
std::vector<TestTensor> scene_tensors(std::uint32_t large_seed, std::uint32_t seed) {
  return {
      {.name = "large", .shape = {300, 256}, .bytes = noise(307'200, large_seed)},
      {.name = "second", .shape = {270, 256}, .bytes = noise(276'480, seed + 1)},
      {.name = "middle", .shape = {50, 100}, .bytes = noise(20'000, seed + 2)},
      {.name = "small", .shape = {16}, .bytes = noise(64, seed + 3)},
      {.name = "tied", .shape = {300, 256}, .shares = "large"},
      {.name = "turned",
       .shape = {40, 30},
       .bytes = noise(4800, seed + 4),
       .strides = std::vector<std::int64_t>{1, 40}},
      {.name = "steps", .dtype = DType::kInt64, .shape = {}, .bytes = noise(8, seed + 5)},
  };
}

constexpr std::uint64_t kSceneShardBytes = 320'000;

}  // namespace

Snapshot snapshot(const fs::path& folder) {
  Snapshot files;
  if (!fs::exists(folder)) {
    return files;
  }
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    std::string& mark = files[entry.path().lexically_relative(folder).string()];
    const auto file = SourceFile::open(entry.path());
    const auto crc = file ? range_crc32(**file, 0, (*file)->size()) : fail(file.error());
    mark = crc ? fmt::format("{} bytes {:08x}", (*file)->size(), *crc) : "folder";
  }
  return files;
}

std::vector<Form> all_forms() {
  const std::array<Form, kLayouts> layouts{Form{"per-tensor", Layout::kPerTensor},
                                           Form{"single", Layout::kSingle},
                                           Form{"shards", Layout::kShards}};
  std::vector<Form> forms(layouts.begin(), layouts.end());
  for (Form form : layouts) {
    form.name += ", no fsync";
    form.sync = Sync::kNone;
    forms.push_back(form);
  }
  for (Form form : layouts) {
    form.name += ", verified";
    form.verification = Verification::kOn;
    forms.push_back(form);
  }
  for (Form form : layouts) {
    form.name += ", direct";
    form.cache = PageCache::kBypass;
    forms.push_back(form);
  }
  for (Form form : {layouts[0], layouts[2]}) {
    form.name += ", reuse";
    form.reuse = Reuse::kEqualFiles;
    forms.push_back(form);
  }
  return forms;
}

Scene::Scene(fs::path folder) : folder_(std::move(folder)) {
  fs::create_directories(folder_);
  for (std::uint32_t seed = 1; seed <= kSeeds; ++seed) {
    std::ofstream(checkpoint(seed), std::ios::binary) << torch_zip(scene_tensors(seed, seed));
    std::ofstream(checkpoint_like_the_others(seed), std::ios::binary)
        << torch_zip(scene_tensors(seed, 1));
  }
  const Model model = model_for(scene_tensors(1, 1));
  std::ofstream(graph(), std::ios::binary) << *model.serialize();
}

fs::path Scene::checkpoint(std::uint32_t seed) const {
  return folder_ / fmt::format("{}.pt", seed);
}

fs::path Scene::checkpoint_like_the_others(std::uint32_t seed) const {
  return folder_ / fmt::format("{}.like.pt", seed);
}

Result<SaveReport> Scene::save(const SaveRequest& request, Injection injection,
                               std::size_t* calls) const {
  SaveOptions options;
  options.write.threads = request.threads;
  options.write.sync = request.form.sync;
  options.write.overwrite = request.overwrite;
  options.write.cache = request.form.cache;
  options.verification = request.form.verification;
  options.reuse = request.form.reuse;
  options.layout = request.form.layout;
  options.max_shard_bytes = kSceneShardBytes;
  const bool reuses = request.form.reuse == Reuse::kEqualFiles;
  const std::vector<fs::path> paths{reuses ? checkpoint_like_the_others(request.seed)
                                           : checkpoint(request.seed)};
  inject(injection.fault, injection.nth, injection.error_number);
  auto report = save_graph_with_external_data(request.out, "model.onnx", "initializers", paths,
                                              graph(), options);
  const std::size_t counted = stop_injecting();
  if (calls != nullptr) {
    *calls = counted;
  }
  return report;
}

std::string fault_of_model(const fs::path& out) {
  VerifyOptions options;
  options.threads = 1;
  const auto report = verify_model(out / "model.onnx", options);
  if (!report) {
    return report.error().message;
  }
  if (!report->used_manifest) {
    return "the model has no manifest";
  }
  return report->ok() ? std::string() : finding_text(report->findings.front());
}

}  // namespace onnx_external
