// Opens the weights that the Python caller passes: paths, open checkpoints, tensors, or several of
// these.
#pragma once

#include <nanobind/nanobind.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "native/provided.h"
#include "onnx_external/checkpoint.h"

namespace onnx_external::python {

class Sources {
 public:
  // `given`: None, or a list of paths, core checkpoints, lists of `Loose`, and selected tensors of
  // checkpoints: (checkpoint, [(index, name), ...]). Needs the GIL. The list must outlive this
  // object.
  Sources(nanobind::handle given, const std::shared_ptr<MakeFailure>& failure);

  [[nodiscard]] bool empty() const { return parts_.empty(); }
  // Returns all of them if they are paths; otherwise nullopt.
  [[nodiscard]] std::optional<std::vector<std::filesystem::path>> paths() const;

  // Opens all of them, in order, as one checkpoint. May be called only once. Errors as for
  // open_checkpoint(), checkpoint_of() and join_checkpoints().
  [[nodiscard]] Result<Checkpoint> open(const OpenOptions& options);

 private:
  using Paths = std::vector<std::filesystem::path>;
  struct Selection {
    const Checkpoint* checkpoint = nullptr;
    std::vector<SelectedTensor> tensors;
  };
  using Part = std::variant<Paths, ProvidedList, const Checkpoint*, Selection>;

  static Selection selection_of(const nanobind::tuple& given);
  static Result<Checkpoint> open_part(Part& part, const OpenOptions& options);

  std::vector<Part> parts_;
};

}  // namespace onnx_external::python
