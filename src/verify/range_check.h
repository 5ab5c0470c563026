// Reads ranges of data files in parallel: checks that the file is not a link, compares the bytes
// with the checkpoint, and computes their CRC-32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/byte_comparer.h"
#include "base/progress_meter.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/plan.h"
#include "onnx_external/recipe.h"
#include "onnx_external/result.h"
#include "onnx_external/verify.h"

namespace onnx_external {

// A checkpoint tensor in the form that the model must contain.
struct WantedTensor {
  std::size_t source_index = 0;             // index into Checkpoint::tensors()
  Recipe recipe = {};                       // applied to it first
  std::optional<DType> cast_to = {};        // the type to which its values are then converted
  std::optional<PackedTensor> packed = {};  // which part of it is meant once it is quantized
  TensorSource source = TensorSource::kCheckpoint;
};

// The finding for a tensor of LazyBytes. Its bytes cannot be produced again, so the finding names
// no differing byte.
inline constexpr const char* kNotWhatWasMade =
    "its CRC-32 differs from that of the bytes that were produced";

// A range of a file beneath the model's folder, and what to check.
struct RangeCheck {
  std::string location;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::optional<WantedTensor> equals;
  // With `equals` and Compare::kRecordedCrc: ExpectedTensor::written_crc.
  std::optional<std::uint32_t> written_crc = {};
  bool wants_crc = false;
};

struct Fault {
  FindingCode code = FindingCode::kMissingFile;
  std::string message;
};

struct RangeAnswer {
  std::optional<Fault> fault;  // set if the range could not be read; nothing else is known then
  std::optional<ByteDifference> difference;  // counted from the start of the range
  bool own = false;         // with `equals`: the checkpoint's own range instead of a copy
  bool hard_links = false;  // the file has several names
  bool hub_link = false;    // it is a link of the Hub's cache
  std::uint32_t crc32 = 0;  // with wants_crc
};

// One answer per check, in order, the same for any number of threads. `checkpoint` may be null if
// no check has `equals`. Each thread holds two buffers of at most 1 MiB, and kMaxTiles threads also
// a tile each (checkpoint/storage/tiled_view.h). A range in one of the checkpoint's own files is
// read only to check a CRC-32 that the checkpoint records. Fails if the checkpoint cannot be read
// or is damaged, or if the caller cancelled.
[[nodiscard]] Result<std::vector<RangeAnswer>> check_ranges(const std::filesystem::path& folder,
                                                            std::span<const RangeCheck> checks,
                                                            const Checkpoint* checkpoint,
                                                            const VerifyOptions& options,
                                                            ProgressMeter& meter);

// The lower-case hex SHA-1 of a whole file beneath `folder`.
[[nodiscard]] Result<std::string> file_sha1(const std::filesystem::path& folder,
                                            const std::string& location, ProgressMeter& meter);

}  // namespace onnx_external
