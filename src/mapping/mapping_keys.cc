// Describes the tensors of a checkpoint as keys for the mapping.
#include <utility>

#include "base/text.h"
#include "checkpoint/storage/bytes_ids.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "onnx_external/mapping.h"

namespace onnx_external {
Result<MappingKeys> mapping_keys(const Checkpoint& checkpoint) {
  MappingKeys result;
  result.tied_names = checkpoint.tied_names();
  const std::size_t count = CheckpointAccess::first_existing(checkpoint);
  result.keys.reserve(count);
  BytesIds ids(checkpoint.storages());
  for (std::size_t i = 0; i < count; ++i) {
    const TensorView& view = checkpoint.tensors()[i];
    Result<Shape> shape = onnx_shape(view.dtype, view.shape);
    if (!shape) {
      return fail_in("tensor " + quote(view.name), std::move(shape).error());
    }
    MappingKey& key = result.keys.emplace_back();
    key.name = view.name;
    key.dtype = view.dtype;
    key.shape = *std::move(shape);
    key.argument = checkpoint.argument_of(i);
    key.bytes_id = ids.id_of(view);
    const auto made_of = checkpoint.made_of(i);
    key.made_of.assign(made_of.begin(), made_of.end());
  }
  return result;
}

}  // namespace onnx_external
