// usage: consumer GRAPH.onnx CHECKPOINT OUT_DIR
//
// Prints where the bytes of each tensor of the checkpoint are, saves the model into OUT_DIR/whole
// in one call and into OUT_DIR/steps step by step, and gives the latter another layout in
// OUT_DIR/single.
#include <onnx_external/evidence.h>
#include <onnx_external/save_external.h>

#include <filesystem>
#include <iostream>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;
namespace oe = onnx_external;

using Paths = std::vector<fs::path>;

// "PATH<tab>OFFSET<tab>LENGTH<tab>NAME"; "-" for a tensor that is no plain range of a file.
oe::Status print_places(const Paths& paths) {
  const auto checkpoint = oe::open_checkpoint(paths);
  if (!checkpoint) {
    return oe::fail(checkpoint.error());
  }
  for (std::size_t i = 0; i < checkpoint->tensors().size(); ++i) {
    if (const auto range = checkpoint->plain_range(i)) {
      const oe::CheckpointFile& file = checkpoint->files()[range->file];
      if (range->offset + range->length > file.bytes) {
        return oe::fail(oe::ErrorCode::kCorrupt, "a tensor ends behind its file");
      }
      std::cout << file.path.string() << "\t" << range->offset << "\t" << range->length << "\t";
    } else {
      std::cout << "-\t\t\t";
    }
    std::cout << checkpoint->tensors()[i].name << "\n";
  }
  return {};
}

oe::Result<oe::SavePlan> plan(const oe::Model& model, const oe::Checkpoint& checkpoint,
                              const oe::SaveTarget& target, const oe::SaveOptions& options) {
  const auto keys = oe::mapping_keys(checkpoint);
  if (!keys) {
    return oe::fail(keys.error());
  }
  const auto mapping = oe::map_tensors(model.facts(), *keys, options.mapping,
                                       oe::mapping_evidence(model, checkpoint));
  if (!mapping) {
    return oe::fail(mapping.error());
  }
  return oe::plan_save(model, checkpoint, *mapping, target, options.plan, options.write);
}

// The whole job without save_graph_with_external_data().
oe::Status save_in_steps(const fs::path& graph, const Paths& paths, const fs::path& out) {
  const oe::SaveTarget target{.folder = out};
  const oe::SaveOptions options;
  const auto checkpoint = oe::open_checkpoint(paths, options.open);
  auto model = oe::Model::load(graph);
  if (!checkpoint || !model) {
    return oe::fail(checkpoint ? model.error() : checkpoint.error());
  }
  const auto planned = plan(*model, *checkpoint, target, options);
  if (!planned) {
    return oe::fail(planned.error());
  }
  auto staged = oe::write_plan(*planned, *model, *checkpoint, out, options.write);
  if (!staged) {
    return oe::fail(staged.error());
  }
  const auto expected = oe::expected_tensors(*planned, *model, *checkpoint);
  const auto report = oe::verify_model_against(staged->model_path(), *checkpoint, expected);
  if (!report) {
    return oe::fail(report.error());
  }
  if (!report->ok() || report->compared + report->inline_compared != expected.size()) {
    return oe::fail(oe::ErrorCode::kMismatch, "the staged model is not what was planned");
  }
  return fs::exists(out / "model.onnx")
             ? oe::fail(oe::ErrorCode::kAlreadyExists, "it is visible before it is published")
             : staged->publish();
}

oe::Status run(const fs::path& graph, const Paths& paths, const fs::path& out) {
  if (auto status = print_places(paths); !status) {
    return status;
  }
  const auto whole =
      oe::save_graph_with_external_data(out / "whole", "model.onnx", "initializers", paths, graph);
  if (!whole) {
    return oe::fail(whole.error());
  }
  if (auto status = save_in_steps(graph, paths, out / "steps"); !status) {
    return status;
  }
  oe::SaveOptions options;
  options.plan.layout = oe::Layout::kSingle;
  const auto single =
      oe::relayout_model({.folder = out / "single"}, out / "steps" / "model.onnx", options);
  return single ? oe::Status() : oe::fail(single.error());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    return 2;
  }
  const auto status = run(argv[1], {argv[2]}, argv[3]);
  if (!status) {
    std::cerr << status.error().message << "\n";
    return 1;
  }
  return 0;
}
