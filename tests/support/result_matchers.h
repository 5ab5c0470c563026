// Matchers for Result and Status: EXPECT_THAT(result, IsOk()), FailsWith(code, substring). The
// substring may be one of the ways out, too: "--convert sparse", "--key a". Lists are matched by
// their kind and their names: FailsListing(code, kind, {"a.weight"}).
#pragma once

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "onnx_external/result.h"

namespace onnx_external {

MATCHER(IsOk, "succeeds") {
  if (!arg.has_value()) {
    *result_listener << "failed with: " << arg.error().message;
  }
  return arg.has_value();
}

MATCHER_P2(FailsWith, code, part, "fails with the code and a message that has the part") {
  if (arg.has_value()) {
    *result_listener << "succeeded";
    return false;
  }
  std::string said = arg.error().message;
  if (arg.error().details != nullptr) {
    for (const Remedy& remedy : arg.error().details->remedies) {
      said += "; --" + std::string(option_name(remedy.option)) +
              (remedy.value.empty() ? "" : " " + remedy.value) + ": " + remedy.when;
    }
  }
  *result_listener << "failed with code " << static_cast<int>(arg.error().code) << ": " << said;
  return arg.error().code == code && said.find(std::string(part)) != std::string::npos;
}

// The names that the error lists under the kind, of all owners.
inline std::vector<std::string> names_listed(const Error& error, ErrorKind kind) {
  std::vector<std::string> names;
  for (const ErrorList& list : error.details ? error.details->lists : std::vector<ErrorList>()) {
    for (const ErrorItem& item : list.items) {
      if (list.kind == kind) {
        names.push_back(item.name);
      }
    }
  }
  return names;
}

MATCHER_P3(ListsNames, code, kind, names, "fails with the code and lists the names") {
  if (arg.has_value()) {
    *result_listener << "succeeded";
    return false;
  }
  const std::vector<std::string> found = names_listed(arg.error(), kind);
  *result_listener << "failed with code " << static_cast<int>(arg.error().code) << ": "
                   << arg.error();
  return arg.error().code == code && !found.empty() && (names.empty() || found == names);
}

// Fails with the code, and the names are all that it lists under the kind; any if none is given.
inline auto FailsListing(ErrorCode code, ErrorKind kind,
                         const std::vector<std::string>& names = {}) {
  return ListsNames(code, kind, names);
}

}  // namespace onnx_external
