// Options by name, as python/onnx_external/_base/options.py has them, as the library's options, by
// the table of the commands' options (options/options.h): the names are those of the commands, with
// underscores.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "inspect/inspect.h"
#include "native/classes.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/mapping.h"
#include "onnx_external/save_external.h"

namespace onnx_external::python {

// A path-like object. WrongTypeError with the argument's name for others.
[[nodiscard]] std::filesystem::path path_of(nanobind::handle value, const char* name = "path");
// One path-like object, or a sequence of them.
[[nodiscard]] std::vector<std::filesystem::path> paths_of(nanobind::handle value,
                                                          const char* name = "path");

// Takes keyword arguments by name. What nobody has taken in the end is a TypeError.
class Keywords {
 public:
  explicit Keywords(const nanobind::dict& given) { left_.update(given); }

  // The argument; nothing if it is absent or None.
  [[nodiscard]] nanobind::object take(const char* name);
  void expect_empty() const;

  // How objects flatten during this call: what OpenOptions::classes refers to.
  [[nodiscard]] const ClassFlattening& classes();

 private:
  nanobind::dict left_;
  std::unique_ptr<CallClasses> classes_;
};

// The options of the group "input", and scratch_dir. The keywords must outlive what is opened so.
[[nodiscard]] OpenOptions open_options(Keywords& keywords);
// The options of the group "mapping"; `map` is a file or a dict.
[[nodiscard]] MappingOptions mapping_options(Keywords& keywords);
// All of the above, and what a save has more. `progress` and `learn_map` are not among them.
[[nodiscard]] SaveOptions save_options(Keywords& keywords);
// The data file of "single", and of "link" with kept codes, where the caller has not named it:
// "model.onnx.data", as torch.onnx and onnx_ir have it.
void set_data_name(SaveOptions& options, const std::string& model_name);

}  // namespace onnx_external::python
