#include "native/options.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <initializer_list>

#include "native/errors.h"
#include "options/options.h"

namespace nb = nanobind;

namespace onnx_external::python {
namespace {

[[noreturn]] void refuse(const char* name, const std::string& wanted) {
  raise(Error{ErrorCode::kInvalidArgument, std::string(name) + ": " + wanted});
}

template <typename T>
T as(const char* name, nb::handle value, const char* wanted) {
  T out{};
  if (!nb::try_cast<T>(value, out)) {
    raise_wrong_type(std::string(name) + ": expected " + wanted);
  }
  return out;
}

bool bool_of(const char* name, nb::handle value) {
  return as<bool>(name, value, "a bool");
}

std::string path_text(const char* name, nb::handle value) {
  return as<std::filesystem::path>(name, value, "a str or an os.PathLike").string();
}

// Converts a size to text. The size is a number of bytes, or text such as "2GB", "500M" and "4GiB".
std::string size_text_of(const char* name, nb::handle value) {
  std::uint64_t bytes = 0;
  if (nb::try_cast<std::uint64_t>(value, bytes)) {
    return std::to_string(bytes);
  }
  return as<std::string>(name, value, "a number of bytes or a str such as '2GB'");
}

// Returns the last component of a type's name, whether the type is torch.float16, a numpy type or
// text.
std::string last_name(nb::handle value) {
  const auto name = nb::cast<std::string>(nb::str(value));
  return name.substr(name.rfind('.') + 1);
}

std::vector<std::string> texts_of(const char* name, nb::handle value) {
  if (nb::isinstance<nb::str>(value)) {
    return {nb::cast<std::string>(value)};
  }
  std::vector<std::string> texts;
  const char* const wanted = "a str or a sequence of str";
  for (const nb::handle item : as<nb::iterable>(name, value, wanted)) {
    texts.push_back(as<std::string>(name, item, wanted));
  }
  return texts;
}

std::vector<std::string> path_texts(const char* name, nb::handle value) {
  std::vector<std::string> texts;
  for (const std::filesystem::path& path : paths_of(value, name)) {
    texts.push_back(path.string());
  }
  return texts;
}

// Returns the values of a keyword as a command line would state them. A flag that is set has one
// value, "".
std::vector<std::string> values_of(const OptionRow& row, const char* name, nb::handle value) {
  switch (row.kind) {
    case OptionKind::kFlag:
      return std::vector<std::string>(bool_of(name, value) ? 1 : 0);
    case OptionKind::kOffFlag:
      return std::vector<std::string>(bool_of(name, value) ? 0 : 1);
    case OptionKind::kNumber:
      return {std::to_string(as<std::int64_t>(name, value, "an int"))};
    case OptionKind::kSize:
      return {size_text_of(name, value)};
    case OptionKind::kTexts:
    case OptionKind::kNames:
      return texts_of(name, value);
    case OptionKind::kPaths:
    case OptionKind::kWords:
      return path_texts(name, value);
    case OptionKind::kPath:
    case OptionKind::kPositional:
      return {path_text(name, value)};
    case OptionKind::kText:
      return {row.name == "dtype" ? last_name(value) : as<std::string>(name, value, "a str")};
  }
  return {};
}

// Takes the keywords for those options of a command that belong to one of `groups`.
CommandOptions take_options(Keywords& keywords, unsigned command,
                            std::initializer_list<OptionGroup> groups) {
  CommandOptions options;
  options.save.open.classes = &keywords.classes();
  for (const OptionRow& row : option_rows()) {
    const bool is_wanted = row.is_keyword && (row.commands & (command | kPythonAlone)) != 0 &&
                           std::find(groups.begin(), groups.end(), row.group) != groups.end();
    const std::string name = row.keyword();
    const nb::object value = is_wanted ? keywords.take(name.c_str()) : nb::object();
    if (!value.is_valid()) {
      continue;
    }
    for (const std::string& text : values_of(row, name.c_str(), value)) {
      if (const Status status = row.take(options, text); !status) {
        refuse(name.c_str(), status.error().message);
      }
    }
  }
  return options;
}

// Reads the map, which is a file or the content of such a file as a dict.
MapFile map_of(nb::handle value) {
  if (!nb::isinstance<nb::dict>(value)) {
    return value_or_raise(read_map_file(path_of(value, "map")));
  }
  nb::object text;
  try {
    text = nb::module_::import_("json").attr("dumps")(value);
  } catch (const nb::python_error& error) {
    raise_wrong_type(std::string("map: ") + error.what());
  }
  return value_or_raise(parse_map_file(nb::cast<std::string>(text)));
}

void take_map(Keywords& keywords, MappingOptions& mapping) {
  if (const nb::object value = keywords.take("map"); value.is_valid()) {
    MapFile file = map_of(value);
    mapping.map = std::move(file.map);
    mapping.derived = std::move(file.derived);
  }
}

}  // namespace

std::filesystem::path path_of(nb::handle value, const char* name) {
  return as<std::filesystem::path>(name, value, "a str or an os.PathLike");
}

std::vector<std::filesystem::path> paths_of(nb::handle value, const char* name) {
  if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value)) {
    std::vector<std::filesystem::path> paths;
    for (const nb::handle item : value) {
      paths.push_back(path_of(item, name));
    }
    return paths;
  }
  return {path_of(value, name)};
}

nb::object Keywords::take(const char* name) {
  if (!left_.contains(name)) {
    return {};
  }
  nb::object value = left_[name];
  nb::del(left_[name]);
  return value.is_none() ? nb::object() : value;
}

void Keywords::expect_empty() const {
  for (const auto& [name, value] : left_) {
    throw nb::type_error(
        ("unexpected keyword argument '" + nb::cast<std::string>(name) + "'").c_str());
  }
}

const ClassFlattening& Keywords::classes() {
  if (!classes_) {
    classes_ = std::make_unique<CallClasses>();
  }
  return classes_->table();
}

OpenOptions open_options(Keywords& keywords) {
  OpenOptions open = take_options(keywords, kSaveExternal, {OptionGroup::kInput}).save.open;
  if (const nb::object value = keywords.take("scratch_dir"); value.is_valid()) {
    open.scratch_dir = path_of(value, "scratch_dir");
  }
  return open;
}

MappingOptions mapping_options(Keywords& keywords) {
  MappingOptions mapping =
      take_options(keywords, kSaveExternal, {OptionGroup::kMapping}).save.mapping;
  take_map(keywords, mapping);
  return mapping;
}

SaveOptions save_options(Keywords& keywords) {
  SaveOptions options = take_options(keywords, kSaveExternal,
                                     {OptionGroup::kInput, OptionGroup::kMapping,
                                      OptionGroup::kOutput, OptionGroup::kWork})
                            .save;
  take_map(keywords, options.mapping);
  if (const nb::object value = keywords.take("base_dir"); value.is_valid()) {
    options.source_dir = path_of(value, "base_dir");
  }
  if (const nb::object value = keywords.take("before_publish"); value.is_valid()) {
    // A borrowed reference, because a reference must not be counted without the GIL. The caller's
    // dict keeps the object alive.
    options.before_publish = [given = nb::handle(value)]() -> Status {
      const nb::gil_scoped_acquire held;
      if (nb::cast<bool>(given())) {
        return {};
      }
      return fail(ErrorCode::kCancelled, "cancelled before the model was put in place");
    };
  }
  options.open.threads = options.write.threads;
  options.plan.max_expand = options.open.max_expand;
  return options;
}

void set_data_name(SaveOptions& options, const std::string& model_name) {
  if (options.plan.written_layout() == Layout::kSingle && options.plan.data_name.empty()) {
    options.plan.data_name = model_name + ".data";
  }
}

}  // namespace onnx_external::python
