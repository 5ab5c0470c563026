#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/names_of_arguments.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "checkpoint/storage/file_contents.h"

namespace onnx_external {
namespace {

// Returns how messages refer to an argument of a part.
std::string argument_name(const Checkpoint& part) {
  const bool has_path = !part.files().empty() && !part.files().front().path.empty();
  return has_path ? quote(part.files().front().path.string()) : "the given tensors";
}

}  // namespace

Result<Checkpoint> join_checkpoints(std::span<const Checkpoint* const> parts,
                                    const OpenOptions& options) {
  auto joined = std::make_unique<CheckpointAccess::Contents>(options.scratch_dir);
  std::vector<std::string> arguments;
  for (const Checkpoint* const part : parts) {
    const CheckpointAccess::Contents& contents = CheckpointAccess::contents(*part);
    std::string& format = joined->all.format;
    format = arguments.empty() || format == part->format() ? part->format() : "mixed";
    append_contents(joined->all, contents.all);
    const auto before = static_cast<std::uint32_t>(arguments.size());
    std::uint32_t last = 0;
    for (const std::uint32_t argument : contents.arguments) {
      joined->arguments.push_back(before + argument);
      last = std::max(last, argument);
    }
    arguments.resize(before + last + 1, argument_name(*part));
  }
  TRY(check_names(*joined, arguments, options.overlay));
  return CheckpointAccess::make(std::move(joined));
}

Result<Checkpoint> select_tensors(const Checkpoint& checkpoint,
                                  std::span<const SelectedTensor> selected,
                                  const OpenOptions& options) {
  auto contents = std::make_unique<CheckpointAccess::Contents>(options.scratch_dir);
  contents->all = CheckpointAccess::contents(checkpoint).all;
  contents->all.tensors.clear();
  contents->all.tied_names.clear();  // they are of other names
  NameSet names;
  for (const SelectedTensor& one : selected) {
    if (one.tensor >= checkpoint.tensors().size()) {
      return fail(ErrorCode::kInvalidArgument,
                  "tensor " + quote(one.name) + ": the checkpoint has no such tensor");
    }
    if (!names.insert(one.name).second) {
      return fail(ErrorCode::kInvalidArgument, "tensor " + quote(one.name) + " is passed twice");
    }
    contents->all.tensors.push_back(checkpoint.tensors()[one.tensor]);
    contents->all.tensors.back().name = one.name;
  }
  contents->arguments.resize(selected.size(), 0);
  return CheckpointAccess::make(std::move(contents));
}

}  // namespace onnx_external
