#include "evidence/fresh_values.h"

#include <algorithm>
#include <utility>

#include "base/try.h"
#include "checkpoint/storage/bytes_ids.h"
#include "evidence/byte_stream.h"
#include "evidence/place_sum.h"

namespace onnx_external {

FreshValues::FreshValues(const Checkpoint& old, const Checkpoint& fresh)
    : old_(old), fresh_(fresh), unchanged_(old.tensors().size()) {
  NameMap<std::uint32_t> places;
  for (std::uint32_t i = 0; i < fresh.tensors().size(); ++i) {
    places.emplace(fresh.tensors()[i].name, i);
  }
  for (const TensorView& tensor : old.tensors()) {
    const auto found = places.find(tensor.name);
    places_.push_back(found == places.end() ? std::nullopt : std::optional(found->second));
  }
  if (std::find(places_.begin(), places_.end(), std::nullopt) != places_.end()) {
    find_tied();
  }
}

void FreshValues::find_tied() {
  BytesIds ids(old_.storages());
  std::vector<std::optional<std::size_t>> id_of;
  std::map<std::size_t, std::uint32_t> there;  // bytes of the old -> key that the new one has
  for (std::uint32_t key = 0; key < places_.size(); ++key) {
    id_of.push_back(ids.id_of(old_.tensors()[key]));
    if (id_of.back() && places_[key]) {
      there.emplace(*id_of.back(), key);
    }
  }
  for (std::uint32_t key = 0; key < places_.size(); ++key) {
    const auto tied = !places_[key] && id_of[key] ? there.find(*id_of[key]) : there.end();
    const bool alike = tied != there.end() &&
                       old_.tensors()[tied->second].shape == old_.tensors()[key].shape &&
                       old_.tensors()[tied->second].dtype == old_.tensors()[key].dtype;
    if (alike) {
      places_[key] = places_[tied->second];
    }
  }
}

Result<bool> FreshValues::equal(const Checkpoint& one, std::size_t tensor,
                                std::size_t fresh) const {
  const TensorView& mine = one.tensors()[tensor];
  const TensorView& other = fresh_.tensors()[fresh];
  if (mine.dtype != other.dtype) {
    return false;
  }
  const auto crc = one.recorded_crc(tensor);
  const auto other_crc = fresh_.recorded_crc(fresh);
  if (crc && other_crc && *crc != *other_crc) {
    return false;
  }
  return equal_streams(key_stream(one, tensor), key_stream(fresh_, fresh));
}

Result<bool> FreshValues::unchanged(std::uint32_t key) {
  if (!unchanged_[key]) {
    const auto place = places_[key];
    const bool fits = place && fresh_.tensors()[*place].shape == old_.tensors()[key].shape;
    TRY_ASSIGN(const auto same, fits ? equal(old_, key, *place) : Result<bool>(false));
    unchanged_[key] = same;
  }
  return *unchanged_[key];
}

Result<bool> FreshValues::was_uniform(std::uint32_t key) const {
  return is_uniform(key_stream(old_, key), byte_size(old_.tensors()[key].dtype));
}

Result<bool> FreshValues::all_equal(std::span<const std::uint32_t> keys) {
  for (const std::uint32_t key : keys) {
    if (lacks(key)) {
      return false;
    }
    const std::pair both(*places_[keys.front()], *places_[key]);
    if (both.first == both.second) {
      continue;
    }
    const auto known = equal_.find(both);
    TRY_ASSIGN(const auto same, known != equal_.end() ? Result<bool>(known->second)
                                                      : equal(fresh_, both.first, both.second));
    equal_.emplace(both, same);
    if (!same) {
      return false;
    }
  }
  return true;
}

Result<bool> FreshValues::is_symmetric(std::uint32_t key) const {
  const TensorView* view = places_[key] ? &fresh_.tensors()[*places_[key]] : nullptr;
  if (view == nullptr || shares_byte(view->dtype) || view->shape != old_.tensors()[key].shape) {
    return false;
  }
  PlaceSum own(byte_size(view->dtype), view->shape, PlaceSum::Places::kOwn);
  PlaceSum turned(byte_size(view->dtype), view->shape, PlaceSum::Places::kTransposed);
  TRY(for_each_chunk(key_stream(fresh_, *places_[key]), [&](std::span<const std::byte> chunk) {
    own.add(chunk);
    turned.add(chunk);
    return true;
  }));
  return own.value() == turned.value();
}

}  // namespace onnx_external
