#include "save/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "base/digest.h"
#include "base/json.h"
#include "base/safe_path.h"
#include "base/text.h"
#include "base/try.h"
#include "save/output_folder.h"

namespace onnx_external {
namespace {

constexpr const char* kTemporaryName = ".save-external.record.new";
// Ten million ranges.
constexpr std::uint64_t kMaxRecordBytes = std::uint64_t{1} << 30;
constexpr std::string_view kCheckMember = ", \"check\": \"";
constexpr std::size_t kCheckBytes = kCheckMember.size() + 8 + 2;  // with the digits, and "}

// --- writing -----------------------------------------------------------------------------------

// `members`: a JSON object without its closing brace.
std::string line_of(std::string members) {
  Crc32 check;
  check.update(std::as_bytes(std::span(members)));
  return std::move(members.append(kCheckMember).append(hex_text(check.value())).append("\"}\n"));
}

std::string header_line(std::string_view job) {
  return line_of(fmt::format("{{\"record\": {}, \"job\": {}", kRecordVersion, json_quote(job)));
}

std::string range_line(std::uint32_t range, std::uint32_t crc32) {
  return line_of(fmt::format("{{\"part\": {}, \"crc32\": \"{}\"", range, hex_text(crc32)));
}

std::string identity_text(const ModelIdentity& model) {
  return fmt::format("\"bytes\": {}, \"crc32\": \"{}\"", model.bytes, hex_text(model.crc32));
}

std::string file_text(const ListedFile& file) {
  return fmt::format("[{}, {}, {}]", json_quote(file.location), file.bytes, file.changed);
}

// The texts of all these, as a JSON list.
template <typename T, typename Text>
std::string list_text(const std::vector<T>& values, const Text& text) {
  std::string list = "[";
  for (const T& value : values) {
    list.append(list.size() > 1 ? ", " : "").append(text(value));
  }
  return list + "]";
}

std::string data_text(const ListedData& data) {
  return fmt::format("{{\"manifest\": {}, \"files\": {}}}", file_text(data.manifest),
                     list_text(data.files, file_text));
}

std::string published_text(const PublishedModel& model) {
  std::string text = fmt::format("{{\"file\": {}, {}, \"manifest\": {}, \"old_data\": {}",
                                 json_quote(model.name), identity_text(model.model),
                                 file_text(model.manifest), list_text(model.old_data, data_text));
  if (model.replaced) {
    text += ", \"replaces\": {" + identity_text(*model.replaced) + "}";
  }
  return text + "}";
}

std::string publish_line(const Publication& publication) {
  return line_of(fmt::format(
      "{{\"publish\": {{\"replace\": {}, \"entries\": {}, \"files\": {}, \"models\": {}}}",
      publication.overwrite == Overwrite::kAllow,
      list_text(publication.entries, [](const std::string& name) { return json_quote(name); }),
      list_text(publication.files, file_text), list_text(publication.models, published_text)));
}

// --- reading -----------------------------------------------------------------------------------

// Returns the object in a line, or nullopt if the line is damaged.
std::optional<Json> parse_line(std::string_view line) {
  if (line.size() < kCheckBytes || !line.ends_with("\"}")) {
    return std::nullopt;
  }
  const std::string_view members = line.substr(0, line.size() - kCheckBytes);
  if (line_of(std::string(members)).substr(0, line.size()) != line) {
    return std::nullopt;
  }
  auto json = parse_json(std::string(members) + "}");
  return json ? std::optional(*std::move(json)) : std::nullopt;
}

// Empty if there is none.
template <typename T>
T value_in(const Json& json, std::string_view name) {
  const T* const value = json.get<T>(name);
  return value == nullptr ? T() : *value;
}

std::string text_in(const Json& json, std::string_view name) {
  return value_in<std::string>(json, name);
}

std::optional<ModelIdentity> identity_in(const Json& json) {
  const auto* const bytes = json.get<std::uint64_t>("bytes");
  const auto crc32 = hex_number(text_in(json, "crc32"));
  return bytes && crc32 ? std::optional(ModelIdentity{*bytes, *crc32}) : std::nullopt;
}

// Returns whether a file may have this location: NAME or FOLDER/NAME.
bool is_good_location(std::string_view text) {
  const std::size_t slash = text.find('/');
  return check_plain_name(text.substr(0, slash)) &&
         (slash == std::string_view::npos || check_plain_name(text.substr(slash + 1)));
}

std::optional<ListedFile> file_in(const Json* json) {
  const JsonArray* const list = json != nullptr ? json->array() : nullptr;
  if (list == nullptr || list->size() != 3) {
    return std::nullopt;
  }
  const std::string* const location = (*list)[0].string();
  const std::uint64_t* const bytes = (*list)[1].uint();
  const std::uint64_t* const changed = (*list)[2].uint();
  const bool is_good = location && bytes && changed && is_good_location(*location);
  return is_good ? std::optional(ListedFile{*location, *bytes, *changed}) : std::nullopt;
}

// The values of a list; nothing if it is missing or one of them is not `read`.
template <typename T, typename Read>
std::optional<std::vector<T>> list_in(const Json& json, std::string_view name, const Read& read) {
  const auto* const list = json.get<JsonArray>(name);
  std::vector<T> values;
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    std::optional<T> value = read(&(*list)[i]);
    if (!value) {
      return std::nullopt;
    }
    values.push_back(*std::move(value));
  }
  return list != nullptr ? std::optional(std::move(values)) : std::nullopt;
}

std::optional<ListedData> data_in(const Json* json) {
  auto manifest = file_in(json->find("manifest"));
  auto files = list_in<ListedFile>(*json, "files", file_in);
  return manifest && files ? std::optional(ListedData{*std::move(manifest), *std::move(files)})
                           : std::nullopt;
}

std::optional<PublishedModel> model_in(const Json* json) {
  const auto identity = identity_in(*json);
  auto manifest = file_in(json->find("manifest"));
  auto old_data = list_in<ListedData>(*json, "old_data", data_in);
  const Json* const replaces = json->find("replaces");
  const auto replaced = replaces != nullptr ? identity_in(*replaces) : std::nullopt;
  if (!identity || !manifest || !old_data || (replaces != nullptr && !replaced)) {
    return std::nullopt;
  }
  return PublishedModel{text_in(*json, "file"), *identity, *std::move(manifest), replaced,
                        *std::move(old_data)};
}

std::optional<std::string> entry_in(const Json* json) {
  const std::string* const name = json->string();
  return name && check_plain_name(*name) ? std::optional(*name) : std::nullopt;
}

// Returns whether a save may have models with these names, which are later used as names of
// entries.
bool has_good_names(const std::vector<PublishedModel>& models) {
  std::vector<std::string> names;
  for (const PublishedModel& model : models) {
    names.push_back(model.name);
  }
  return !names.empty() && check_set_names(names, "data");
}

std::optional<Publication> publication_in(const Json& json) {
  auto entries = list_in<std::string>(json, "entries", entry_in);
  auto files = list_in<ListedFile>(json, "files", file_in);
  auto models = list_in<PublishedModel>(json, "models", model_in);
  if (!entries || !files || !models || !has_good_names(*models)) {
    return std::nullopt;
  }
  return Publication{value_in<bool>(json, "replace") ? Overwrite::kAllow : Overwrite::kRefuse,
                     *std::move(entries), *std::move(files), *std::move(models)};
}

void read_range(const Json& line, SaveRecord& record) {
  const auto* const range = line.get<std::uint64_t>("part");
  const auto crc32 = hex_number(text_in(line, "crc32"));
  if (range && crc32 && *range <= std::numeric_limits<std::uint32_t>::max()) {
    record.ranges.emplace_back(static_cast<std::uint32_t>(*range), *crc32);
  }
}

// The text up to the next line feed, out of `rest`; nothing if there is none.
std::optional<std::string_view> take_line(std::string_view& rest) {
  const std::size_t end = rest.find('\n');
  if (end == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end + 1);
  return line;
}

Error of_another_version(const Directory& staging, std::string_view version) {
  return {ErrorCode::kUnsupported,
          fmt::format("{}: was left by an interrupted save with version {} of these tools; save to "
                      "the folder with that version to clean it up, or remove it once "
                      "verify-external has found the models in the folder complete",
                      staging.path().string(), version)};
}

Result<std::optional<SaveRecord>> parse_record(const Directory& staging, std::string_view text) {
  const auto first = take_line(text);
  const auto header = first ? parse_line(*first) : std::nullopt;
  const auto* const version = header ? header->get<std::uint64_t>("record") : nullptr;
  if (version == nullptr) {
    return std::nullopt;
  }
  if (*version != kRecordVersion) {
    return fail(of_another_version(staging, fmt::format("(record {})", *version)));
  }
  SaveRecord record{text_in(*header, "job"), {}, std::nullopt};
  while (const auto line = take_line(text)) {
    const auto json = parse_line(*line);
    const Json* const publish = json ? json->find("publish") : nullptr;
    if (publish != nullptr) {
      record.publication = publication_in(*publish);
    } else if (json) {
      read_range(*json, record);
    }
  }
  return record;
}

}  // namespace

Result<std::optional<SaveRecord>> read_record(const Directory& staging) {
  const std::string name(kRecordName);
  TRY_ASSIGN(const auto kind, staging.kind_of(name));
  if (kind != EntryKind::kFile) {
    return std::nullopt;
  }
  const auto file = open_plain(staging, name);
  if (!file && file.error().code == ErrorCode::kNotFound) {
    return std::nullopt;  // gone meanwhile
  }
  TRY(file);
  if ((*file)->link_count() != 1 || (*file)->size() > kMaxRecordBytes) {
    return std::nullopt;  // no save has written it
  }
  TRY_ASSIGN(const auto text, read_file(**file, kMaxRecordBytes));
  return parse_record(staging, text);
}

WrittenRanges SaveRecord::written(std::size_t count) const {
  WrittenRanges written(count);
  for (const auto& [range, crc32] : ranges) {
    if (range < count) {
      written[range] = crc32;
    }
  }
  return written;
}

RecordWriter::RecordWriter(OutputFile file)
    : file_(std::move(file)), mutex_(std::make_unique<std::mutex>()) {}

Result<RecordWriter> RecordWriter::start(const Directory& staging, std::string_view job,
                                         const WrittenRanges& written) {
  TRY(staging.remove_tree(kTemporaryName));
  TRY_ASSIGN(auto file, OutputFile::create(staging, kTemporaryName));
  RecordWriter writer(std::move(file));
  writer.waiting_ = header_line(job);
  for (std::uint32_t range = 0; range < written.size(); ++range) {
    if (written[range]) {
      writer.waiting_ += range_line(range, *written[range]);
    }
  }
  TRY(writer.write_waiting());
  TRY(rename_entry(staging, kTemporaryName, staging, std::string(kRecordName), Replace::kYes));
  return writer;
}

Status RecordWriter::write_waiting() {
  Status status = file_.write(end_, std::as_bytes(std::span(waiting_)));
  end_ += waiting_.size();
  waiting_.clear();
  waiting_bytes_ = 0;
  return status;
}

Status RecordWriter::add(std::uint32_t range, std::uint32_t crc32, std::uint64_t bytes) {
  const std::string line = range_line(range, crc32);
  const std::lock_guard<std::mutex> lock(*mutex_);
  waiting_ += line;
  waiting_bytes_ += bytes;
  return waiting_bytes_ < kRecordedBytes ? Status() : write_waiting();
}

Status RecordWriter::publish(const Publication& publication, Sync sync) {
  waiting_ += publish_line(publication);
  TRY(write_waiting());
  return sync == Sync::kFiles ? file_.sync() : Status();
}

}  // namespace onnx_external
