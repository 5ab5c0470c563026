#include "faults/scene.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/file.h"
#include "base/read_back.h"
#include "base/try.h"
#include "onnx_external/verify.h"
#include "support/provided_builder.h"
#include "support/save_fixture.h"

namespace onnx_external {

namespace fs = std::filesystem;

namespace {

// Two large enough to be spliced, reserved and recorded; a transposed, a tied and an inline one.
std::vector<TestTensor> scene_tensors(std::uint32_t seed) {
  return {
      {.name = "large", .shape = {300, 256}, .bytes = noise(307'200, seed)},
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

// A graph that holds the tensors' bytes; what is tied stands in it twice.
std::string given_graph(const std::vector<TestTensor>& tensors) {
  GraphBuilder builder;
  std::vector<std::string> inputs;
  for (const TestTensor& tensor : tensors) {
    builder.initializer(tensor.name, onnx_data_type(tensor.dtype), tensor.shape,
                        tensor.shares ? tensors[0].bytes : tensor.bytes);
    inputs.push_back(tensor.name);
  }
  builder.node("Use", inputs, {"y"}).output("y", kFloat, {1});
  return builder.bytes();
}

// The same tensors in memory, alive as long as they are used; "second" is made when it is written.
std::vector<ProvidedTensor> provided_tensors(const std::vector<TestTensor>& tensors) {
  std::map<std::string, SharedText> texts;
  std::vector<ProvidedTensor> provided;
  for (const TestTensor& tensor : tensors) {
    SharedText& text = texts[tensor.shares.value_or(tensor.name)];
    text = text ? text : shared_text(tensor.bytes);
    provided.push_back(tensor.name == "second"
                           ? made(tensor.name, tensor.dtype, tensor.shape, tensor.bytes)
                           : in_memory(tensor.name, tensor.dtype, tensor.shape, text));
    provided.back().strides = tensor.strides.value_or(std::vector<std::int64_t>());
  }
  return provided;
}

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

std::size_t files_of(const Snapshot& entries) {
  return static_cast<std::size_t>(
      std::count_if(entries.begin(), entries.end(), [&](const auto& entry) {
        const std::string inside = entry.first + "/";
        const auto first = entries.lower_bound(inside);
        return first == entries.end() || !first->first.starts_with(inside);
      }));
}

std::vector<Form> main_forms() {
  return {{.name = "per-tensor", .layout = Layout::kPerTensor},
          {.name = "single", .layout = Layout::kSingle},
          {.name = "shards", .layout = Layout::kShards},
          {.name = "inline", .layout = Layout::kInline},
          {.name = "link", .layout = Layout::kLink, .input = Input::kBeside},
          {.name = "single, cast", .layout = Layout::kSingle, .input = Input::kCast},
          {.name = "per-tensor, recorded inputs",
           .layout = Layout::kPerTensor,
           .input = Input::kRecorded},
          {.name = "shards, given", .layout = Layout::kShards, .input = Input::kGiven}};
}

std::vector<Form> all_forms() {
  const std::vector<Form> main = main_forms();
  std::vector<Form> forms = main;
  for (Form form : main) {
    form.name += ", verified";
    form.verification = Verification::kOn;
    forms.push_back(form);
  }
  for (Form form : main) {
    form.name += ", no fsync";
    form.sync = Sync::kNone;
    if (form.input == Input::kCheckpoint || form.input == Input::kBeside) {
      forms.push_back(form);
    }
  }
  for (Form form : {main[0], main[1], main[2], main[3]}) {
    form.name += ", from memory, verified";
    form.input = Input::kMemory;
    form.verification = Verification::kOn;
    forms.push_back(form);
  }
  for (Form form : {main[0], main[1], main[4], main[6]}) {
    form.name += ", no rename flags";
    form.rename_flags = false;
    forms.push_back(form);
  }
  return forms;
}

Scene::Scene(fs::path folder) : folder_(std::move(folder)) {
  fs::create_directories(folder_);
  const auto write = [](const fs::path& file, const std::string& bytes) {
    std::ofstream(file, std::ios::binary) << bytes;
  };
  const auto is_turned = [](const TestTensor& tensor) { return tensor.name == "turned"; };
  for (std::uint32_t seed = 1; seed <= kSeeds; ++seed) {
    std::vector<TestTensor> tensors = scene_tensors(seed);
    write(checkpoint(seed), torch_zip(tensors));
    write(graph({.input = Input::kGiven}, seed), given_graph(tensors));
    std::erase_if(tensors, is_turned);  // no plain range
    write(folder_ / fmt::format("plain.{}.pt", seed), torch_zip(tensors));
  }
  std::vector<TestTensor> tensors = scene_tensors(1);
  write(graph(), *model_for(tensors).serialize());
  tensors.push_back({.name = "x", .shape = {2, 3}, .bytes = noise(24, 9)});
  write(graph({.input = Input::kRecorded}), *model_for(tensors).serialize());
  write(recording(), torch_zip({tensors.back()}));
  tensors.pop_back();
  std::vector<TestTensor> halves = tensors;
  for (TestTensor& tensor : halves) {
    tensor.dtype = tensor.dtype == DType::kFloat32 ? DType::kFloat16 : tensor.dtype;
  }
  write(graph({.input = Input::kCast}), *model_for(halves).serialize());
  std::erase_if(tensors, is_turned);
  write(graph({.input = Input::kBeside}), *model_for(tensors).serialize());
}

fs::path Scene::graph(const Form& form, std::uint32_t seed) const {
  switch (form.input) {
    case Input::kCheckpoint:
    case Input::kMemory:
      break;
    case Input::kBeside:
      return folder_ / "plain.onnx";
    case Input::kCast:
      return folder_ / "halves.onnx";
    case Input::kRecorded:
      return folder_ / "called.onnx";
    case Input::kGiven:
      return folder_ / fmt::format("given.{}.onnx", seed);
  }
  return folder_ / "graph.onnx";
}

fs::path Scene::checkpoint(std::uint32_t seed) const {
  return folder_ / fmt::format("{}.pt", seed);
}

std::vector<fs::path> Scene::checkpoints(const SceneSave& request) const {
  if (request.form.input == Input::kGiven || request.form.input == Input::kMemory) {
    return {};
  }
  return {request.form.input == Input::kBeside
              ? request.out / fmt::format("plain.{}.pt", request.seed)
              : checkpoint(request.seed)};
}

void Scene::prepare(const SceneSave& request) const {
  if (request.form.input != Input::kBeside) {
    return;
  }
  fs::create_directories(request.out);
  for (std::uint32_t seed = 1; seed <= kSeeds; ++seed) {
    const std::string name = fmt::format("plain.{}.pt", seed);
    fs::copy_file(folder_ / name, request.out / name, fs::copy_options::skip_existing);
  }
}

SaveOptions Scene::options_for(const SceneSave& request) const {
  SaveOptions options;
  options.open.threads = request.threads;
  options.write.threads = request.threads;
  options.write.team = request.team;
  options.write.sync = request.form.sync;
  options.write.overwrite = request.overwrite;
  options.verification = request.form.verification;
  options.plan.layout = request.form.layout;
  if (request.form.layout == Layout::kShards) {
    options.plan.max_shard_bytes = kSceneShardBytes;
  }
  options.mapping.casts = request.form.input == Input::kCast ? Casts::kAllow : Casts::kRefuse;
  if (request.form.input == Input::kRecorded) {
    options.test_data = {recording()};
  }
  return options;
}

namespace {

// Counts the calls of a save, or lets one of them fail.
template <typename Save>
auto under_fault(const Form& form, Injection injection, std::size_t* calls, const Save& save) {
  pretend({.rename_flags = form.rename_flags});
  inject(injection.fault, injection.nth, injection.error_number);
  auto report = save();
  const std::size_t counted = stop_injecting();
  pretend({});
  if (calls != nullptr) {
    *calls = counted;
  }
  return report;
}

Model model_using(const std::vector<std::string>& keys, const Form& form) {
  std::vector<TestTensor> tensors = scene_tensors(1);
  std::erase_if(tensors, [&](const TestTensor& tensor) {
    const bool is_plain = form.input != Input::kBeside || tensor.name != "turned";
    return !is_plain || std::find(keys.begin(), keys.end(), tensor.name) == keys.end();
  });
  return model_for(tensors);
}

Result<SaveReport> save_from_memory(const SceneSave& request, const SaveOptions& options) {
  const auto tensors = scene_tensors(request.seed);
  TRY_ASSIGN(auto checkpoint, checkpoint_of(provided_tensors(tensors)));
  return save_model_with_external_data({.folder = request.out}, std::move(checkpoint),
                                       model_for(tensors), options);
}

}  // namespace

Result<SaveReport> Scene::save(const SceneSave& request, Injection injection,
                               std::size_t* calls) const {
  const SaveOptions options = options_for(request);
  prepare(request);
  const std::vector<fs::path> paths = checkpoints(request);
  const fs::path source = graph(request.form, request.seed);
  return under_fault(request.form, injection, calls, [&] {
    if (request.form.input == Input::kMemory) {
      return save_from_memory(request, options);
    }
    return paths.empty() ? relayout_model({.folder = request.out}, source, options)
                         : save_graph_with_external_data(request.out, "model.onnx", "initializers",
                                                         paths, source, options);
  });
}

Status Scene::save_set(const SceneSave& request, const std::vector<std::string>& models,
                       const KeysOfModel& keys_of, Injection injection, std::size_t* calls) const {
  SaveOptions options = options_for(request);
  options.mapping.unmatched = Unmatched::kSkip;
  prepare(request);
  const std::vector<fs::path> paths = checkpoints(request);
  std::vector<GraphToSave> graphs;
  for (const std::string& name : models) {
    graphs.push_back({name + ".onnx", model_using(keys_of(name), request.form)});
  }
  return under_fault(request.form, injection, calls, [&]() -> Status {
    if (graphs.size() == 1) {
      TRY(save_model_with_external_data(request.out, graphs[0].model_name, "initializers", paths,
                                        std::get<Model>(graphs[0].graph).proto(), options));
    } else {
      TRY(save_graphs_with_external_data({.folder = request.out}, paths, graphs, options));
    }
    return {};
  });
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
