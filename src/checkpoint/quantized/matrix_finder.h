// Collects the quantized weights of a checkpoint: a reader of a method looks up the stored tensors
// of a module by their names, and adds the weight that they make up.
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

// A weight as the checkpoint lists it: a view of the storage with its floats.
struct FoundMatrix {
  QuantizedMatrix matrix;
  Shape shape;
  bool transposed = false;         // the last two dimensions of `shape` are [columns, rows]
  std::vector<std::size_t> parts;  // indices of the stored tensors, ascending
};

class MatrixFinder {
 public:
  // The tensors of `all` from index `first` on; `all` must outlive this and must not change.
  MatrixFinder(const FileContents& all, std::size_t first,
               std::shared_ptr<InflatedStorages> inflated, const QuantSettings& settings);

  [[nodiscard]] const QuantSettings& settings() const { return settings_; }

  // The names in front of ".component" that tensors have, in the order of the file. The component
  // may have dots itself.
  [[nodiscard]] std::vector<std::string> modules_with(std::string_view component) const;

  // The names in front of an ending that need not begin with a dot.
  [[nodiscard]] std::vector<std::string> names_before(std::string_view ending) const;

  // The tensor "module.component"; null if there is none, or another weight has taken it.
  [[nodiscard]] const TensorView* find(std::string_view module, std::string_view component) const;
  [[nodiscard]] const TensorView* find(std::string_view name) const;

  [[nodiscard]] StoredTensor stored(const TensorView& view) const;

  // Adds a weight. The names of `parts`, behind the module's, are those of the stored tensors that
  // it replaces; tensors that do not exist are ignored. Errors of check_matrix(). `matrix.name` is
  // that of the weight.
  [[nodiscard]] Status add(QuantizedMatrix matrix, const std::string& module,
                           const std::vector<std::string_view>& parts);
  // The same for stored tensors without a common module, by their names.
  [[nodiscard]] Status add(FoundMatrix found, const std::vector<std::string>& parts);

  // Decides whether an error in one weight ends the reading. Without settings that say that the
  // checkpoint is quantized, its tensors may not be parts of a weight; they then stay unchanged.
  [[nodiscard]] Status accept(Status status);

  // Takes a tensor that has no meaning without its weight out of the list.
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
  std::vector<bool> taken_;  // by index in `all_`
  std::vector<FoundMatrix> found_;
  std::vector<std::string> notes_;
};

// Lists the matrix in its own shape: [rows, columns], with the number of matrices before.
[[nodiscard]] FoundMatrix whole_matrix(QuantizedMatrix matrix);

// The view with its two dimensions exchanged.
[[nodiscard]] TensorView transposed_view(TensorView view);

// Returns whether the view has `rank` dimensions, of at least one element each.
[[nodiscard]] bool has_rank(const TensorView* view, std::size_t rank);
// A dimension of a view, which is never negative.
[[nodiscard]] std::uint64_t dim(const TensorView& view, std::size_t axis);

// The error for stored tensors that do not fit together.
[[nodiscard]] tl::unexpected<Error> do_not_fit(const TensorView& a, const TensorView& b);

// Sets group and groups for `count` numbers a row. `said` is the size of a group that a config
// states; -1 or 0 means whole rows. Without it, or if it does not fit, the columns must be a
// multiple of `count`. kCorrupt with the name of `numbers`.
[[nodiscard]] Status set_groups(QuantizedMatrix& matrix, std::uint64_t count,
                                std::optional<std::int64_t> said, const TensorView& numbers);

}  // namespace onnx_external
