// Flattens objects of custom classes in a checkpoint to named tensors, using a table of functions
// that callers can extend. This is mainly for caches, such as transformers' DynamicCache. (torch
// calls such classes pytree nodes.)
//
// There is no global state: fill a table and point OpenOptions::classes to it. Nothing that a
// pickle names is imported or called. A registered function receives the pickled parts of an object
// and returns the object's children with their names. Children that are objects of custom classes
// are flattened by their own functions.
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
  kList,  // or a set
  kTuple,
  kDict,    // or another object on which items were set
  kObject,  // an object of any other class
  kOther,   // numbers, text, symbols, ...
};

// A read-only view of one value in a pickle. It is cheap to copy, and valid only during the call of
// the function that receives it. The number of accesses per file is limited. Beyond the limit,
// accessors return empty results and opening fails with kUnsupported.
class PickledValue {
 public:
  [[nodiscard]] PickledKind kind() const;

  // Returns "module.name" of an object's class, as the pickle states it; empty for values without a
  // class.
  [[nodiscard]] std::string type() const;

  // Returns the elements of a list, tuple or set, in order. For an object of another class, returns
  // the elements that the pickle appends to it.
  [[nodiscard]] std::vector<PickledValue> elements() const;

  // Returns the items of a dict, in order. Items whose key is neither text nor an integer are left
  // out.
  [[nodiscard]] std::vector<std::pair<std::string, PickledValue>> items() const;

  // Returns the arguments with which an object's class is called.
  [[nodiscard]] std::vector<PickledValue> arguments() const;

  // Returns an attribute of an object, from its __dict__ or __slots__. If the pickle sets the
  // attribute twice, returns the later value.
  [[nodiscard]] std::optional<PickledValue> attribute(std::string_view name) const;

 private:
  friend struct PickledValueAccess;
  class Visitor;
  PickledValue(Visitor& visitor, std::uint32_t node) : visitor_(&visitor), node_(node) {}

  Visitor* visitor_;
  std::uint32_t node_;
};

// A child of an object, and the name that is appended (after a dot) to the object's name.
struct FlattenedPart {
  std::string name;
  PickledValue value;
};

// Lists the children of one object in the order in which they are flattened. If it returns an error
// or throws a std::exception, opening fails and the message names the object's path. It may run on
// a different thread from the one that called open_checkpoint(), but a single call of
// open_checkpoint() never runs it on two threads at once.
using FlattenFunction =
    std::function<Result<std::vector<FlattenedPart>>(const PickledValue& object)>;

// The table of flattening functions, by class name. Const members may be called from several
// threads at once.
class ClassFlattening {
 public:
  // Registers a function. `qualified_name` is "module.Class", or "module.*" for all classes of a
  // module that have no function of their own. An earlier registration of the same name is
  // replaced.
  void register_class_flattening(std::string qualified_name, FlattenFunction function);

  // Removes the function for this name. Returns false if none is registered.
  bool unregister_class_flattening(std::string_view qualified_name);

  // Registers the classes of transformers (docs/formats.md lists them with the resulting names):
  // DynamicCache, StaticCache, SlidingWindowCache (key_cache and value_cache lists, or layers with
  // keys and values), EncoderDecoderCache, MambaCache, BatchEncoding and BatchFeature (returned by
  // tokenizers and processors), and all of transformers.modeling_outputs. The children are in the
  // order in which transformers registers them for torch.export: all keys, then all values.
  void register_cache_classes();
  void unregister_cache_classes();

  // Returns the function for a class, or null if none is registered.
  [[nodiscard]] const FlattenFunction* find(std::string_view qualified_name) const;
  [[nodiscard]] bool empty() const { return functions_.empty(); }

 private:
  std::map<std::string, FlattenFunction, std::less<>> functions_;
};

}  // namespace onnx_external
