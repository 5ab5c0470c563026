#include <fmt/format.h>

#include "base/json.h"
#include "faults/experiment.h"

namespace onnx_external {

std::string Tally::json() const {
  std::string counts;
  for (const auto& [what, count] : counts_) {
    counts += fmt::format("{}{}: {}", counts.empty() ? "" : ", ", json_quote(what), count);
  }
  std::string examples;
  for (const std::string& example : examples_) {
    examples += (examples.empty() ? "" : ", ") + json_quote(example);
  }
  return fmt::format(R"({{"runs": {}, "bad": {}, "counts": {{{}}}, "examples": [{}]}})", runs_,
                     bad_, counts, examples);
}

}  // namespace onnx_external
