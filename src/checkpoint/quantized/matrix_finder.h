// Collects the quantized weights of a checkpoint. The reader of a quantization method looks up the
// stored tensors of a module by their names, and adds the weight that they make up.
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

// A weight as the checkpoint will list it: a view of a storage that holds its floats.
struct FoundMatrix {
  QuantizedMatrix matrix;
  Shape shape;
  bool transposed = false;         // the last two dimensions of `shape` are [columns, rows]
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

  // Returns the names that remain without an ending, which need not begin with a dot.
  [[nodiscard]] std::vector<std::string> names_before(std::string_view ending) const;

  // Returns the tensor "module.component"; null if there is none or another weight already uses it.
  [[nodiscard]] const TensorView* find(std::string_view module, std::string_view component) const;
  [[nodiscard]] const TensorView* find(std::string_view name) const;

  [[nodiscard]] StoredTensor stored(const TensorView& view) const;

  // Adds a weight. `parts` are the names of the stored tensors that it replaces, without the
  // module's name in front; names without a tensor are ignored. Errors of check_matrix().
  // `matrix.name` is the name of the weight.
  [[nodiscard]] Status add(QuantizedMatrix matrix, const std::string& module,
                           const std::vector<std::string_view>& parts);
  // Adds a weight whose stored tensors have no common module; `parts` are their full names.
  [[nodiscard]] Status add(FoundMatrix found, const std::vector<std::string>& parts);

  // Decides whether an error in one weight ends the reading. If no settings say that the checkpoint
  // is quantized, the tensors may be something other than parts of a weight; the error is then
  // dropped, and the tensors stay unchanged. kIo always ends the reading.
  [[nodiscard]] Status accept(Status status);

  // Removes from the list a tensor that has no meaning without its weight.
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
  std::vector<bool> taken_;  // by index in `all_`: used by a weight or hidden
  std::vector<FoundMatrix> found_;
  std::vector<std::string> notes_;
};

// Lists the matrix in its own shape: [rows, columns], preceded by the number of matrices if there
// are several.
[[nodiscard]] FoundMatrix whole_matrix(QuantizedMatrix matrix);

// Returns the view with its two dimensions exchanged.
[[nodiscard]] TensorView transposed_view(TensorView view);

// Returns whether the view has `rank` dimensions, all of them at least 1.
[[nodiscard]] bool has_rank(const TensorView* view, std::size_t rank);
// Returns a dimension of a view as an unsigned number; dimensions are never negative.
[[nodiscard]] std::uint64_t dim(const TensorView& view, std::size_t axis);

// Returns the error for stored tensors that do not fit together.
[[nodiscard]] tl::unexpected<Error> do_not_fit(const TensorView& a, const TensorView& b);

// Sets `group` and `groups` of the matrix from `count`, the number of values per row. `said` is the
// group size that a config states; -1 or 0 means whole rows. If it is not stated or does not fit,
// the number of columns must be a multiple of `count`. kCorrupt names the tensor `numbers`.
[[nodiscard]] Status set_groups(QuantizedMatrix& matrix, std::uint64_t count,
                                std::optional<std::int64_t> said, const TensorView& numbers);

}  // namespace onnx_external
