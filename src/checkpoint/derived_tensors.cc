// Makes derived tensors views: of a key's storage if strides can express them, otherwise of a
// storage that is joined from several storages when it is read.
#include <algorithm>
#include <climits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/dcp/dcp_chunks.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "checkpoint/storage/computed_storages.h"
#include "checkpoint/storage/expansion_limit.h"
#include "checkpoint/storage/file_contents.h"
#include "checkpoint/storage/view_source.h"
#include "onnx_external/derived.h"

namespace onnx_external {
namespace {

// A tensor on the way. The view's shape may keep dimensions apart that `shape` joins (recipe.h).
struct Value {
  TensorView view;
  Shape shape;
  std::vector<std::uint32_t> keys;  // tensors that it is made of
  std::size_t depth = 0;
};

bool is_in_shape(const Value& value) {
  return value.view.shape == value.shape;
}

// Returns the order of the dimensions, outermost first, in which the elements are stored.
// Dimensions of size 1 come first, so that stacked parts follow each other.
std::vector<std::size_t> storage_order(const TensorView& view) {
  std::vector<std::size_t> order(view.shape.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const bool a_is_one = view.shape[a] == 1;
    const bool b_is_one = view.shape[b] == 1;
    return a_is_one != b_is_one ? a_is_one : !a_is_one && view.strides[a] > view.strides[b];
  });
  return order;
}

TensorView permuted(TensorView view, const std::vector<std::size_t>& order) {
  const Shape shape = view.shape;
  const std::vector<std::int64_t> strides = view.strides;
  for (std::size_t i = 0; i < order.size(); ++i) {
    view.shape[i] = shape[order[i]];
    view.strides[i] = strides[order[i]];
  }
  return view;
}

// Returns the order in which the elements of all parts are stored; if the orders differ, the order
// of the dimensions.
std::vector<std::size_t> common_order(const std::vector<Value>& parts) {
  const auto largest =
      std::max_element(parts.begin(), parts.end(), [](const Value& a, const Value& b) {
        return element_count(a.shape).value_or(0) < element_count(b.shape).value_or(0);
      });
  std::vector<std::size_t> order = storage_order(largest->view);
  const bool suits_all = std::all_of(parts.begin(), parts.end(), [&](const Value& part) {
    const TensorView view = permuted(part.view, order);
    return is_contiguous(view.shape, view.strides);
  });
  if (!suits_all) {
    std::iota(order.begin(), order.end(), std::size_t{0});
  }
  return order;
}

class Deriver {
 public:
  Deriver(CheckpointAccess::Contents& contents, std::span<const DerivedTensor> derived)
      : contents_(contents),
        all_(contents.all),
        derived_(derived),
        first_(all_.tensors.size()),
        values_(derived.size()),
        begun_(derived.size()) {}

  Result<std::vector<Value>> derive() {
    TRY(list_names());
    for (std::size_t i = 0; i < derived_.size(); ++i) {
      TRY(named(i, 0));
    }
    std::vector<Value> made;
    for (std::optional<Value>& value : values_) {
      made.push_back(*std::move(value));
    }
    return made;
  }

 private:
  Status list_names() {
    for (std::uint32_t i = 0; i < all_.tensors.size(); ++i) {
      places_.emplace(all_.tensors[i].name, i);
    }
    for (std::size_t i = 0; i < derived_.size(); ++i) {
      const auto place = static_cast<std::uint32_t>(first_ + i);
      if (!places_.emplace(derived_[i].name, place).second) {
        return fail(ErrorCode::kAmbiguous,
                    "derived tensor " + quote(derived_[i].name) +
                        ": a key with that name exists already; choose another name");
      }
    }
    return {};
  }

  static Status check_depth(std::size_t depth) {
    return depth <= kMaxDerivedDepth
               ? Status()
               : fail(ErrorCode::kInvalidArgument, "it is nested more than " +
                                                       std::to_string(kMaxDerivedDepth) +
                                                       " definitions deep");
  }

  // `above`: how deeply the definition is nested in others.
  Result<const Value*> named(std::size_t number, std::size_t above) {
    TRY(check_depth(above + 1));
    if (!values_[number]) {
      if (begun_[number]) {
        return fail(ErrorCode::kInvalidArgument, "its definition is circular");
      }
      begun_[number] = true;
      TRY_ASSIGN_IN("derived tensor " + quote(derived_[number].name), auto value,
                    make(derived_[number].from, above));
      TRY(put_into_shape(value));
      value.depth = std::max<std::size_t>(value.depth, 1);
      values_[number] = std::move(value);
    }
    TRY(check_depth(above + values_[number]->depth));
    return &*values_[number];
  }

  Result<Value> make(const Derivation& from, std::size_t above) {
    TRY(check_depth(above));
    auto value = from.kind == DerivationKind::kKey ? of_key(from.key, above) : joined(from, above);
    if (value) {
      TRY(apply(from.recipe, *value));
    }
    return value;
  }

  Result<Value> of_key(const std::string& key, std::size_t above) {
    const auto found = places_.find(key);
    if (found == places_.end()) {
      return fail(ErrorCode::kNotFound, "the checkpoint has no key " + quote(key));
    }
    const std::uint32_t place = found->second;
    Value value;
    if (place >= first_) {
      TRY_ASSIGN(const Value* const other, named(place - first_, above + 1));
      value.view = other->view;
      value.depth = other->depth + 1;
    } else {
      value.view = all_.tensors[place];
      value.view.name.clear();
    }
    value.shape = value.view.shape;
    if (all_.storages[value.view.storage].kind == StorageKind::kMade) {
      return fail(
          ErrorCode::kUnsupported,
          "key " + quote(key) + ": its bytes are produced on demand, and are not stored anywhere");
    }
    value.keys = {place};
    return value;
  }

  Status apply(const Recipe& recipe, Value& value) {
    for (const RecipeStep& step : recipe) {
      if (step.kind == StepKind::kCast) {
        return fail(ErrorCode::kInvalidArgument,
                    "a derived tensor has the type of its keys; convert it in the map");
      }
      TRY_ASSIGN(auto shape, apply_recipe({step}, value.shape));
      auto view = is_in_shape(value) ? apply_recipe({step}, value.view)
                                     : Result<TensorView>(fail(ErrorCode::kMismatch, ""));
      if (!view) {  // no strides express it
        TRY(put_in_order(value));
        TRY_ASSIGN(view, apply_recipe({step}, value.view));
      }
      value.view = *std::move(view);
      value.shape = std::move(shape);
    }
    return {};
  }

  Status put_into_shape(Value& value) {
    return is_in_shape(value) ? Status() : put_in_order(value);
  }

  // Makes it a tensor whose elements are stored in row-major order.
  Status put_in_order(Value& value) {
    TRY_ASSIGN(const auto nbytes, contiguous_nbytes(value.view.dtype, value.shape));
    const std::uint32_t storage = add_computed(
        all_, nbytes, view_source(all_, value.view, contents_.inflated), {value.view.storage});
    value.view = view_of(storage, value.view.dtype, value.shape);
    return {};
  }

  static TensorView view_of(std::uint32_t storage, DType dtype, const Shape& shape) {
    TensorView view;
    view.dtype = dtype;
    view.shape = shape;
    view.strides = contiguous_strides(shape);
    view.storage = storage;
    return view;
  }

  // Takes a new dimension of size 1 at `dim` into account.
  static void unsqueeze(std::size_t dim, Value& value) {
    const auto at = static_cast<std::ptrdiff_t>(dim);
    value.view.shape.insert(value.view.shape.begin() + at, 1);
    value.view.strides.insert(value.view.strides.begin() + at, 1);
    value.shape = value.view.shape;
  }

  Result<std::vector<Value>> parts_of(const Derivation& from, std::size_t above) {
    if (from.parts.empty()) {
      return fail(ErrorCode::kInvalidArgument, "nothing to join");
    }
    count_ += from.parts.size();
    if (count_ > kMaxDerivedParts) {
      return fail(ErrorCode::kInvalidArgument, "a derived tensor cannot have more than " +
                                                   std::to_string(kMaxDerivedParts) + " parts");
    }
    std::vector<Value> parts;
    for (const Derivation& part : from.parts) {
      TRY_ASSIGN(auto value, make(part, above + 1));
      TRY(put_into_shape(value));
      parts.push_back(std::move(value));
    }
    return parts;
  }

  static Result<std::size_t> place_of(std::int64_t dim, std::size_t rank) {
    const auto most = static_cast<std::int64_t>(rank);
    if (dim < -most || dim >= most || rank > kMaxRank) {
      return fail(ErrorCode::kMismatch, "dimension " + std::to_string(dim) +
                                            " does not exist in tensors with " +
                                            std::to_string(rank) + " dimensions");
    }
    return static_cast<std::size_t>(dim < 0 ? dim + most : dim);
  }

  static Status check_ranks(const std::vector<Value>& parts) {
    for (const Value& part : parts) {
      if (part.shape.size() != parts.front().shape.size()) {
        return fail(ErrorCode::kMismatch, "its parts have different numbers of dimensions: " +
                                              shape_text(parts.front().shape) + " and " +
                                              shape_text(part.shape));
      }
    }
    return {};
  }

  // Adds part after part to the shape of the first one.
  static Result<Shape> joined_shape(const std::vector<Value>& parts, std::size_t dim) {
    Shape shape = parts.front().shape;
    for (std::size_t i = 1; i < parts.size(); ++i) {
      Shape next = parts[i].shape;
      const bool fits = !__builtin_add_overflow(shape[dim], next[dim], &shape[dim]);
      if (fits) {
        next[dim] = shape[dim];
      }
      if (!fits || next != shape || parts[i].view.dtype != parts.front().view.dtype) {
        return fail(ErrorCode::kMismatch, fault_of(parts.front(), "part 0") + ", and " +
                                              fault_of(parts[i], "part " + std::to_string(i)) +
                                              ": they cannot be joined along dimension " +
                                              std::to_string(dim));
      }
    }
    return shape;
  }
  static std::string fault_of(const Value& value, const std::string& what) {
    return what + " is " + std::string(torch_name(value.view.dtype)) + " " +
           shape_text(value.shape);
  }

  Result<Value> joined(const Derivation& from, std::size_t above) {
    TRY_ASSIGN(auto parts, parts_of(from, above));
    const bool stacks = from.kind == DerivationKind::kStack;
    const DType dtype = parts.front().view.dtype;
    const std::size_t rank = parts.front().shape.size() + (stacks ? 1 : 0);
    TRY_ASSIGN(const auto dim, place_of(from.dim, rank));
    if (stacks && dim + 1 == rank && dtype == DType::kFloat4E2M1FnX2) {
      return fail(ErrorCode::kMismatch,
                  "two of its values share a byte, so they cannot be stacked");
    }
    if (bit_size(dtype) < CHAR_BIT) {
      return fail(ErrorCode::kMismatch,
                  "several of its values share a byte, so they cannot be joined");
    }
    TRY(check_ranks(parts));
    for (Value& part : parts) {
      if (stacks) {
        unsqueeze(dim, part);
      }
    }
    Value value;
    TRY_ASSIGN(value.shape, joined_shape(parts, dim));
    for (const Value& part : parts) {
      value.keys.insert(value.keys.end(), part.keys.begin(), part.keys.end());
      value.depth = std::max(value.depth, part.depth);
    }
    ++value.depth;
    TRY_ASSIGN(value.view, compose(parts, dim, value.shape));
    return value;
  }

  // Returns a view of a new storage that consists of the parts in their stored order.
  Result<TensorView> compose(const std::vector<Value>& parts, std::size_t dim, const Shape& shape) {
    const DType dtype = parts.front().view.dtype;
    TRY_ASSIGN(const auto nbytes, contiguous_nbytes(dtype, shape));
    const std::vector<std::size_t> order = common_order(parts);
    const Shape stored = permuted(view_of(0, dtype, shape), order).shape;
    const auto place =
        static_cast<std::size_t>(std::find(order.begin(), order.end(), dim) - order.begin());
    std::vector<ChunkSource> chunks;
    std::vector<std::uint32_t> storages;
    JoinedParts joined{stored, {}};
    std::int64_t at = 0;
    for (const Value& part : parts) {
      const TensorView view = permuted(part.view, order);
      if (*element_count(view.shape) > 0) {
        ChunkSource chunk;
        chunk.box = {std::vector<std::int64_t>(stored.size(), 0), view.shape};
        chunk.box.offsets[place] = at;
        chunk.view = view_of(0, dtype, view.shape);
        chunk.read = view_source(all_, view, contents_.inflated);
        joined.parts.push_back({chunk.box.offsets, view});
        chunks.push_back(std::move(chunk));
        storages.push_back(view.storage);
      }
      at += view.shape[place];
    }
    const std::uint32_t storage = add_chunks(dtype, stored, nbytes, std::move(chunks), storages);
    all_.joined.emplace(storage, std::make_shared<const JoinedParts>(std::move(joined)));
    TensorView made = view_of(storage, dtype, stored);
    std::vector<std::size_t> back(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      back[order[i]] = i;
    }
    return permuted(std::move(made), back);
  }

  std::uint32_t add_chunks(DType dtype, const Shape& shape, std::uint64_t nbytes,
                           std::vector<ChunkSource> chunks, std::vector<std::uint32_t> storages) {
    std::sort(storages.begin(), storages.end());
    storages.erase(std::unique(storages.begin(), storages.end()), storages.end());
    const auto whole = std::make_shared<const ChunkedTensor>(dtype, shape, std::move(chunks));
    return add_computed(
        all_, nbytes,
        [whole](std::uint64_t first, std::span<std::byte> out) { return whole->read(first, out); },
        std::move(storages));
  }

  CheckpointAccess::Contents& contents_;
  FileContents& all_;
  std::span<const DerivedTensor> derived_;
  std::size_t first_;
  NameMap<std::uint32_t> places_;  // of keys, then of derived tensors
  std::vector<std::optional<Value>> values_;
  std::vector<bool> begun_;
  std::size_t count_ = 0;  // parts so far
};

void drop_storages_from(std::size_t first, FileContents& all) {
  for (auto storage = static_cast<std::uint32_t>(first); storage < all.storages.size(); ++storage) {
    all.computed.erase(storage);
    all.made_of.erase(storage);
    all.joined.erase(storage);
  }
  all.storages.resize(first);
}

}  // namespace

Status add_derived_tensors(Checkpoint& checkpoint, std::span<const DerivedTensor> derived,
                           std::uint64_t max_expand) {
  if (derived.empty()) {
    return {};
  }
  CheckpointAccess::Contents& contents = CheckpointAccess::contents(checkpoint);
  FileContents& all = contents.all;
  const std::size_t tensors = all.tensors.size();
  const std::size_t storages = all.storages.size();
  const auto add = [&]() -> Status {
    TRY_ASSIGN(auto values, Deriver(contents, derived).derive());
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i].view.name = derived[i].name;
      all.tensors.push_back(std::move(values[i].view));
    }
    TRY(check_tensor_expansion(all, max_expand, "derived tensors"));
    // A tensor that is made of others comes from the argument of the first key of a file.
    for (const Value& value : values) {
      std::size_t key = value.keys.front();
      while (key >= tensors) {
        key = values[key - tensors].keys.front();
      }
      contents.arguments.push_back(contents.arguments[key]);
    }
    contents.keys_of.resize(tensors);
    for (Value& value : values) {
      contents.keys_of.push_back(std::move(value.keys));
    }
    return {};
  };
  Status status = add();
  if (!status) {
    all.tensors.resize(tensors);
    drop_storages_from(storages, all);
  }
  return status;
}

}  // namespace onnx_external
