// One alignment for the whole file: nothing, a prefix added to the keys, or one removed from them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "mapping/task.h"

namespace onnx_external {

struct Alignment {
  enum class Kind : std::uint8_t { kNone, kRemove, kAdd };
  Kind kind = Kind::kNone;
  std::string prefix;  // with its separator: "module."
};

struct AlignedPair {
  std::uint32_t slot_name = 0;  // index into MappingTask::slot_names
  std::uint32_t key = 0;
  bool exact = true;  // equal as they are, not only once refined
};

// Names that refine alike, of which no pair can be preferred.
struct AlignmentConflict {
  std::vector<std::uint32_t> slot_names;
  std::vector<std::uint32_t> keys;
};

// What an alignment does with the slots that are still open.
struct Aligned {
  Alignment alignment;
  std::vector<AlignedPair> fits;     // names meet, types and shapes agree as far as stated
  std::vector<AlignedPair> clashes;  // names meet, types or shapes differ
  std::vector<AlignmentConflict> conflicts;
  std::uint64_t score = 0;  // slots that `fits` fills
};

// The alignment that fills most open slots; when none fills any, the one under which most names
// meet (its clashes say why). kAmbiguous when a second one fits about as well: see docs/mapping.md.
// Only Kind::kNone is tried with Match::kExact and with an empty --prefix.
[[nodiscard]] Result<Aligned> choose_alignment(const MappingTask& task);

// "", "+prefix", "-prefix".
[[nodiscard]] std::string alignment_text(const Alignment& alignment);

}  // namespace onnx_external
