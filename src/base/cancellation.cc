#include "base/cancellation.h"

#include <string>
#include <string_view>
#include <utility>

namespace onnx_external {
namespace {

std::string_view doing(Phase phase) {
  switch (phase) {
    case Phase::kCopy:
      return " while copying";
    case Phase::kSync:
      return " while waiting for the disk";
    case Phase::kVerify:
      return " while verifying";
    case Phase::kCompare:
      return " while comparing tensors";
  }
  return "";
}

}  // namespace

Error cancelled_in(const std::filesystem::path& folder, std::optional<Phase> phase, Error error) {
  if (error.code == ErrorCode::kCancelled) {
    error.message = (folder.empty() ? "." : folder.string()) + ": cancelled";
    error.message += phase ? doing(*phase) : std::string_view();
    error.message += "; nothing was published";
  }
  return error;
}

ProgressFn noting_phase(const ProgressFn& given, std::optional<Phase>& phase) {
  if (!given) {
    return {};
  }
  return [&given, &phase](const Progress& progress) {
    const Continue answer = given(progress);
    if (answer == Continue::kCancel) {
      phase = progress.phase;
    }
    return answer;
  };
}

}  // namespace onnx_external
