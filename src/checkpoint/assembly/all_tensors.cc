#include "checkpoint/assembly/all_tensors.h"

#include <utility>

#include "base/try.h"
#include "checkpoint/assembly/nested_storages.h"
#include "checkpoint/naming/module_names.h"
#include "checkpoint/torch/torch_symbols.h"

namespace onnx_external {

Status add_all_tensors(Pickle& pickle, std::optional<std::uint64_t> text_offset,
                       const OpenOptions& options, const FindStorage& find, FileContents& part) {
  label_symbols(pickle);
  NestedStorages nested(text_offset, part);
  TRY(nested.resolve(pickle));
  TRY(expand_modules(pickle, options.selection));
  TRY_ASSIGN(auto named, name_tensors(pickle, options));
  return add_tensors(
      pickle, std::move(named), options,
      [&](const TensorDeclaration& declared) {
        auto inner = nested.find(declared);
        return inner ? *std::move(inner) : find(declared);
      },
      part);
}

}  // namespace onnx_external
