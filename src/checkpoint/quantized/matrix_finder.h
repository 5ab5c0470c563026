// Collects the quantized weights of a checkpoint. The reader for a quantization method uses a
// MatrixFinder to look up the stored tensors of a module by name, and to add the weight that they
// represent.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/name_map.h"
#include "checkpoint/quantized/bands.h"
#include "checkpoint/quantized/quant_settings.h"
#include "checkpoint/quantized/quantized_matrix.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/result.h"

namespace onnx_external {

// A weight as the checkpoint will list it, with the shape of its dequantized values.
struct FoundMatrix {
  QuantizedMatrix matrix;
  Shape shape;
  bool transposed = false;         // true if `shape` ends with [columns, rows]
  std::vector<std::size_t> parts;  // indices of the stored tensors, ascending
};

class MatrixFinder {
 public:
  // Searches the tensors of `all` from index `first` on. `all` must outlive this object and must
  // not change.
  MatrixFinder(const FileContents& all, std::size_t first,
               std::shared_ptr<InflatedStorages> inflated, const QuantSettings& settings);

  [[nodiscard]] const QuantSettings& settings() const { return settings_; }

  // Returns the module names for which there is a tensor "NAME.component", in the order of the
  // file. `component` may itself contain dots.
  [[nodiscard]] std::vector<std::string> modules_with(std::string_view component) const;

  // Returns the names of tensors that end with `ending`, without this ending, which need not begin
  // with a dot.
  [[nodiscard]] std::vector<std::string> names_before(std::string_view ending) const;

  // Returns the tensor "module.component", or null if there is no such tensor or another weight
  // already uses it.
  [[nodiscard]] const TensorView* find(std::string_view module, std::string_view component) const;
  [[nodiscard]] const TensorView* find(std::string_view name) const;

  [[nodiscard]] StoredTensor stored(const TensorView& view) const;

  // Adds a weight, whose name is `matrix.name`. `parts` are the names of the stored tensors that it
  // replaces, without the name of the module; names without a tensor are ignored. If the module has
  // ModelOpt's "pre_quant_scale", these are the weight's column factors. Errors are those of
  // check_matrix().
  [[nodiscard]] Status add(QuantizedMatrix matrix, const std::string& module,
                           const std::vector<std::string_view>& parts);
  // Adds a weight whose stored tensors have no common module; `parts` are their full names.
  [[nodiscard]] Status add(FoundMatrix found, const std::vector<std::string>& parts);

  // Decides whether an error in one weight is an error for the checkpoint. If neither settings nor
  // the file state that the checkpoint is quantized, the tensors may not be parts of a quantized
  // weight. In this case the error is ignored, unless it is kIo, and the tensors stay unchanged.
  [[nodiscard]] Status accept(Status status);

  // Removes a tensor from the list, because it has no meaning without the weight.
  void hide(const TensorView& view);

  void note(std::string text) { notes_.push_back(std::move(text)); }

  std::vector<FoundMatrix> take_found() { return std::move(found_); }
  std::vector<std::string> take_notes() { return std::move(notes_); }
  [[nodiscard]] const std::vector<bool>& taken() const { return taken_; }

 private:
  const FileContents& all_;
  std::size_t first_;
  std::shared_ptr<InflatedStorages> inflated_;
  std::shared_ptr<BandPool> bands_ = std::make_shared<BandPool>();
  const QuantSettings& settings_;
  NameMap<std::size_t> places_;
  std::vector<bool> taken_;  // by index in `all_`: true if used by a weight or hidden
  std::vector<FoundMatrix> found_;
  std::vector<std::string> notes_;
};

// Returns the matrix as a weight of shape [rows, columns] or, if there are several matrices,
// [matrices, rows, columns].
[[nodiscard]] FoundMatrix whole_matrix(QuantizedMatrix matrix);

// Returns the view with its two dimensions exchanged.
[[nodiscard]] TensorView transposed_view(TensorView view);

// Returns whether the view has `rank` dimensions, all of them at least 1.
[[nodiscard]] bool has_rank(const TensorView* view, std::size_t rank);
// Returns a dimension of a view as an unsigned number.
[[nodiscard]] std::uint64_t dim(const TensorView& view, std::size_t axis);

// Returns the error for stored tensors whose shapes are inconsistent.
[[nodiscard]] tl::unexpected<Error> do_not_fit(const TensorView& a, const TensorView& b);

// Sets `group` and `groups` of the matrix. `count` is the number of values in a row of `numbers`,
// such as scales. `said` is the group size that a config states; -1 or 0 means whole rows. If the
// config states no size or a size that does not match, the number of columns must be a multiple of
// `count`. Fails with kCorrupt otherwise; the message states the tensor `numbers`.
[[nodiscard]] Status set_groups(QuantizedMatrix& matrix, std::uint64_t count,
                                std::optional<std::int64_t> said, const TensorView& numbers);

}  // namespace onnx_external
