#include "checkpoint/storage/joined_views.h"

#include <algorithm>
#include <cstddef>

#include "checkpoint/storage/file_contents.h"

namespace onnx_external {
namespace {

constexpr std::size_t kMostViews = 65'536;

// Elements of a storage: rows that follow each other.
struct StoredRows {
  std::uint32_t storage = 0;
  std::int64_t element = 0;  // where the first one begins
  std::int64_t rows = 0;
};

class RowFinder {
 public:
  RowFinder(const FileContents& all, DType dtype, std::int64_t columns)
      : all_(all), dtype_(dtype), size_(byte_size(dtype)), columns_(columns) {}

  // Appends the views of the rows of a view, some at a time. False as rows_behind() says.
  bool add(const TensorView& view) {
    if (view.shape.empty() || view.shape.back() != columns_ || view.neg || view.conj ||
        (columns_ > 1 && view.strides.back() != 1) || view.dtype != dtype_ ||
        view.storage_offset % size_ != 0) {
      return false;
    }
    return each_run(view, [&](std::int64_t element, std::int64_t rows) {
      return add({view.storage, first_element(view) + element, rows});
    });
  }

  std::vector<TensorView> take() { return std::move(found_); }

 private:
  [[nodiscard]] std::int64_t first_element(const TensorView& view) const {
    return static_cast<std::int64_t>(view.storage_offset / size_);
  }

  // Calls use(first element, rows) for the rows of a view that follow each other without a gap.
  template <typename Use>
  bool each_run(const TensorView& view, const Use& use) const {
    const std::size_t outer = view.shape.size() - 1;
    const bool has_runs = outer > 0 && view.strides[outer - 1] == columns_;
    const std::int64_t run = has_runs ? view.shape[outer - 1] : 1;
    const std::size_t dims = has_runs ? outer - 1 : outer;
    std::vector<std::int64_t> index(dims);
    if (std::find(view.shape.begin(), view.shape.end(), 0) != view.shape.end()) {
      return true;
    }
    for (;;) {
      std::int64_t element = 0;
      for (std::size_t i = 0; i < dims; ++i) {
        element += index[i] * view.strides[i];
      }
      if (!use(element, run)) {
        return false;
      }
      std::size_t dim = dims;
      while (dim > 0 && ++index[dim - 1] == view.shape[dim - 1]) {
        index[--dim] = 0;
      }
      if (dim == 0) {
        return true;
      }
    }
  }

  bool add(const StoredRows& rows) {
    const auto joined = all_.joined.find(rows.storage);
    if (joined == all_.joined.end()) {
      if (found_.size() == kMostViews) {
        return false;
      }
      TensorView view;
      view.dtype = dtype_;
      view.shape = {rows.rows, columns_};
      view.strides = {columns_, 1};
      view.storage = rows.storage;
      view.storage_offset = static_cast<std::uint64_t>(rows.element) * size_;
      found_.push_back(std::move(view));
      return true;
    }
    return add_from(*joined->second, rows);
  }

  // Rows of a joined storage, part by part.
  bool add_from(const JoinedParts& joined, StoredRows rows) {
    if (joined.shape.empty() || joined.shape.back() != columns_ || rows.element % columns_ != 0) {
      return false;
    }
    std::int64_t row = rows.element / columns_;
    while (rows.rows > 0) {
      const std::int64_t done = add_run(joined, row, rows.rows);
      if (done == 0) {
        return false;
      }
      row += done;
      rows.rows -= done;
    }
    return true;
  }

  // Adds rows from `row` on, at most `most`, that follow each other in one part. Returns how many;
  // 0 as rows_behind() says.
  std::int64_t add_run(const JoinedParts& joined, std::int64_t row, std::int64_t most) {
    const std::size_t outer = joined.shape.size() - 1;
    std::vector<std::int64_t> index(outer);
    for (std::size_t i = outer; i-- > 0; row /= joined.shape[i]) {
      index[i] = row % joined.shape[i];
    }
    const JoinedPart* const part = part_at(joined, index);
    if (part == nullptr || part->view.shape.back() != columns_ || part->view.dtype != dtype_ ||
        (columns_ > 1 && part->view.strides.back() != 1) ||
        part->view.storage_offset % size_ != 0) {
      return 0;
    }
    std::int64_t element = first_element(part->view);
    for (std::size_t i = 0; i < outer; ++i) {
      element += (index[i] - part->offsets[i]) * part->view.strides[i];
    }
    std::int64_t run = 1;
    if (outer > 0 && part->view.strides[outer - 1] == columns_) {
      run =
          std::min(most, part->view.shape[outer - 1] - index[outer - 1] + part->offsets[outer - 1]);
    }
    return add({part->view.storage, element, run}) ? run : 0;
  }

  // The part that has the row at an index.
  static const JoinedPart* part_at(const JoinedParts& joined,
                                   const std::vector<std::int64_t>& index) {
    const auto is_before = [&](const JoinedPart& part) {
      for (std::size_t i = 0; i < index.size(); ++i) {
        if (index[i] >= part.offsets[i] + part.view.shape[i]) {
          return true;
        }
      }
      return false;
    };
    const auto found = std::partition_point(joined.parts.begin(), joined.parts.end(), is_before);
    return found == joined.parts.end() ? nullptr : &*found;
  }

  const FileContents& all_;
  DType dtype_;
  std::uint64_t size_;  // bytes of an element
  std::int64_t columns_;
  std::vector<TensorView> found_;
};

}  // namespace

std::optional<std::vector<TensorView>> rows_behind(const FileContents& all, const TensorView& view,
                                                   std::int64_t columns) {
  RowFinder finder(all, view.dtype, columns);
  return finder.add(view) ? std::optional(finder.take()) : std::nullopt;
}

}  // namespace onnx_external
