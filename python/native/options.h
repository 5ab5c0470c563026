// Converts keyword arguments from Python (python/onnx_external/_base/options.py) to the library's
// options, using the table of the commands' options (options/options.h). The keywords are the names
// of the command-line options with underscores.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "inspect/inspect.h"
#include "native/classes.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/save_external.h"

namespace onnx_external::python {

// Converts a path-like object. Throws WrongTypeError with the argument's name for any other object.
[[nodiscard]] std::filesystem::path path_of(nanobind::handle value, const char* name = "path");
// Converts one path-like object, or a sequence of them.
[[nodiscard]] std::vector<std::filesystem::path> paths_of(nanobind::handle value,
                                                          const char* name = "path");

// Takes keyword arguments by name. Arguments that have not been taken in the end cause a TypeError.
class Keywords {
 public:
  explicit Keywords(const nanobind::dict& given) { left_.update(given); }

  // Returns the argument; a null object if it is absent or None.
  [[nodiscard]] nanobind::object take(const char* name);
  void expect_empty() const;

  // The classes whose objects are flattened during this call; OpenOptions::classes refers to them.
  [[nodiscard]] const ClassFlattening& classes();

 private:
  nanobind::dict left_;
  std::unique_ptr<CallClasses> classes_;
};

// Returns the options of the group "input", and scratch_dir. The keywords must outlive everything
// that is opened with the options.
[[nodiscard]] OpenOptions open_options(Keywords& keywords);
// Returns the options of the group "mapping"; `map` is a file or a dict.
[[nodiscard]] MappingOptions mapping_options(Keywords& keywords);
// Returns all of the above and the other options of a save, except `progress` and `learn_map`.
[[nodiscard]] SaveOptions save_options(Keywords& keywords);
// If the caller has not named the data file, names it as torch.onnx and onnx_ir do:
// "model.onnx.data". Applies to the layout "single", and to "link" if the save keeps codes of the
// checkpoint.
void set_data_name(SaveOptions& options, const std::string& model_name);

}  // namespace onnx_external::python
