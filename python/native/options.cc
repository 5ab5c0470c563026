#include "native/options.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>

#include <array>
#include <span>

#include "base/size_text.h"
#include "native/errors.h"

namespace nb = nanobind;

namespace onnx_external::python {
namespace {

[[noreturn]] void refuse(const char* name, const std::string& wanted) {
  throw nb::value_error((std::string(name) + ": " + wanted).c_str());
}

template <typename T>
T as(const char* name, nb::handle value, const char* wanted) {
  T out{};
  if (!nb::try_cast<T>(value, out)) {
    throw nb::type_error((std::string(name) + ": expected " + wanted).c_str());
  }
  return out;
}

template <typename T>
void set(Keywords& keywords, const char* name, const char* wanted, T& out) {
  if (const nb::object value = keywords.take(name); value.is_valid()) {
    out = as<T>(name, value, wanted);
  }
}

// A bool that picks one of two values.
template <typename T>
void set_choice(Keywords& keywords, const char* name, T on, T off, T& out) {
  if (const nb::object value = keywords.take(name); value.is_valid()) {
    out = as<bool>(name, value, "a bool") ? on : off;
  }
}

template <typename T>
struct Named {
  const char* name;
  T value;
};

// A name that picks one of several values.
template <typename T, std::size_t N>
void set_named(Keywords& keywords, const char* name, const std::array<Named<T>, N>& all, T& out) {
  const nb::object value = keywords.take(name);
  if (!value.is_valid()) {
    return;
  }
  const auto text = as<std::string>(name, value, "a str");
  std::string wanted = "expected one of";
  for (const Named<T>& one : all) {
    if (text == one.name) {
      out = one.value;
      return;
    }
    wanted += std::string(" '") + one.name + "'";
  }
  refuse(name, wanted + ", not '" + text + "'");
}

std::vector<std::string> texts_of(const char* name, nb::handle value) {
  if (nb::isinstance<nb::str>(value)) {
    return {nb::cast<std::string>(value)};
  }
  std::vector<std::string> texts;
  for (const nb::handle item : value) {
    texts.push_back(as<std::string>(name, item, "a str or a sequence of str"));
  }
  return texts;
}

void set_texts(Keywords& keywords, const char* name, std::vector<std::string>& out) {
  if (const nb::object value = keywords.take(name); value.is_valid()) {
    out = texts_of(name, value);
  }
}

// So many digits times the largest unit, 2^30, fit into 64 bits.
constexpr std::size_t kMaxSizeDigits = 10;

// A number of bytes, or text such as "2GB", "500M" and "4GiB".
std::uint64_t bytes_of(const char* name, nb::handle value) {
  std::uint64_t bytes = 0;
  if (nb::try_cast<std::uint64_t>(value, bytes)) {
    return bytes;
  }
  const auto text = as<std::string>(name, value, "a number of bytes or a str such as '2GB'");
  const auto size = split_size(text);
  if (size && size->digits.size() <= kMaxSizeDigits) {
    return std::stoull(std::string(size->digits)) * size->factor;
  }
  refuse(name,
         "expected a number of bytes such as 2000000000, '2GB' or '500MiB', not '" + text + "'");
}

template <typename Bytes>
void set_bytes(Keywords& keywords, const char* name, Bytes& out) {
  if (const nb::object value = keywords.take(name); value.is_valid()) {
    out = bytes_of(name, value);
  }
}

// The map: a file, or its document as a dict.
MapFile map_of(nb::handle value) {
  if (!nb::isinstance<nb::dict>(value)) {
    return value_or_raise(read_map_file(path_of(value)));
  }
  nb::object text;
  try {
    text = nb::module_::import_("json").attr("dumps")(value);
  } catch (const nb::python_error& error) {
    throw nb::type_error((std::string("map: ") + error.what()).c_str());
  }
  return value_or_raise(parse_map_file(nb::cast<std::string>(text)));
}

void set_plan_options(Keywords& keywords, PlanOptions& plan) {
  set_named<Layout>(keywords, "layout",
                    std::array<Named<Layout>, 5>{{{"per-tensor", Layout::kPerTensor},
                                                  {"single", Layout::kSingle},
                                                  {"shards", Layout::kShards},
                                                  {"inline", Layout::kInline},
                                                  {"link", Layout::kLink}}},
                    plan.layout);
  set(keywords, "data_name", "a str", plan.data_name);
  set_bytes(keywords, "max_shard_size", plan.max_shard_bytes);
  set_bytes(keywords, "align", plan.alignment);
  set_named<Dedup>(
      keywords, "dedup",
      std::array<Named<Dedup>, 3>{
          {{"storage", Dedup::kStorage}, {"content", Dedup::kContent}, {"off", Dedup::kOff}}},
      plan.dedup);
  set_bytes(keywords, "inline_below", plan.inline_below);
  set_choice(keywords, "attributes", GivenTensors::kMoveAndAttributes, GivenTensors::kStay,
             plan.given);
  if (const nb::object value = keywords.take("dtype"); value.is_valid()) {
    const auto name = as<std::string>("dtype", nb::str(value), "a str");
    // torch.float16 and numpy's names alike.
    plan.dtype = dtype_from_torch_name(name.substr(name.rfind('.') + 1));
    if (!plan.dtype || !can_cast_to(*plan.dtype)) {
      refuse("dtype", "expected float64, float32, float16 or bfloat16, not '" + name + "'");
    }
  }
}

void set_write_options(Keywords& keywords, WriteOptions& write) {
  set(keywords, "threads", "an int", write.threads);
  set_choice(keywords, "fsync", Sync::kFiles, Sync::kNone, write.sync);
  set_choice(keywords, "overwrite", Overwrite::kAllow, Overwrite::kRefuse, write.overwrite);
  set_choice(keywords, "resume", Resume::kYes, Resume::kNo, write.resume);
  set_choice(keywords, "direct", PageCache::kBypass, PageCache::kUse, write.cache);
  set_choice(keywords, "keep_inputs", MatchedInputs::kKeep, MatchedInputs::kRemove, write.inputs);
  set_named<Checksum>(keywords, "checksum",
                      std::array<Named<Checksum>, 1>{{{"sha1", Checksum::kSha1}}}, write.checksum);
}

}  // namespace

std::filesystem::path path_of(nb::handle value) {
  return as<std::filesystem::path>("path", value, "a str or an os.PathLike");
}

std::vector<std::filesystem::path> paths_of(nb::handle value) {
  if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value)) {
    std::vector<std::filesystem::path> paths;
    for (const nb::handle item : value) {
      paths.push_back(path_of(item));
    }
    return paths;
  }
  return {path_of(value)};
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
  OpenOptions open;
  open.classes = &keywords.classes();
  set(keywords, "key", "a str", open.key);
  set(keywords, "variant", "a str", open.variant);
  set(keywords, "overlay", "a bool", open.overlay);
  set(keywords, "max_expand", "an int", open.max_expand);
  set(keywords, "densify", "a bool", open.densify);
  set(keywords, "widen_complex32", "a bool", open.widen_complex32);
  return open;
}

MappingOptions mapping_options(Keywords& keywords) {
  MappingOptions mapping;
  set_named<Unmatched>(
      keywords, "unmatched",
      std::array<Named<Unmatched>, 3>{
          {{"strict", Unmatched::kStrict}, {"skip", Unmatched::kSkip}, {"keep", Unmatched::kKeep}}},
      mapping.unmatched);
  set_choice(keywords, "partial", Partial::kAllow, Partial::kRefuse, mapping.partial);
  set_choice(keywords, "cast", Casts::kAllow, Casts::kRefuse, mapping.casts);
  if (const nb::object value = keywords.take("prefix"); value.is_valid()) {
    mapping.prefix = as<std::string>("prefix", value, "a str");
  }
  std::vector<std::string> renames;
  set_texts(keywords, "rename", renames);
  for (const std::string& text : renames) {
    mapping.renames.push_back(value_or_raise(parse_rename(text)));
  }
  if (const nb::object value = keywords.take("map"); value.is_valid()) {
    MapFile file = map_of(value);
    mapping.map = std::move(file.map);
    mapping.derived = std::move(file.derived);
  }
  set_texts(keywords, "inputs", mapping.inputs);
  set_texts(keywords, "keep", mapping.keep);
  set_texts(keywords, "ignore", mapping.ignore);
  return mapping;
}

SaveOptions save_options(Keywords& keywords) {
  SaveOptions options;
  options.open = open_options(keywords);
  options.mapping = mapping_options(keywords);
  set_plan_options(keywords, options.plan);
  set_write_options(keywords, options.write);
  set_choice(keywords, "verify", Verification::kOn, Verification::kOff, options.verification);
  set_choice(keywords, "dry_run", RunMode::kDryRun, RunMode::kWrite, options.mode);
  if (const nb::object value = keywords.take("test_data"); value.is_valid()) {
    options.test_data = paths_of(value);
  }
  if (const nb::object value = keywords.take("base_dir"); value.is_valid()) {
    options.source_dir = path_of(value);
  }
  if (const nb::object value = keywords.take("before_publish"); value.is_valid()) {
    // Borrowed: the caller's dict has it, and a reference must not be counted without the GIL.
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
  if (options.plan.layout == Layout::kSingle && options.plan.data_name.empty()) {
    options.plan.data_name = model_name + ".data";
  }
}

}  // namespace onnx_external::python
