// The keys of a checkpoint as the mapping sees them.
#include <map>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "onnx_external/mapping.h"

namespace onnx_external {
namespace {

// Numbers the places that tensors read their bytes from. A contiguous tensor is its range of the
// storage, whatever its shape; of any other, element size, shape, strides and bits decide.
class BytesIds {
 public:
  std::uint64_t id_of(const TensorView& view, std::uint64_t nbytes) {
    const Range range{view.storage, view.storage_offset, nbytes};
    if (is_contiguous(view.shape, view.strides) && !view.conj && !view.neg) {
      return id_of(range, ranges_);
    }
    return id_of(View{range, byte_size(view.dtype), view.shape, view.strides, view.conj, view.neg},
                 views_);
  }

 private:
  using Range = std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>;
  using View = std::tuple<Range, std::uint32_t, Shape, std::vector<std::int64_t>, bool, bool>;

  template <typename Place, typename Ids>
  std::uint64_t id_of(Place place, Ids& ids) {
    const std::uint64_t next = ranges_.size() + views_.size();
    return ids.emplace_hint(ids.end(), std::move(place), next)->second;
  }

  // Trees: a file chooses the numbers. Most checkpoints list their tensors by rising places.
  std::map<Range, std::uint64_t> ranges_;
  std::map<View, std::uint64_t> views_;
};

}  // namespace

Result<MappingKeys> mapping_keys(const Checkpoint& checkpoint) {
  MappingKeys result;
  result.tied_names = checkpoint.tied_names();
  result.keys.reserve(checkpoint.tensors().size());
  BytesIds ids;
  for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
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
    if (const std::uint64_t nbytes = checkpoint.nbytes(i); nbytes > 0) {
      key.bytes_id = ids.id_of(view, nbytes);  // empty tensors share no bytes
    }
  }
  return result;
}

}  // namespace onnx_external
