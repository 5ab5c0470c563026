#include "checkpoint/assembly/tensor_adder.h"

#include <array>
#include <cstring>
#include <iterator>

#include "base/bad_input.h"
#include "base/checked_math.h"
#include "base/remedy.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/assembly/plain_values.h"
#include "checkpoint/assembly/sparse_tensors.h"
#include "checkpoint/torch/pickle_bytes.h"
#include "checkpoint/torch/torch_objects.h"
#include "tensor/half_float.h"
#include "tensor/view_bits.h"
#include "tensor/whole_elements.h"

namespace onnx_external {
namespace {

// Returns the bytes from the start of the storage to element 0 if the whole view is inside the
// storage.
Result<std::uint64_t> checked_offset(const TensorDeclaration& declared,
                                     std::uint64_t storage_bytes) {
  const auto extent = extent_bytes(declared.dtype, declared.shape, declared.strides);
  TRY_ASSIGN(const auto nbytes,
             extent ? contiguous_nbytes(declared.dtype, declared.shape) : extent);
  if (nbytes == 0) {
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

// The memory for a view and its name, or for a computed storage. One pickled object can have many
// names.
constexpr std::uint64_t kBytesOfView = 512;

// A view of all of a computed storage.
TensorView whole_view(DType dtype, Shape shape, std::uint32_t storage) {
  TensorView view;
  view.dtype = dtype;
  view.strides = contiguous_strides(shape);
  view.shape = std::move(shape);
  view.storage = storage;
  return view;
}

std::string_view layout_name(SparseLayout layout) {
  constexpr std::array<std::string_view, 5> kNames = {"COO", "CSR", "CSC", "BSR", "BSC"};
  return kNames[static_cast<std::size_t>(layout)];
}

// Reads complex64 numbers from a source of complex32 ones.
ReadSource widening_source(ReadSource halves) {
  constexpr std::uint32_t kWide = 8;
  const auto read_whole = [halves = std::move(halves)](std::uint64_t offset,
                                                       std::span<std::byte> out) {
    auto status = halves(offset / 2, out.subspan(out.size() / 2));
    widen_halves_in_place(out);
    return status;
  };
  return [read = ReadSource(read_whole)](std::uint64_t first, std::span<std::byte> out) {
    return read_whole_elements(kWide, first, out, read);
  };
}

bool lower_halves_are_zero(const std::string& floats) {
  for (std::size_t at = 0; at + 1 < floats.size(); at += sizeof(float)) {
    if (floats[at] != 0 || floats[at + 1] != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

TensorAdder::TensorAdder(const Pickle& pickle, const OpenOptions& options, const FindStorage& find,
                         FileContents& part)
    : pickle_(pickle),
      options_(options),
      find_(find),
      part_(part),
      budget_(part, options.max_expand),
      inflated_(std::make_shared<InflatedStorages>(options.scratch_dir)) {}

Status TensorAdder::add(std::string name, NodeId node) {
  if (!is_tensor(pickle_, node)) {
    return add_value(std::move(name), node);
  }
  if (options_.selection != Selection::kRecordedInputs) {
    TRY_ASSIGN(auto weight, wrapped_weight(pickle_, node));
    if (weight) {
      return add_weight(std::move(name), *std::move(weight));
    }
  }
  TRY_ASSIGN(const auto declared, declared_tensor(pickle_, node));
  return add(std::move(name), declared);
}

Status TensorAdder::add_value(std::string name, NodeId node) {
  TRY_ASSIGN(auto value, plain_value(pickle_, node));
  TRY(budget_.take(value.numbers.bytes.size() + kBytesOfView, 1));
  part_.tensors.push_back(
      memory_view(std::move(name), std::move(value.shape), std::move(value.numbers)));
  return {};
}

Status TensorAdder::add_weight(std::string name, WrappedWeight weight) {
  TRY(budget_.take(weight.parts.size(), kBytesOfView + name.size()));
  const std::size_t last = name.rfind('.') + 1;
  const std::string prefix = name.substr(0, last) + "_" + name.substr(last) + "_";
  DeclaredWeight declared{std::move(name), quote(weight.type), std::move(weight.shape), {}};
  for (const auto& [part, node] : weight.parts) {
    TRY_ASSIGN_IN("its " + quote(part), const auto tensor, declared_tensor(pickle_, node));
    declared.parts.push_back(prefix + std::string(part));
    TRY_IN("its " + quote(part), add(declared.parts.back(), tensor));
  }
  part_.declared_weights.push_back(std::move(declared));
  return {};
}

Status TensorAdder::add(std::string name, const TensorDeclaration& declared) {
  TRY_ASSIGN(auto view, view_of(declared));
  Views beside;
  if (declared.quantizer) {
    TRY_ASSIGN(beside, quantizer_views(name, view, *declared.quantizer));
  }
  view.name = std::move(name);
  part_.tensors.push_back(std::move(view));
  std::move(beside.begin(), beside.end(), std::back_inserter(part_.tensors));
  return {};
}

Result<TensorView> TensorAdder::view_of(const TensorDeclaration& declared) {
  if (declared.sparse && !options_.densify) {
    return fail_with(ErrorCode::kUnsupported,
                     "it is a sparse tensor (" + std::string(layout_name(declared.sparse->layout)) +
                         "); convert it to a dense tensor, or save tensor.to_dense()",
                     {{RemedyOption::kConvert, "sparse", "makes it dense, with all its zeros"}});
  }
  auto view = declared.sparse ? dense_view(declared) : strided_view(declared);
  if (view && view->dtype == DType::kComplex32) {
    if (!options_.widen_complex32) {
      return fail_with(ErrorCode::kUnsupported,
                       "it is complex32, which ONNX lacks; it can become complex64",
                       {{RemedyOption::kConvert, "complex32", "makes it complex64"}});
    }
    view = widened(*view);
  }
  if (!view) {
    return view;
  }
  view->conj = declared.conj;
  view->neg = declared.neg;
  if (!has_view_bits(view->dtype, view->conj, view->neg)) {
    return unsupported("it is lazily conjugated or negated, which " +
                       std::string(torch_name(view->dtype)) +
                       " cannot be; save tensor.resolve_conj().resolve_neg() instead");
  }
  return view;
}

Result<TensorView> TensorAdder::strided_view(const TensorDeclaration& declared) {
  TRY_ASSIGN(const auto storage, storage_of(declared));
  TRY_ASSIGN(const auto offset, checked_offset(declared, part_.storages[storage].bytes));
  TensorView view;
  view.dtype = declared.dtype;
  view.shape = declared.shape;
  view.strides = declared.strides;
  view.storage = storage;
  view.storage_offset = offset;
  return view;
}

Result<std::uint32_t> TensorAdder::storage_of(const TensorDeclaration& declared) {
  if (!declared.bytes) {
    return find_(declared);
  }
  TRY_ASSIGN(auto storage, storage_of_bytes(declared));
  TRY_ASSIGN(const auto count, element_count(declared.shape));
  const std::uint64_t stored = declared.upper_halves ? sizeof(float) : byte_size(declared.dtype);
  const std::uint64_t bytes = part_.storages[storage].bytes;
  if (checked_mul(count, stored) != bytes) {
    return corrupt("its numpy shape " + shape_text(declared.shape) + " does not fit its " +
                   std::to_string(bytes) + " bytes");
  }
  return storage;
}

Result<std::uint32_t> TensorAdder::storage_of_bytes(const TensorDeclaration& declared) {
  auto found = held_.find({*declared.bytes, declared.byte_order});
  if (found == held_.end()) {
    TRY(budget_.take(most_bytes(pickle_, *declared.bytes), 1));
    TRY_ASSIGN(auto bytes, copy_bytes(pickle_, *declared.bytes));
    HeldBytes held{.storage = 0, .lower_halves_are_zero = lower_halves_are_zero(bytes)};
    const std::uint64_t size = bytes.size();
    held.storage = add_computed(
        part_, size, memory_source(std::make_shared<const std::string>(std::move(bytes))));
    part_.storages[held.storage].byte_order = declared.byte_order;
    found = held_.emplace(std::pair(*declared.bytes, declared.byte_order), held).first;
  }
  if (declared.upper_halves && !found->second.lower_halves_are_zero) {
    return unsupported(
        "it is stored as float32 and rounded to bfloat16 when it is loaded; save "
        "it again from the CPU");
  }
  return found->second.storage;
}

Result<TensorView> TensorAdder::widened(const TensorView& halves) {
  TRY_ASSIGN(const auto nbytes, contiguous_nbytes(DType::kComplex64, halves.shape));
  const ViewKey key(halves.storage, halves.storage_offset, halves.shape, halves.strides);
  auto known = widened_.find(key);
  if (known == widened_.end()) {
    const std::uint32_t storage =
        add_computed(part_, nbytes, widening_source(source_of(halves)), {halves.storage});
    known = widened_.emplace(key, storage).first;
  }
  return whole_view(DType::kComplex64, halves.shape, known->second);
}

Result<TensorView> TensorAdder::part_view(NodeId node) {
  if (!is_torch_tensor(pickle_, node)) {
    return corrupt("a part of it is not a tensor");
  }
  TRY_ASSIGN(const auto declared, declared_tensor(pickle_, node));
  if (declared.sparse || declared.quantizer) {
    return unsupported("a part of it is itself sparse or quantized");
  }
  return view_of(declared);
}

Result<TensorView> TensorAdder::dense_view(const TensorDeclaration& declared) {
  const SparseParts& parts = *declared.sparse;
  const auto known = dense_.find({parts.data, parts.layout});
  if (known != dense_.end()) {
    return known->second;
  }
  const bool coo = parts.layout == SparseLayout::kCoo;
  const auto compressed = coo ? Result<TensorView>() : part_view(parts.compressed);
  const auto indices = compressed ? part_view(parts.indices) : compressed;
  TRY_ASSIGN(const auto values, indices ? part_view(parts.values) : indices);
  TRY_ASSIGN(const auto nbytes, contiguous_nbytes(values.dtype, declared.shape));
  const auto part = [&](const TensorView& view) {
    return SparsePart{.dtype = view.dtype, .shape = view.shape, .read = source_of(view)};
  };
  TRY_ASSIGN(auto source, make_dense({.layout = parts.layout,
                                      .shape = declared.shape,
                                      .compressed = coo ? SparsePart() : part(*compressed),
                                      .indices = part(*indices),
                                      .values = part(values)},
                                     budget_));
  std::vector<std::uint32_t> from{indices->storage, values.storage};
  if (!coo) {
    from.push_back(compressed->storage);
  }
  const std::uint32_t storage = add_computed(part_, nbytes, std::move(source), std::move(from));
  TensorView view = whole_view(values.dtype, declared.shape, storage);
  dense_.emplace(std::pair(parts.data, parts.layout), view);
  return view;
}

TensorView TensorAdder::memory_view(std::string name, Shape shape, Numbers numbers) {
  const std::uint64_t size = numbers.bytes.size();
  TensorView view = whole_view(
      numbers.dtype, std::move(shape),
      add_computed(part_, size,
                   memory_source(std::make_shared<const std::string>(std::move(numbers.bytes)))));
  view.name = std::move(name);
  return view;
}

Result<TensorAdder::Views> TensorAdder::quantizer_views(const std::string& name,
                                                        const TensorView& integers,
                                                        const Quantizer& quantizer) {
  if (quantizer.per_channel) {
    return channel_views(name, integers, quantizer);
  }
  TRY_ASSIGN(auto scale, scale_numbers(quantizer.scale));
  TRY_ASSIGN(auto zero_point, zero_point_numbers(quantizer.zero_point, integers.dtype));
  return Views{memory_view(name + ".scale", {}, std::move(scale)),
               memory_view(name + ".zero_point", {}, std::move(zero_point))};
}

Result<TensorAdder::Views> TensorAdder::channel_views(const std::string& name,
                                                      const TensorView& integers,
                                                      const Quantizer& quantizer) {
  if (quantizer.axis < 0 || std::cmp_greater_equal(quantizer.axis, integers.shape.size())) {
    return corrupt("its quantizer's axis " + std::to_string(quantizer.axis) +
                   " is outside its shape " + shape_text(integers.shape));
  }
  const Shape channels{integers.shape[static_cast<std::size_t>(quantizer.axis)]};
  TRY_ASSIGN(auto scales, channel_numbers(quantizer.scales, channels[0]));
  TRY_ASSIGN(scales, scale_numbers(scales));
  TRY_ASSIGN(auto zero_points, channel_numbers(quantizer.zero_points, channels[0]));
  TRY_ASSIGN(zero_points, zero_point_numbers(zero_points, integers.dtype));
  return Views{memory_view(name + ".scale", channels, std::move(scales)),
               memory_view(name + ".zero_point", channels, std::move(zero_points)),
               memory_view(name + ".axis", {}, axis_number(quantizer.axis))};
}

// The bytes of a tensor with one number for each channel.
Result<Numbers> TensorAdder::channel_numbers(NodeId node, std::int64_t channels) {
  TRY_ASSIGN(const auto view, part_view(node));
  if (view.shape != Shape{channels}) {
    return corrupt("its quantizer has the shape " + shape_text(view.shape) + " for " +
                   std::to_string(channels) + " channels");
  }
  const std::uint64_t count = static_cast<std::uint64_t>(channels);
  TRY(budget_.take(count, byte_size(view.dtype) + sizeof(std::int64_t)));
  Numbers numbers{.dtype = view.dtype, .bytes = {}};
  numbers.bytes.resize(static_cast<std::size_t>(count * byte_size(view.dtype)));
  TRY(source_of(view)(0, std::as_writable_bytes(std::span(numbers.bytes))));
  return numbers;
}

}  // namespace onnx_external
