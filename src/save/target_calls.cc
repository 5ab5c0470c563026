#include "save/target_calls.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>

#include "base/try.h"
#include "save/output_names.h"

namespace onnx_external {
namespace {

// A sync takes as long as copying about so much.
constexpr std::uint64_t kMinProbedBytes = std::uint64_t{16} << 20;

Sync probed_sync(const TransactionOptions& options) {
  const auto add = [](std::uint64_t sum, const PlannedFile& file) {
    return sum + std::min(file.bytes, kMinProbedBytes);
  };
  const std::uint64_t bytes =
      std::accumulate(options.files.begin(), options.files.end(), std::uint64_t{0}, add);
  return bytes < kMinProbedBytes ? Sync::kNone : options.sync;
}

// Removes the file from the folder at the end.
class Probe {
 public:
  Probe(const Directory& folder, std::string name) : folder_(folder), name_(std::move(name)) {}
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;
  ~Probe() { (void)::unlinkat(folder_.fd(), name_.c_str(), 0); }

  [[nodiscard]] Status put(const Directory& staging, Replace replace, Sync sync) const {
    TRY(write_file(staging, name_, "", sync));
    return rename_entry(staging, name_, folder_, name_, replace);
  }

 private:
  const Directory& folder_;
  std::string name_;
};

}  // namespace

// The probe has the name of a staging folder, so that the next save removes one that is left.
Status check_target_calls(const Directory& out, const Directory& staging,
                          const TransactionOptions& options) {
  const Sync sync = probed_sync(options);
  TRY_ASSIGN(auto name, random_staging_name());
  const Probe probe(out, std::move(name));
  TRY(probe.put(staging, Replace::kNo, sync));
  TRY(options.overwrite == Overwrite::kAllow ? probe.put(staging, Replace::kYes, Sync::kNone)
                                             : Status());
  return sync_folder(out, sync);
}

}  // namespace onnx_external
