#include "checkpoint/torch_tensors.h"

#include <iterator>
#include <utility>

#include "base/checked_math.h"
#include "base/text.h"

namespace onnx_external {
namespace {

// Bytes from the start of the storage to element 0, once the whole view lies inside.
Result<std::uint64_t> checked_offset(const TensorDeclaration& declared,
                                     std::uint64_t storage_bytes) {
  const auto extent = extent_bytes(declared.dtype, declared.shape, declared.strides);
  const auto nbytes = extent ? contiguous_nbytes(declared.dtype, declared.shape) : extent;
  if (!nbytes) {
    return fail(nbytes.error());
  }
  if (*nbytes == 0) {
    return std::uint64_t{0};  // torch lets empty tensors point anywhere
  }
  const auto offset = checked_mul<std::uint64_t>(static_cast<std::uint64_t>(declared.offset),
                                                 byte_size(declared.dtype));
  if (!offset || !range_fits(*offset, *extent, storage_bytes)) {
    return fail(ErrorCode::kCorrupt,
                "shape " + shape_text(declared.shape) + ", stride " + shape_text(declared.strides) +
                    ", offset " + std::to_string(declared.offset) +
                    " reach outside its record of " + std::to_string(storage_bytes) + " bytes");
  }
  return *offset;
}

Status add_tensor(const Pickle& pickle, NamedTensor named, const FindStorage& find,
                  CheckpointPart& part) {
  auto declared = declared_tensor(pickle, named.node);
  if (!declared) {
    return fail(std::move(declared).error());
  }
  const auto storage = find(*declared);
  if (!storage) {
    return fail(storage.error());
  }
  const auto offset = checked_offset(*declared, part.storages[*storage].bytes);
  if (!offset) {
    return fail(offset.error());
  }
  TensorView view;
  view.name = std::move(named.name);
  view.dtype = declared->dtype;
  view.shape = std::move(declared->shape);
  view.strides = std::move(declared->strides);
  view.storage = *storage;
  view.storage_offset = *offset;
  part.tensors.push_back(std::move(view));
  return {};
}

}  // namespace

Result<NamedTensors> name_tensors(const Pickle& pickle, const OpenOptions& options) {
  switch (options.selection) {
    case Selection::kEverything:
      return name_everything(pickle, options.classes);
    case Selection::kRecordedInputs:
      return name_recorded_inputs(pickle, options.classes);
    case Selection::kStateDict:
      break;
  }
  return name_state_dict(pickle, options.key, options.classes);
}

Status add_tensors(const Pickle& pickle, NamedTensors named, const OpenOptions& options,
                   const FindStorage& find, CheckpointPart& part) {
  std::move(named.opaque.begin(), named.opaque.end(), std::back_inserter(part.opaque));
  std::move(named.refused.begin(), named.refused.end(), std::back_inserter(part.refused));
  const bool everything = options.selection == Selection::kEverything;
  part.tensors.reserve(part.tensors.size() + named.tensors.size());
  for (NamedTensor& tensor : named.tensors) {
    const std::string name = tensor.name;
    auto status = add_tensor(pickle, std::move(tensor), find, part);
    if (!status && everything && status.error().code == ErrorCode::kUnsupported) {
      part.refused.push_back({name, status.error().message});
    } else if (!status) {
      return fail_in("tensor " + quote(name), std::move(status).error());
    }
  }
  return {};
}

}  // namespace onnx_external
