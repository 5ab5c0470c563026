// Defines matchers for Result and Status, as in EXPECT_THAT(result, IsOk()). FailsWith(code,
// substring) also finds the substring in the remedies, such as "--convert sparse" and "--key a".
// FailsListing(code, kind, {"a.weight"}) matches lists by their kind and names.
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

// Returns the names that the error lists under the kind, for all owners.
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

// Matches a failure with this code that lists exactly these names under the kind, or any names if
// none are given.
inline auto FailsListing(ErrorCode code, ErrorKind kind,
                         const std::vector<std::string>& names = {}) {
  return ListsNames(code, kind, names);
}

}  // namespace onnx_external
