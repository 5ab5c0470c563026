#include "verify/range_plan.h"

#include <utility>

#include "save/planned_bytes.h"

namespace onnx_external {

RangePlan::RangePlan(const Checkpoint* checkpoint)
    : checkpoint_(checkpoint),
      ids_(checkpoint == nullptr ? std::span<const Storage>() : checkpoint->storages()) {}

RangePlan::Added RangePlan::add(const ExternalEntry& entry,
                                const std::optional<WantedTensor>& equals,
                                std::optional<std::uint32_t> written_crc, bool wants_crc,
                                std::size_t model) {
  const Expected expected =
      equals ? ids_.id_of(*planned_view(*checkpoint_, *equals), equals->cast_to) : std::nullopt;
  const auto [place, is_new] = known_.try_emplace(
      {entry.location, entry.offset, entry.length, equals.has_value(), expected}, checks_.size());
  if (is_new) {
    checks_.push_back({entry.location, entry.offset, entry.length, equals, written_crc, false});
    last_model_.push_back(model);
  }
  const std::size_t check = place->second;
  checks_[check].wants_crc |= wants_crc;
  const bool is_first = is_new || std::exchange(last_model_[check], model) != model;
  return {check, is_first ? entry.length : 0};
}

std::uint64_t RangePlan::bytes() const {
  std::uint64_t bytes = 0;
  for (const RangeCheck& check : checks_) {
    bytes += check.length;
  }
  return bytes;
}

}  // namespace onnx_external
