// Opens the data file of a range that the verifier checks, and converts errors of opening or
// reading the file to findings.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "base/directory.h"
#include "base/file.h"
#include "verify/range_check.h"

namespace onnx_external {

// Converts an error of open_data_file or of reading to a finding.
[[nodiscard]] Fault fault_of(const Error& error);

// The locations of files whose contents open_range() has checked. Thread-safe.
class CheckedFiles {
 public:
  [[nodiscard]] bool contains(const std::string& location) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return locations_.contains(location);
  }
  void add(const std::string& location) {
    const std::lock_guard<std::mutex> lock(mutex_);
    locations_.insert(location);
  }

 private:
  mutable std::mutex mutex_;
  std::set<std::string> locations_;
};

// Opens the file, and records in `answer` whether it has hard links or is a link in the Hub's
// cache. If the file does not exist or does not contain the range, returns null and sets
// answer.fault.
[[nodiscard]] std::shared_ptr<const SourceFile> open_range(const Directory& folder,
                                                           const RangeCheck& check,
                                                           CheckedFiles& checked,
                                                           RangeAnswer& answer);

}  // namespace onnx_external
