#include "save/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "base/digest.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "save/output_names.h"

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

std::string model_text(const PublishedModel& model) {
  std::string text = fmt::format("{{\"file\": {}, \"manifest\": {}, {}", json_quote(model.name),
                                 json_quote(model.manifest), identity_text(model.model));
  if (model.replaced) {
    text += ", \"replaces\": {" + identity_text(*model.replaced) + "}";
  }
  return text + "}";
}

std::string publish_line(const Publication& publication) {
  std::string data;
  for (const std::string& entry : publication.data) {
    data.append(data.empty() ? "" : ", ").append(json_quote(entry));
  }
  std::string models;
  for (const PublishedModel& model : publication.models) {
    models.append(models.empty() ? "" : ", ").append(model_text(model));
  }
  return line_of(fmt::format(
      "{{\"publish\": {{\"folder\": {}, \"data_name\": {}, \"replace\": {}, \"data\": [{}], "
      "\"models\": [{}]}}",
      json_quote(publication.folder), json_quote(publication.data_name),
      publication.overwrite == Overwrite::kAllow, data, models));
}

// --- reading -----------------------------------------------------------------------------------

// The object of a line; nothing if the line is damaged.
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

std::optional<PublishedModel> model_in(const Json& json) {
  const auto identity = identity_in(json);
  if (!identity) {
    return std::nullopt;
  }
  PublishedModel model{text_in(json, "file"), text_in(json, "manifest"), *identity, std::nullopt};
  if (const Json* const replaced = json.find("replaces")) {
    model.replaced = identity_in(*replaced);
    return model.replaced ? std::optional(std::move(model)) : std::nullopt;
  }
  return model;
}

// Whether a save may have these names: what follows uses them as names of entries.
bool has_good_names(const Publication& publication) {
  std::vector<std::string> names;
  for (const PublishedModel& model : publication.models) {
    names.push_back(model.name);
  }
  return !names.empty() && check_set_names(names, publication.folder);
}

std::optional<Publication> publication_in(const Json& json) {
  Publication publication;
  publication.folder = text_in(json, "folder");
  publication.data_name = text_in(json, "data_name");
  publication.overwrite = value_in<bool>(json, "replace") ? Overwrite::kAllow : Overwrite::kRefuse;
  for (const Json& entry : value_in<JsonArray>(json, "data")) {
    publication.data.push_back(entry.string() != nullptr ? *entry.string() : std::string());
  }
  for (const Json& entry : value_in<JsonArray>(json, "models")) {
    auto model = model_in(entry);
    if (!model) {
      return std::nullopt;
    }
    publication.models.push_back(*std::move(model));
  }
  return has_good_names(publication) ? std::optional(std::move(publication)) : std::nullopt;
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
          fmt::format("{}: was left by a save of version {} of these tools, which was killed; any "
                      "save of that version into the folder clears it up; or remove it, once "
                      "verify-external finds the models of the folder complete",
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
