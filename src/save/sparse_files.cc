#include "save/sparse_files.h"

#include <algorithm>

#include "base/file.h"
#include "base/holes.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "save/planned_bytes.h"

namespace onnx_external {
namespace {

std::uint64_t hole_bytes(const SourceFile& file, std::uint64_t offset, std::uint64_t end) {
  std::uint64_t bytes = 0;
  while (offset < end) {
    const FileRun run = next_run(file, offset, end);
    bytes += run.is_hole ? run.bytes : 0;
    offset += run.bytes;
  }
  return bytes;
}

}  // namespace

void note_holes(const Checkpoint& checkpoint, SavePlan& plan) {
  std::vector<bool> has_holes;
  for (const auto& file : CheckpointAccess::files(checkpoint)) {
    has_holes.push_back(may_have_holes(*file));
  }
  const bool any = std::find(has_holes.begin(), has_holes.end(), true) != has_holes.end();
  const std::size_t count = any && plan.layout != Layout::kInline ? plan.written_ranges() : 0;
  for (std::size_t i = 0; i < count; ++i) {
    const DataRange& range = plan.ranges[i];
    const PlannedTensor& tensor = plan.tensors[range.source_tensor];
    if (tensor.source != TensorSource::kCheckpoint || range.bytes < kMinHoleBytes) {
      continue;
    }
    const auto source = planned_range(checkpoint, tensor);
    if (!source || !has_holes[source->file]) {
      continue;
    }
    plan.files[range.file].hole_bytes +=
        hole_bytes(*CheckpointAccess::files(checkpoint)[source->file], source->offset,
                   source->offset + range.bytes);
  }
}

}  // namespace onnx_external
