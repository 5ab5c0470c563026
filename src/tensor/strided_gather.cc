#include "tensor/strided_gather.h"

#include <algorithm>
#include <utility>

#include "base/io_buffer.h"
#include "base/try.h"
#include "tensor/copy_plane.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kLineBytes = kCacheLineBytes;
constexpr std::uint32_t kWordBytes = sizeof(std::uint32_t);
constexpr std::uint64_t kCachedBytes = std::uint64_t{1} << 20;  // of an output in an L2 cache

struct Dim {
  std::uint64_t size;
  std::uint64_t source;   // stride in the source, bytes
  std::uint64_t scratch;  // stride in the scratch, bytes
  std::uint64_t out;      // stride in the output, bytes
};
using Box = std::vector<Dim>;  // outermost first, by descending stride in the output

// Drops dimensions of size 1 and merges neighbours whose strides are those of one dimension.
Box simplified(const Box& box) {
  Box out;
  for (const Dim& dim : box) {
    if (dim.size == 1) {
      continue;
    }
    if (!out.empty() && out.back().source == dim.size * dim.source &&
        out.back().out == dim.size * dim.out) {
      out.back().size *= dim.size;
      out.back().source = dim.source;
      out.back().out = dim.out;
    } else {
      out.push_back(dim);
    }
  }
  return out;
}

// The plan for reading a box: in windows of `window` bytes, one for each index of the `outer`
// dimensions.
struct ReadPlan {
  std::uint64_t window = 0;
  std::vector<Dim> outer;     // smallest source stride first
  std::uint64_t scratch = 0;  // total bytes; saturates above the limit
};

// Plans the reads and fills in the scratch strides of `box`.
ReadPlan plan_reads(Box& box, std::uint32_t element_bytes, std::uint64_t limit) {
  std::vector<Dim*> by_stride;
  for (Dim& dim : box) {
    dim.scratch = 0;  // expanded dimensions read the same bytes again
    if (dim.source != 0) {
      by_stride.push_back(&dim);
    }
  }
  std::stable_sort(by_stride.begin(), by_stride.end(),
                   [](const Dim* a, const Dim* b) { return a->source < b->source; });
  ReadPlan plan{.window = element_bytes, .outer = {}, .scratch = 0};
  plan.scratch = plan.window;
  for (Dim* dim : by_stride) {
    if (plan.outer.empty() && dim->source <= plan.window + kReadOverGapBytes) {
      plan.window += (dim->size - 1) * dim->source;
      plan.scratch = plan.window;
      dim->scratch = dim->source;
      continue;
    }
    plan.scratch = plan.outer.empty() ? spread_rows(plan.scratch) : plan.scratch;
    dim->scratch = plan.scratch;
    plan.scratch = dim->size > limit / std::max<std::uint64_t>(plan.scratch, 1)
                       ? limit + 1
                       : plan.scratch * dim->size;
    plan.outer.push_back(*dim);
  }
  return plan;
}

Status read_windows(const ReadPlan& plan, std::uint64_t offset, std::byte* scratch,
                    const ReadSource& read) {
  std::vector<std::uint64_t> index(plan.outer.size(), 0);
  for (;;) {
    TRY(read(offset, {scratch, static_cast<std::size_t>(plan.window)}));
    std::size_t d = 0;
    for (; d < index.size(); ++d) {
      offset += plan.outer[d].source;
      scratch += plan.outer[d].scratch;
      if (++index[d] < plan.outer[d].size) {
        break;
      }
      offset -= plan.outer[d].size * plan.outer[d].source;
      scratch -= plan.outer[d].size * plan.outer[d].scratch;
      index[d] = 0;
    }
    if (d == index.size()) {
      return {};
    }
  }
}

// The dimension with the smallest scratch stride, apart from the last one; the two are tiled
// together.
std::size_t choose_rows(const Box& box) {
  std::size_t best = box.size() - 2;
  for (std::size_t d = 0; d + 1 < box.size(); ++d) {
    if (box[d].scratch != 0 && (box[best].scratch == 0 || box[d].scratch < box[best].scratch)) {
      best = d;
    }
  }
  return best;
}

// Writes the elements of the output, either as they are or as rows of codes.
class OutputForm {
 public:
  OutputForm(std::uint32_t element_bytes, std::uint64_t bytes)
      : element_bytes_(element_bytes),
        stores_(bytes > kCachedBytes ? Stores::kStreamed : Stores::kCached) {}
  OutputForm(const WordRows& rows, std::byte* out, std::uint64_t line_bytes, std::uint64_t bytes)
      : OutputForm(kWordBytes, bytes) {
    rows_ = &rows;
    out_ = out;
    line_bytes_ = line_bytes;
  }

  [[nodiscard]] std::uint32_t element_bytes() const { return element_bytes_; }
  [[nodiscard]] std::uint64_t scratch_bytes() const {
    return rows_ == nullptr ? kGatherScratchBytes : kWordRowsScratchBytes;
  }

  // The number of elements along a dimension of the output for which whole cache lines are written.
  [[nodiscard]] std::uint64_t line_elements(const Dim& dim) const {
    const bool are_codes = rows_ != nullptr && dim.out == kWordBytes;
    return are_codes ? 2 * kLineBytes : kLineBytes / element_bytes_;
  }

  // The part of a dimension that is cut off if it is cut in two. Elements outside of whole cache
  // lines of the output are copied one by one, and a line that two pieces write is fetched twice.
  // Two codes share a byte.
  [[nodiscard]] std::uint64_t cut(const Dim& dim) const {
    const std::uint64_t half = whole_multiple(dim.size / 2, line_elements(dim));
    return rows_ == nullptr || dim.out != kWordBytes ? half : half / 2 * 2;
  }

  // The places of `plane` are those of the elements.
  void write(const Plane& plane) const {
    if (rows_ == nullptr) {
      return copy_plane(plane, element_bytes_, stores_);
    }
    const auto at = static_cast<std::uint64_t>(plane.to - out_);
    Plane codes = plane;
    codes.to = out_ + at / line_bytes_ * line_bytes_ + at % line_bytes_ / rows_->size();
    pack_word_rows(codes, *rows_, line_bytes_ / rows_->size(), stores_);
  }

 private:
  std::uint32_t element_bytes_;
  Stores stores_;
  const WordRows* rows_ = nullptr;
  std::byte* out_ = nullptr;
  std::uint64_t line_bytes_ = 0;  // of a row of words
};

void permute_elements(Box box, const OutputForm& form, const std::byte* scratch, std::byte* out) {
  const std::uint32_t element_bytes = form.element_bytes();
  if (box.empty() || box.back().out != element_bytes) {  // a split left one element of it
    box.push_back(Dim{.size = 1, .source = 0, .scratch = 0, .out = element_bytes});
  }
  if (box.size() < 2) {
    box.insert(box.begin(), Dim{.size = 1, .source = 0, .scratch = 0, .out = 0});
  }
  const std::size_t rank = box.size();
  const std::size_t rows = choose_rows(box);
  const Dim& columns = box.back();
  std::vector<std::uint64_t> index(rank, 0);
  for (;;) {
    form.write({box[rows].size, columns.size, scratch, box[rows].scratch, columns.scratch, out,
                box[rows].out});
    std::size_t d = rank - 1;
    while (d-- > 0) {
      if (d == rows) {
        continue;
      }
      scratch += box[d].scratch;
      out += box[d].out;
      if (++index[d] < box[d].size) {
        break;
      }
      scratch -= box[d].size * box[d].scratch;
      out -= box[d].size * box[d].out;
      index[d] = 0;
    }
    if (d > rank) {  // wrapped below 0: every index was used
      return;
    }
  }
}

// Returns whether splitting the dimension would be useless, because its halves are in gaps between
// two steps of another dimension. Such gaps are read over, so each half would be read together with
// the other.
bool is_read_over(const Box& box, const Dim& dim) {
  return std::any_of(box.begin(), box.end(), [&dim](const Dim& other) {
    return other.size > 1 && other.source > dim.source &&
           other.source <= dim.size / 2 * dim.source + kReadOverGapBytes;
  });
}

// Returns the dimension to cut if a box is too large. This is the one with the largest source
// stride, so that runs in the source stay long. Dimensions that would become shorter than a cache
// line of the output come last, and those whose halves are read together are never cut. Requires:
// some dimension of more than one element is not expanded.
Dim& choose_cut(Box& box, const OutputForm& form) {
  Dim* best = nullptr;
  for (Dim& dim : box) {
    if (dim.size == 1 || dim.source == 0 || is_read_over(box, dim)) {
      continue;
    }
    const bool is_long = dim.size > form.line_elements(dim);
    const bool best_is_long = best != nullptr && best->size > form.line_elements(*best);
    if (best == nullptr || (is_long && !best_is_long) ||
        (is_long == best_is_long && dim.source > best->source)) {
      best = &dim;
    }
  }
  return *best;
}

// Shares one scratch among all boxes of a call.
class Gatherer {
 public:
  // Allocates the scratch when it is needed, unless it is given.
  Gatherer(const OutputForm& form, std::byte* scratch, const ReadSource& read)
      : form_(form),
        scratch_(scratch),
        scratch_bytes_(scratch == nullptr ? 0 : form.scratch_bytes()),
        read_(read) {}
  ~Gatherer() { finish_streams(); }
  Gatherer(const Gatherer&) = delete;
  Gatherer& operator=(const Gatherer&) = delete;

  // Reads a box whose element 0 lies at `offset`, in chunks whose scratch fits.
  [[nodiscard]] Status gather(const Box& whole, std::uint64_t offset, std::byte* out) {
    Box box = simplified(whole);
    const ReadPlan plan = plan_reads(box, form_.element_bytes(), form_.scratch_bytes());
    if (plan.scratch <= form_.scratch_bytes()) {
      return gather_piece(plan, box, offset, out);
    }
    // Cuts the box in two; a single element always fits.
    Dim& dim = choose_cut(box, form_);
    const std::uint64_t size = dim.size;
    dim.size = form_.cut(dim);
    const std::uint64_t source_step = dim.size * dim.source;
    const std::uint64_t out_step = dim.size * dim.out;
    TRY(gather(box, offset, out));
    dim.size = size - dim.size;
    return gather(box, offset + source_step, out + out_step);
  }

 private:
  [[nodiscard]] Status gather_piece(const ReadPlan& plan, const Box& box, std::uint64_t offset,
                                    std::byte* out) {
    if (plan.scratch > scratch_bytes_) {
      scratch_ = own_scratch_.first(plan.scratch).data();
      scratch_bytes_ = plan.scratch;
    }
    TRY(read_windows(plan, offset, scratch_, read_));
    permute_elements(box, form_, scratch_, out);
    return {};
  }

  OutputForm form_;
  IoBuffer own_scratch_;
  std::byte* scratch_;
  std::uint64_t scratch_bytes_;
  const ReadSource& read_;
};

}  // namespace

std::vector<StridedDim> merged_dims(const TensorView& view) {
  std::vector<StridedDim> dims;
  for (std::size_t i = 0; i < view.shape.size(); ++i) {
    const StridedDim dim{static_cast<std::uint64_t>(view.shape[i]),
                         static_cast<std::uint64_t>(view.strides[i])};
    if (!dims.empty() && dim.size != 1 && dims.back().stride == dim.size * dim.stride) {
      dims.back() = {dims.back().size * dim.size, dim.stride};
    } else if (dim.size != 1) {
      dims.push_back(dim);
    }
  }
  return dims;
}

std::uint64_t spread_rows(std::uint64_t row_bytes) {
  constexpr std::uint64_t kLeastSpread = 1024;
  const std::uint64_t lines = (row_bytes + kLineBytes - 1) / kLineBytes;
  return row_bytes < kLeastSpread ? row_bytes : (lines | 1U) * kLineBytes;
}

namespace {

Box box_of_matrix(const StridedView& view, std::uint64_t pitch) {
  return {
      {.size = view.sizes[0], .source = view.strides[0], .scratch = 0, .out = pitch},
      {.size = view.sizes[1], .source = view.strides[1], .scratch = 0, .out = view.element_bytes}};
}

}  // namespace

Status gather_matrix(const StridedView& view, std::uint64_t pitch, std::byte* out,
                     std::byte* scratch, const ReadSource& read) {
  const OutputForm form(view.element_bytes, view.sizes[0] * pitch);
  return Gatherer(form, scratch, read).gather(box_of_matrix(view, pitch), 0, out);
}

Status gather_word_rows(const StridedView& view, const WordRows& rows, std::byte* out,
                        std::byte* scratch, const ReadSource& read) {
  const std::uint64_t line_bytes = view.sizes[1] * kWordBytes;
  const OutputForm form(rows, out, line_bytes, view.sizes[0] * line_bytes);
  return Gatherer(form, scratch, read).gather(box_of_matrix(view, line_bytes), 0, out);
}

Status gather_strided(const StridedView& view, std::uint64_t first, std::span<std::byte> out,
                      const ReadSource& read) {
  const std::size_t rank = view.sizes.size();
  Gatherer gatherer(OutputForm(view.element_bytes, out.size()), nullptr, read);
  std::uint64_t left = out.size() / view.element_bytes;
  std::byte* target = out.data();
  while (left != 0) {
    // Finds the largest box that starts at `first`. It has n indices of dimension d and all indices
    // of the inner dimensions.
    std::uint64_t inner = 1;
    std::size_t d = rank;
    std::uint64_t offset = 0;
    std::uint64_t rest = first;
    for (std::size_t i = rank; i-- > 0;) {
      offset += (rest % view.sizes[i]) * view.strides[i];
      rest /= view.sizes[i];
    }
    for (std::uint64_t step = 1; d > 0 && first % step == 0 && step <= left; --d) {
      inner = step;
      step *= view.sizes[d - 1];
    }
    Box box;
    std::uint64_t count = 1;
    if (rank != 0) {
      const std::uint64_t index = first / inner % view.sizes[d];
      count = std::min(view.sizes[d] - index, left / inner);
      std::uint64_t step = inner * view.element_bytes;
      box.push_back({.size = count, .source = view.strides[d], .scratch = 0, .out = step});
      for (std::size_t i = d + 1; i < rank; ++i) {
        step /= view.sizes[i];
        box.push_back(
            {.size = view.sizes[i], .source = view.strides[i], .scratch = 0, .out = step});
      }
    }
    TRY(gatherer.gather(box, offset, target));
    first += count * inner;
    left -= count * inner;
    target += count * inner * view.element_bytes;
  }
  return {};
}

}  // namespace onnx_external
