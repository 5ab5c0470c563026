#include "native/sources.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <utility>

#include "base/try.h"
#include "native/options.h"

namespace nb = nanobind;

namespace onnx_external::python {

Sources::Sources(nb::handle given, const std::shared_ptr<MakeFailure>& failure) {
  if (given.is_none()) {
    return;
  }
  for (const nb::handle part : given) {
    const Checkpoint* open = nullptr;
    if (nb::isinstance<nb::list>(part)) {
      parts_.emplace_back(provided_tensors(part, failure));
    } else if (nb::isinstance<nb::tuple>(part)) {
      parts_.emplace_back(selection_of(nb::cast<nb::tuple>(part)));
    } else if (nb::try_cast(part, open)) {
      parts_.emplace_back(open);
    } else if (!parts_.empty() && std::holds_alternative<Paths>(parts_.back())) {
      std::get<Paths>(parts_.back()).push_back(path_of(part));
    } else {
      parts_.emplace_back(Paths{path_of(part)});
    }
  }
}

std::optional<std::vector<std::filesystem::path>> Sources::paths() const {
  if (parts_.empty()) {
    return Paths();
  }
  const auto* paths = std::get_if<Paths>(&parts_.front());
  return parts_.size() == 1 && paths != nullptr ? std::optional(*paths) : std::nullopt;
}

Sources::Selection Sources::selection_of(const nb::tuple& given) {
  Selection selection;
  selection.checkpoint = nb::cast<const Checkpoint*>(given[0]);
  for (const nb::handle one : nb::object(given[1])) {
    const auto [index, name] = nb::cast<std::pair<std::size_t, std::string>>(one);
    selection.tensors.push_back({.tensor = index, .name = name});
  }
  return selection;
}

Result<Checkpoint> Sources::open_part(Part& part, const OpenOptions& options) {
  if (auto* provided = std::get_if<ProvidedList>(&part)) {
    return checkpoint_of(std::move(provided->tensors));
  }
  if (const auto* selection = std::get_if<Selection>(&part)) {
    return select_tensors(*selection->checkpoint, selection->tensors, options);
  }
  return open_checkpoint(std::get<Paths>(part), options);
}

Result<Checkpoint> Sources::open(const OpenOptions& options) {
  std::vector<Checkpoint> opened;
  std::vector<const Checkpoint*> all;
  opened.reserve(parts_.size());
  for (Part& part : parts_) {
    if (const auto* const* open = std::get_if<const Checkpoint*>(&part)) {
      all.push_back(*open);
      continue;
    }
    TRY_ASSIGN(auto checkpoint, open_part(part, options));
    opened.push_back(std::move(checkpoint));
    all.push_back(&opened.back());
  }
  if (all.size() == 1 && !opened.empty()) {
    return std::move(opened.front());
  }
  return join_checkpoints(all, options);
}

}  // namespace onnx_external::python
