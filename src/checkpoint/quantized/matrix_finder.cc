#include "checkpoint/quantized/matrix_finder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/bad_input.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/storage/view_source.h"

namespace onnx_external {
namespace {

// ModelOpt's factors for the inputs of a module, whatever the codes of its weight are.
constexpr std::string_view kInputFactors = "pre_quant_scale";

}  // namespace

MatrixFinder::MatrixFinder(const FileContents& all, std::size_t first,
                           std::shared_ptr<InflatedStorages> inflated,
                           const QuantSettings& settings)
    : all_(all),
      first_(first),
      inflated_(std::move(inflated)),
      settings_(settings),
      taken_(all.tensors.size()) {
  places_.reserve(all.tensors.size() - first);
  for (std::size_t i = first; i < all.tensors.size(); ++i) {
    places_.emplace(all.tensors[i].name, i);
  }
}

std::vector<std::string> MatrixFinder::modules_with(std::string_view component) const {
  std::vector<std::string> modules;
  const std::string end = "." + std::string(component);
  for (std::size_t i = first_; i < all_.tensors.size(); ++i) {
    const std::string& name = all_.tensors[i].name;
    if (!taken_[i] && name.size() > end.size() && name.ends_with(end)) {
      modules.push_back(name.substr(0, name.size() - end.size()));
    } else if (!taken_[i] && name == component) {
      modules.emplace_back();
    }
  }
  return modules;
}

std::vector<std::string> MatrixFinder::names_before(std::string_view ending) const {
  std::vector<std::string> names;
  for (std::size_t i = first_; i < all_.tensors.size(); ++i) {
    const std::string& name = all_.tensors[i].name;
    if (!taken_[i] && name.ends_with(ending)) {
      names.push_back(name.substr(0, name.size() - ending.size()));
    }
  }
  return names;
}

const TensorView* MatrixFinder::find(std::string_view module, std::string_view component) const {
  return find(module.empty() ? std::string(component)
                             : std::string(module) + "." + std::string(component));
}

const TensorView* MatrixFinder::find(std::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() || taken_[found->second] ? nullptr : &all_.tensors[found->second];
}

StoredTensor MatrixFinder::stored(const TensorView& view) const {
  return {view, in_bands(view, view_source(all_, view, inflated_), bands_)};
}

Status MatrixFinder::add(QuantizedMatrix matrix, const std::string& module,
                         const std::vector<std::string_view>& parts) {
  const TensorView* const factors = find(module, kInputFactors);
  if (factors != nullptr && !matrix.column_factors) {
    matrix.column_factors = stored(*factors);
  }
  std::vector<std::string> names;
  for (const std::string_view part : parts) {
    names.push_back(module.empty() ? std::string(part) : module + "." + std::string(part));
  }
  names.push_back(module.empty() ? std::string(kInputFactors)
                                 : module + "." + std::string(kInputFactors));
  return add(whole_matrix(std::move(matrix)), names);
}

FoundMatrix whole_matrix(QuantizedMatrix matrix) {
  FoundMatrix found;
  found.shape = {static_cast<std::int64_t>(matrix.rows), static_cast<std::int64_t>(matrix.columns)};
  if (matrix.codes.stored.view.shape.size() == 3 || matrix.matrices > 1) {
    found.shape.insert(found.shape.begin(), static_cast<std::int64_t>(matrix.matrices));
  }
  found.matrix = std::move(matrix);
  return found;
}

Status MatrixFinder::add(FoundMatrix found, const std::vector<std::string>& parts) {
  const std::string& name = found.matrix.name;
  TRY_IN("weight " + quote(name) + " of " + found.matrix.method, check_matrix(found.matrix));
  for (const std::string& part : parts) {
    const auto place = places_.find(part);
    if (place != places_.end() && !taken_[place->second]) {
      taken_[place->second] = true;
      found.parts.push_back(place->second);
      found.matrix.parts.push_back(all_.tensors[place->second]);
    }
  }
  std::sort(found.parts.begin(), found.parts.end());
  if (const TensorView* const other = find(name); other != nullptr) {
    return fail(
        ErrorCode::kAmbiguous,
        quote(name) + " is stored twice: unquantized, and quantized by " + found.matrix.method);
  }
  found_.push_back(std::move(found));
  return {};
}

Status MatrixFinder::accept(Status status) {
  const bool is_declared = settings_.is_given() || !all_.declared_weights.empty();
  const bool may_be_other = !status && !is_declared && status.error().code != ErrorCode::kIo;
  return may_be_other ? Status() : status;
}

void MatrixFinder::hide(const TensorView& view) {
  taken_[places_.at(view.name)] = true;
}

TensorView transposed_view(TensorView view) {
  std::swap(view.shape[0], view.shape[1]);
  std::swap(view.strides[0], view.strides[1]);
  return view;
}

bool has_rank(const TensorView* view, std::size_t rank) {
  return view != nullptr && view->shape.size() == rank &&
         std::all_of(view->shape.begin(), view->shape.end(), [](std::int64_t d) { return d > 0; });
}

std::uint64_t dim(const TensorView& view, std::size_t axis) {
  return static_cast<std::uint64_t>(view.shape[axis]);
}

tl::unexpected<Error> do_not_fit(const TensorView& a, const TensorView& b) {
  const auto text = [](const TensorView& view) {
    return fmt::format("{} ({} {})", quote(view.name), torch_name(view.dtype),
                       shape_text(view.shape));
  };
  return corrupt(text(a) + " and " + text(b) + " are not parts of the same quantized weight");
}

Status set_groups(QuantizedMatrix& matrix, std::uint64_t count, std::optional<std::int64_t> said,
                  const TensorView& numbers) {
  const std::uint64_t columns = matrix.columns;
  const auto fits = [&](std::uint64_t group) { return (columns + group - 1) / group == count; };
  matrix.groups = count;
  if (count == 1) {
    matrix.group = columns;
    return {};
  }
  if (said && *said > 0 && std::cmp_less_equal(*said, columns) &&
      fits(static_cast<std::uint64_t>(*said))) {
    matrix.group = static_cast<std::uint64_t>(*said);
    return {};
  }
  if (count == 0 || columns % count != 0) {
    return corrupt(fmt::format(
        "{} has {} values for each row of {} columns, but the columns cannot be divided into that "
        "many equal groups{}",
        quote(numbers.name), count, columns,
        said ? fmt::format(" (the config says {})", *said) : "; pass the folder with its config"));
  }
  matrix.group = columns / count;
  return {};
}

}  // namespace onnx_external
