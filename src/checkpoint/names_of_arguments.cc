#include "checkpoint/names_of_arguments.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/name_map.h"
#include "base/remedy.h"
#include "base/text.h"

namespace onnx_external {
namespace {

// Drops the tensors whose name also occurs in a later argument.
void drop_overlaid(CheckpointAccess::Contents& contents) {
  std::vector<TensorView>& tensors = contents.all.tensors;
  std::vector<bool> stays(tensors.size(), true);
  {
    NameMap<std::uint32_t> last;  // the last argument that has the name
    for (std::size_t i = tensors.size(); i-- > 0;) {
      const auto [found, is_new] = last.emplace(tensors[i].name, contents.arguments[i]);
      stays[i] = is_new;
      if (!is_new) {
        contents.overlaid.push_back({tensors[i].name, contents.arguments[i], found->second});
      }
    }
  }
  std::reverse(contents.overlaid.begin(), contents.overlaid.end());
  std::size_t kept = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (stays[i]) {
      std::swap(tensors[kept], tensors[i]);
      std::swap(contents.arguments[kept++], contents.arguments[i]);
    }
  }
  tensors.resize(kept);
  contents.arguments.resize(kept);
}

}  // namespace

Status check_names(CheckpointAccess::Contents& contents, std::span<const std::string> arguments,
                   bool overlay) {
  if (arguments.size() == 1) {
    return {};
  }
  if (overlay) {
    drop_overlaid(contents);
    return {};
  }
  NameMap<std::uint32_t> argument_of;
  for (std::size_t i = 0; i < contents.all.tensors.size(); ++i) {
    const std::string& name = contents.all.tensors[i].name;
    const std::uint32_t argument = contents.arguments[i];
    const auto [duplicate, is_new] = argument_of.emplace(name, argument);
    if (!is_new) {
      return fail_with(ErrorCode::kAmbiguous,
                       "tensor " + quote(name) + " is in " + arguments[duplicate->second] +
                           " and in " + arguments[argument] + "; pass only one of them",
                       {{RemedyOption::kOverlay, "", "uses the tensors of the later one"}});
    }
  }
  return {};
}

}  // namespace onnx_external
