// How objects of custom classes in a checkpoint flatten to named tensors: a table that callers can
// extend, for caches above all (what exporters call pytree nodes).
//
// An explicit object, no global state: fill one, point OpenOptions::classes to it. Nothing is ever
// imported or called from a pickle; a function sees the object's recorded parts and says which of
// them are its children, under which names. Children are flattened by the same rule in turn.
//
//   ClassFlattening classes;
//   classes.register_cache_classes();
//   classes.register_class_flattening("my.module.State", [](const PickledValue& state) {
//     return std::vector<FlattenedPart>{{"hidden", *state.attribute("h")}};
//   });
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx_external/result.h"

namespace onnx_external {

enum class PickledKind : std::uint8_t {
  kNone,
  kTensor,
  kList,  // also sets
  kTuple,
  kMapping,  // a dict, and any object that had items set on it
  kObject,   // of any other class
  kOther,    // numbers, text, symbols ...
};

// A read-only view of one value in a pickle. Cheap to copy; valid only during the call of the
// function that it was given to. Looking at parts is paid for from the budget of the walk: once
// that is used up, accessors return nothing and the opening fails with kUnsupported.
class PickledValue {
 public:
  [[nodiscard]] PickledKind kind() const;

  // "module.name" of an object's class as the pickle spells it; empty for what has none.
  [[nodiscard]] std::string type() const;

  // Of a list, tuple or set; of an object: what was appended to it. In order.
  [[nodiscard]] std::vector<PickledValue> elements() const;

  // Of a mapping, in order; keys that are neither text nor whole numbers are left out.
  [[nodiscard]] std::vector<std::pair<std::string, PickledValue>> items() const;

  // What an object's class was called with.
  [[nodiscard]] std::vector<PickledValue> arguments() const;

  // An attribute of an object (its __dict__ or slots); of twins the later.
  [[nodiscard]] std::optional<PickledValue> attribute(std::string_view name) const;

 private:
  friend struct PickledValueAccess;
  class Visitor;
  PickledValue(Visitor& visitor, std::uint32_t node) : visitor_(&visitor), node_(node) {}

  Visitor* visitor_;
  std::uint32_t node_;
};

// A child and the name that is added (with a dot) to the name of its object.
struct FlattenedPart {
  std::string name;
  PickledValue value;
};

// Lists the children of one object, in the order in which they are to be flattened. An error fails
// the opening and is reported with the object's path, as is a std::exception that it throws. May be
// called from another thread than the one that opens, never from two at once for one open.
using FlattenFunction =
    std::function<Result<std::vector<FlattenedPart>>(const PickledValue& object)>;

// Const members may be called from several threads at once.
class ClassFlattening {
 public:
  // `qualified_name` is "module.Class", or "module.*" for all classes of a module without a
  // function of their own. Replaces an earlier registration of the same name.
  void register_class_flattening(std::string qualified_name, FlattenFunction function);

  // False when there is none of this name.
  bool unregister_class_flattening(std::string_view qualified_name);

  // The classes of transformers (docs/formats.md lists them with the names that come out):
  // DynamicCache, StaticCache, SlidingWindowCache (key_cache and value_cache lists, or layers with
  // keys and values), EncoderDecoderCache, MambaCache, BatchEncoding and BatchFeature (what a
  // tokenizer returns), and all of transformers.modeling_outputs.
  // Order as transformers registers them for torch.export: all keys, then all values.
  void register_cache_classes();
  void unregister_cache_classes();

  // Null when there is none.
  [[nodiscard]] const FlattenFunction* find(std::string_view qualified_name) const;
  [[nodiscard]] bool empty() const { return functions_.empty(); }

 private:
  std::map<std::string, FlattenFunction, std::less<>> functions_;
};

}  // namespace onnx_external
