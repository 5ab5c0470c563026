#include "checkpoint/quantized/quantized_tensors.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/bad_input.h"
#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/quantized/matrix_finder.h"
#include "checkpoint/quantized/matrix_rows.h"
#include "checkpoint/quantized/methods.h"
#include "checkpoint/quantized/rotations.h"
#include "checkpoint/storage/computed_storages.h"

namespace onnx_external {
namespace {

using FindMethod = Status (*)(MatrixFinder&);

// In this order, because a tensor that one method has used cannot be a part for the next.
constexpr std::array<FindMethod, 11> kMethods = {find_quark,        find_compressed_tensors,
                                                 find_float4,       find_float6,
                                                 find_float8,       find_awq,
                                                 find_gptq,         find_bitsandbytes,
                                                 find_grouped_axis, find_plain_integers,
                                                 find_rows_in_bytes};

// Scales that only a quantized cache or quantized activations use.
constexpr std::array<std::string_view, 7> kUnusedScales = {
    "k_scale", "v_scale", "q_scale", "kv_scale", "input_scale", "output_scale", "scaled_fp8"};

void hide_unused_scales(MatrixFinder& finder) {
  for (const std::string_view component : kUnusedScales) {
    for (const std::string& module : finder.modules_with(component)) {
      finder.hide(*finder.find(module, component));
    }
  }
}

// Returns whether the name of a module's tensor says that it changes a weight, or the inputs of the
// module. Others, such as those for quantized activations, have no meaning without the library.
bool changes_weights(std::string_view part) {
  constexpr std::array<std::string_view, 5> kChanges = {"svdquant", "rotation", "hadamard",
                                                        "smooth", "outlier"};
  return part.starts_with("weight") ||
         std::any_of(kChanges.begin(), kChanges.end(), [&](std::string_view change) {
           return part.find(change) != std::string_view::npos;
         });
}

// Checks that the modules of quantized weights have no tensors left that the formula of the weight
// lacks. They fill no slot, and a save may leave such tensors out.
Status refuse_left_parts(const FileContents& all, std::size_t first, const MatrixFinder& finder,
                         const std::vector<FoundMatrix>& found) {
  constexpr std::string_view kWeight = ".weight";
  constexpr int kMostLevels = 8;  // below the module; names of other files may have millions
  std::map<std::string_view, const QuantizedMatrix*> of_module;
  for (const FoundMatrix& one : found) {
    const std::string_view name = one.matrix.name;
    if (name.ends_with(kWeight)) {
      of_module.emplace(name.substr(0, name.size() - kWeight.size()), &one.matrix);
    }
  }
  for (std::size_t i = first; i < all.tensors.size() && !of_module.empty(); ++i) {
    const std::string_view name = all.tensors[i].name;
    std::size_t dot = finder.taken()[i] ? std::string_view::npos : name.rfind('.');
    for (int level = 0; level < kMostLevels && dot != std::string_view::npos && dot > 0; ++level) {
      const auto module = of_module.find(name.substr(0, dot));
      if (module != of_module.end() && changes_weights(name.substr(dot + 1))) {
        return unsupported(quote(std::string(name)) + ": it is stored with the weight " +
                           quote(module->second->name) + " of " + module->second->method +
                           ", but is not a part of the formula that is known here; save the model "
                           "in another format with the library that wrote it");
      }
      dot = name.rfind('.', dot - 1);
    }
  }
  return {};
}

// Layouts whose formula is not known here; most of them are made for GPU kernels.
struct RefusedLayout {
  std::string_view key;
  std::string_view value;
  std::string_view component;  // the name of a tensor that has codes in it
};
constexpr std::array kRefusedLayouts = {
    RefusedLayout{"checkpoint_format", "marlin", "qweight"},
    RefusedLayout{"checkpoint_format", "bitblas", "qweight"},
    RefusedLayout{"quant_method", "marlin", "B"},
    RefusedLayout{"version", "gemv_fast", "qweight"},
    RefusedLayout{"version", "marlin", "qweight"},
    RefusedLayout{"format", "marlin-24", "weight_packed"},
    RefusedLayout{"format", "sparse-24-bitmask", "compressed"},
    RefusedLayout{"format", "sparse-bitmask", "compressed"},
};

Status refuse_layouts(const MatrixFinder& finder) {
  const QuantSettings& settings = finder.settings();
  for (const RefusedLayout& layout : kRefusedLayouts) {
    if (settings.text(layout.key) == layout.value &&
        !finder.modules_with(layout.component).empty()) {
      return unsupported(settings.place + ": " + std::string(layout.key) +
                         ": the codes are in the layout " + quote(std::string(layout.value)) +
                         ", which is not supported; save the model in another layout with the "
                         "library that wrote it");
    }
  }
  return {};
}

std::vector<std::uint32_t> storages_of(const FoundMatrix& found) {
  std::set<std::uint32_t> storages;
  for (const TensorView& part : found.matrix.parts) {
    storages.insert(part.storage);
  }
  return {storages.begin(), storages.end()};
}

TensorView listed_view(const FoundMatrix& found, std::uint32_t storage) {
  TensorView view;
  view.name = found.matrix.name;
  view.dtype = DType::kFloat32;
  view.shape = found.shape;
  view.strides = contiguous_strides(found.shape);
  if (found.transposed) {
    const std::size_t rank = view.shape.size();
    view.strides[rank - 2] = 1;
    view.strides[rank - 1] = view.shape[rank - 2];
  }
  view.storage = storage;
  return view;
}

// Adds the storage of the weight's floats.
TensorView add_floats(FileContents& all, FoundMatrix found) {
  const std::vector<std::uint32_t> storages = storages_of(found);
  const auto matrix = std::make_shared<const QuantizedMatrix>(std::move(found.matrix));
  const std::uint64_t bytes = matrix->all_rows() * matrix->columns * sizeof(float);
  const std::uint32_t storage = add_computed(all, bytes, matrix_floats(matrix), storages);
  all.quantized.emplace(storage, matrix);
  found.matrix.name = matrix->name;
  return listed_view(found, storage);
}

using Views = NameMap<const TensorView*>;

// The tensors of the weight that are listed as they are stored.
std::string listed_parts(const Views& views, const DeclaredWeight& weight) {
  std::string text;
  for (const std::string& part : weight.parts) {
    if (const auto found = views.find(part); found != views.end()) {
      text += (text.empty() ? ": " : ", ") + quote(part) + " (" +
              std::string(torch_name(found->second->dtype)) + " " +
              shape_text(found->second->shape) + ")";
    }
  }
  return text;
}

// A weight that the file declares must have been found, with the shape that it declares and with a
// meaning of all tensors that store it.
Status check_declared_weights(const FileContents& all) {
  Views views;
  for (const TensorView& view : all.tensors) {
    views.emplace(view.name, &view);
  }
  for (const DeclaredWeight& weight : all.declared_weights) {
    const auto found = views.find(weight.name);
    const bool is_found = found != views.end() && all.quantized.contains(found->second->storage);
    if (is_found && weight.shape && found->second->shape != *weight.shape) {
      return corrupt(quote(weight.name) + ": it is a " + weight.type + " of shape " +
                     shape_text(*weight.shape) + ", but the tensors that store it are those of " +
                     shape_text(found->second->shape) + "; download the checkpoint again");
    }
    const std::string left = listed_parts(views, weight);
    if (!is_found || !left.empty()) {
      return unsupported(quote(weight.name) + ": it is a " + weight.type +
                         " in a layout that is not supported" + left +
                         "; save tensor.dequantize() instead");
    }
  }
  return {};
}

// Every layout has tensors whose names end like this.
constexpr std::array<std::string_view, 6> kScaleEnds = {"scale",        "scales", "scale_inv",
                                                        "scale_weight", "SCB",    "absmax"};

}  // namespace

bool may_be_quantized(const FileContents& all, std::size_t first) {
  return std::any_of(all.tensors.begin() + static_cast<std::ptrdiff_t>(first), all.tensors.end(),
                     [](const TensorView& view) {
                       return is_float8(view.dtype) ||
                              std::any_of(kScaleEnds.begin(), kScaleEnds.end(),
                                          [&](std::string_view end) {
                                            return std::string_view(view.name).ends_with(end);
                                          });
                     });
}

Status list_quantized_as_floats(FileContents& all, std::size_t first,
                                const std::shared_ptr<InflatedStorages>& inflated,
                                const QuantSettings& settings) {
  MatrixFinder finder(all, first, inflated, settings);
  TRY(refuse_rotations(settings));
  TRY(refuse_layouts(finder));
  for (const FindMethod find : kMethods) {
    TRY(find(finder));
  }
  std::vector<FoundMatrix> all_found = finder.take_found();
  if (!all_found.empty()) {
    hide_unused_scales(finder);
    TRY(refuse_left_parts(all, first, finder, all_found));
  }
  std::map<std::size_t, FoundMatrix> at;  // by the place of its first part
  for (FoundMatrix& found : all_found) {
    const std::size_t place = found.parts.front();
    at.emplace(place, std::move(found));
  }
  for (std::string& note : finder.take_notes()) {
    all.notes.push_back(std::move(note));
  }
  const std::vector<bool> taken = finder.taken();
  std::vector<TensorView> tensors;
  for (std::size_t i = 0; i < all.tensors.size(); ++i) {
    if (const auto found = at.find(i); found != at.end()) {
      tensors.push_back(add_floats(all, std::move(found->second)));
    }
    (taken[i] ? all.stored : tensors).push_back(std::move(all.tensors[i]));
  }
  all.tensors = std::move(tensors);
  TRY(all.declared_weights.empty() ? Status() : check_declared_weights(all));
  all.declared_weights.clear();
  return {};
}

std::shared_ptr<const QuantizedMatrix> behind(const QuantizedMatrix& matrix,
                                              std::uint32_t storages) {
  auto moved = std::make_shared<QuantizedMatrix>(matrix);
  const auto move = [&](std::optional<StoredTensor>& stored) {
    if (stored) {
      stored->view.storage += storages;
    }
  };
  const auto move_numbers = [&](GroupNumbers& numbers) {
    numbers.stored.view.storage += storages;
    move(numbers.second);
    if (numbers.nested) {
      numbers.nested->absmax.view.storage += storages;
    }
  };
  moved->codes.stored.view.storage += storages;
  move(moved->group_index);
  move(moved->column_factors);
  move_numbers(moved->scales);
  if (moved->zero_codes) {
    moved->zero_codes->stored.view.storage += storages;
  }
  if (moved->zeros) {
    move_numbers(*moved->zeros);
  }
  if (moved->minima) {
    move_numbers(*moved->minima);
  }
  for (TensorView& part : moved->parts) {
    part.storage += storages;
  }
  return moved;
}

}  // namespace onnx_external
