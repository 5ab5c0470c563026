#include "checkpoint/formats/safetensors.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/bad_input.h"
#include "base/json.h"
#include "base/name_map.h"
#include "base/text.h"
#include "base/try.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kPrefixBytes = 8;  // the header's length
constexpr std::string_view kChunkPlaces = "DCP_SHARDING_INFO";

struct Span {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

Result<std::string> read_header(const SourceFile& file) {
  std::uint64_t size = 0;
  if (file.size() < kPrefixBytes) {
    return corrupt("too short for a safetensors file");
  }
  TRY(file.read(0, std::as_writable_bytes(std::span(&size, 1))));
  if (size > kMaxSafetensorsHeader) {
    return corrupt("header of " + std::to_string(size) + " bytes; the format allows " +
                   std::to_string(kMaxSafetensorsHeader));
  }
  if (size > file.size() - kPrefixBytes) {
    return corrupt("header of " + std::to_string(size) + " bytes runs past the end of the file (" +
                   std::to_string(file.size()) + " bytes); copy or download the file again");
  }
  std::string header(static_cast<std::size_t>(size), '\0');
  TRY(file.read(kPrefixBytes, std::as_writable_bytes(std::span(header))));
  return header;
}

Result<Shape> parse_shape(const Json* json) {
  const JsonArray* list = json == nullptr ? nullptr : json->array();
  if (list == nullptr) {
    return corrupt("'shape' is not a list of integers");
  }
  if (list->size() > kMaxRank) {
    return corrupt("'shape' has " + std::to_string(list->size()) + " dimensions");
  }
  Shape shape;
  for (const Json& item : *list) {
    const std::uint64_t* value = item.uint();
    if (value == nullptr || !std::in_range<std::int64_t>(*value)) {
      return corrupt("'shape' is not a list of integers from 0 to 2^63-1");
    }
    shape.push_back(static_cast<std::int64_t>(*value));
  }
  return shape;
}

Result<Span> parse_offsets(const Json* json) {
  const JsonArray* list = json == nullptr ? nullptr : json->array();
  if (list == nullptr || list->size() != 2 || (*list)[0].uint() == nullptr ||
      (*list)[1].uint() == nullptr) {
    return corrupt("'data_offsets' is not a pair of integers");
  }
  const Span span{.begin = *(*list)[0].uint(), .end = *(*list)[1].uint()};
  if (span.end < span.begin) {
    return corrupt("'data_offsets' end before they begin");
  }
  return span;
}

// The header's shape counts values; torch's counts the bytes that hold two of them.
Status halve_last(Shape& shape) {
  if (shape.empty() || shape.back() % 2 != 0) {
    return corrupt("type F4 needs an even last dimension, but the shape is " + shape_text(shape));
  }
  shape.back() /= 2;
  return {};
}

// Fills `view` but for its name. kUnsupported for a type that torch does not have.
Status parse_tensor(const Json& json, TensorView& view, Span& span) {
  const JsonObject* members = json.object();
  const Json* type = json.find("dtype");
  if (members == nullptr || members->size() != 3 || type == nullptr || type->string() == nullptr) {
    return corrupt("its entry is not {dtype, shape, data_offsets}");
  }
  TRY_ASSIGN(view.shape, parse_shape(json.find("shape")));
  TRY_ASSIGN(span, parse_offsets(json.find("data_offsets")));
  const auto dtype = dtype_from_safetensors_name(*type->string());
  if (!dtype) {
    return fail(ErrorCode::kUnsupported,
                "element type " + quote(*type->string()) + " is not supported");
  }
  view.dtype = *dtype;
  if (*dtype == DType::kFloat4E2M1FnX2) {
    TRY(halve_last(view.shape));
  }
  TRY_ASSIGN(const auto nbytes, contiguous_nbytes(view.dtype, view.shape));
  if (nbytes != span.end - span.begin) {
    return corrupt("type " + *type->string() + " and shape " + shape_text(view.shape) + " make " +
                   std::to_string(nbytes) + " bytes, but 'data_offsets' " +
                   std::to_string(span.end - span.begin));
  }
  view.strides = contiguous_strides(view.shape);
  view.storage_offset = nbytes == 0 ? 0 : span.begin;
  return {};
}

// Checks that the spans cover [0, data_bytes) exactly. Empty spans may be at any boundary.
Status check_cover(const std::vector<Span>& spans, const std::vector<std::string_view>& names,
                   std::uint64_t data_bytes) {
  std::vector<std::size_t> order(spans.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(spans[a].begin, spans[a].end) < std::pair(spans[b].begin, spans[b].end);
  });
  std::uint64_t end = 0;
  for (const std::size_t i : order) {
    if (spans[i].begin != end) {
      return corrupt("tensor " + quote(names[i]) + ": begins at data byte " +
                     std::to_string(spans[i].begin) + ", but the tensor before it ends at " +
                     std::to_string(end) +
                     (spans[i].begin < end ? "; they overlap" : "; there is a hole"));
    }
    end = spans[i].end;
  }
  if (end != data_bytes) {
    return corrupt("the header describes " + std::to_string(end) +
                   " bytes of data, but the file has " + std::to_string(data_bytes) +
                   "; copy or download the file again");
  }
  return {};
}

// Reads pairs {"dropped name": "kept name"}, which safetensors.torch.save_model writes among other
// strings. A string counts as such a pair if its value is the name of a tensor and its key is not.
Status parse_metadata(const Json& json, const std::vector<std::string_view>& names,
                      FileContents& part) {
  const JsonObject* members = json.object();
  if (members == nullptr) {
    return corrupt("'__metadata__' is not an object");
  }
  const NameSet known(names.begin(), names.end());
  for (const auto& [key, value] : *members) {
    const std::string* text = value.string();
    if (text == nullptr) {
      return corrupt("'__metadata__' value of " + quote(key) + " is not a string");
    }
    if (known.contains(*text) && !known.contains(key)) {
      part.tied_names.emplace_back(key, *text);
    }
  }
  return {};
}

// True for {"saved_offsets": [..]} with an offset that is not 0.
bool is_later_chunk(const Json& info) {
  const Json* offsets = info.find("saved_offsets");
  const JsonArray* values = offsets == nullptr ? nullptr : offsets->array();
  return values != nullptr && std::any_of(values->begin(), values->end(), [](const Json& value) {
           return value.uint() != nullptr && *value.uint() != 0;
         });
}

// torch.distributed.checkpoint's writer of safetensors (hf_storage.py) records in the metadata, as
// JSON in a string, where in the whole tensor each tensor of the file starts. The whole shape
// stands nowhere, so the parts cannot be put together safely.
// Requires: the metadata are strings.
Status refuse_later_chunks(const Json& metadata, Selection selection, FileContents& part) {
  const Json* text = metadata.find(kChunkPlaces);
  if (text == nullptr) {
    return {};
  }
  TRY_ASSIGN_IN(quote(kChunkPlaces), const auto info, parse_json(*text->string()));
  NameSet later;
  if (info.object() != nullptr) {
    for (const auto& [name, json] : *info.object()) {
      if (is_later_chunk(json)) {
        later.insert(name);
      }
    }
  }
  const std::string reason =
      "one chunk of a tensor that torch.distributed.checkpoint has split; save it with "
      "HuggingFaceStorageWriter's enable_consolidation=True";
  std::vector<TensorView> kept;
  for (TensorView& tensor : part.tensors) {
    if (!later.contains(tensor.name)) {
      kept.push_back(std::move(tensor));
    } else if (selection == Selection::kEverything) {
      part.refused.push_back({tensor.name, reason});
    } else {
      return fail(ErrorCode::kUnsupported, "tensor " + quote(tensor.name) + ": " + reason);
    }
  }
  part.tensors = std::move(kept);
  return {};
}

Status parse_header(const JsonObject& header, std::uint64_t data_bytes, Selection selection,
                    FileContents& part) {
  std::vector<Span> spans;
  std::vector<std::string_view> names;
  const Json* metadata = nullptr;
  for (const auto& [name, json] : header) {
    if (name == "__metadata__") {
      metadata = &json;
      continue;
    }
    TensorView view;
    auto status = parse_tensor(json, view, spans.emplace_back());
    names.push_back(name);
    if (status) {
      view.name = name;
      part.tensors.push_back(std::move(view));
    } else if (status.error().code == ErrorCode::kUnsupported &&
               selection == Selection::kEverything) {
      part.refused.push_back({name, std::move(status).error().message});
    } else {
      return fail_in("tensor " + quote(name), std::move(status).error());
    }
  }
  TRY(check_cover(spans, names, data_bytes));
  if (metadata == nullptr) {
    return {};
  }
  TRY(parse_metadata(*metadata, names, part));
  return refuse_later_chunks(*metadata, selection, part);
}

}  // namespace

Result<FileContents> read_safetensors(std::shared_ptr<const SourceFile> file,
                                      const OpenOptions& options) {
  const std::string where = file->name();
  if (!options.key.empty() && options.key != ".") {
    return fail(ErrorCode::kNotFound, where +
                                          ": safetensors files have no nested dicts; leave "
                                          "the key " +
                                          quote(options.key) + " out");
  }
  TRY_ASSIGN_IN(where, const auto header, read_header(*file));
  TRY_ASSIGN_IN(where + ": header", const auto json, parse_json(header));
  if (json.object() == nullptr) {
    return fail(ErrorCode::kCorrupt, where + ": header: not a JSON object");
  }
  FileContents part;
  part.format = "safetensors";
  const std::uint64_t data_offset = kPrefixBytes + header.size();
  const std::uint64_t data_bytes = file->size() - data_offset;
  part.storages.push_back({.offset = data_offset,
                           .stored_bytes = data_bytes,
                           .bytes = data_bytes,
                           .crc32 = std::nullopt});
  part.files.push_back(std::move(file));
  TRY_IN(where, parse_header(*json.object(), data_bytes, options.selection, part));
  return part;
}

}  // namespace onnx_external
