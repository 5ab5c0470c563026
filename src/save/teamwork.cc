#include "save/teamwork.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

namespace onnx_external {
namespace {

// What is sent: 'o' and a text, or 'e', the code as a letter, and the message.
std::string packed(const Result<std::string>& result) {
  if (result) {
    return "o" + *result;
  }
  return std::string{'e', static_cast<char>('A' + static_cast<int>(result.error().code))} +
         result.error().message;
}

Result<std::string> unpacked(const std::string& text) {
  if (text.starts_with('o')) {
    return text.substr(1);
  }
  constexpr int kLastCode = static_cast<int>(ErrorCode::kCancelled);
  const int code = text.size() < 2 ? -1 : text[1] - 'A';
  if (code < 0 || code > kLastCode) {
    return fail(ErrorCode::kIo, "the processes of this team are not the same program");
  }
  return fail(static_cast<ErrorCode>(code), text.substr(2));
}

Status without_text(const Result<std::string>& result) {
  return result ? Status() : Status(fail(result.error()));
}

// The CRC of each part, then the SHA-1 of each file: empty, or 40 digits.
std::string packed(const CopiedFiles& files) {
  std::string text(files.crcs.size() * sizeof(std::uint32_t), '\0');
  std::memcpy(text.data(), files.crcs.data(), text.size());
  for (const std::string& sha1 : files.sha1s) {
    text += sha1;
    text += ' ';
  }
  return text;
}

std::optional<CopiedFiles> unpacked_files(const SavePlan& plan, std::string_view text) {
  CopiedFiles files;
  files.crcs.resize(plan.parts.size());
  const std::size_t crc_bytes = files.crcs.size() * sizeof(std::uint32_t);
  if (text.size() < crc_bytes) {
    return std::nullopt;
  }
  std::memcpy(files.crcs.data(), text.data(), crc_bytes);
  for (text.remove_prefix(crc_bytes); !text.empty();) {
    const std::size_t end = std::min(text.find(' '), text.size());
    files.sha1s.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return files.sha1s.size() == plan.files.size() ? std::optional(std::move(files)) : std::nullopt;
}

}  // namespace

Status Teamwork::agree(const std::string& job) {
  if (is_alone()) {
    return {};
  }
  const std::vector<std::string> jobs = team_->from_all(job);
  for (std::size_t rank = 1; rank < jobs.size(); ++rank) {
    if (jobs[rank] != jobs[0]) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("process {} of the team sees other files, or was given other options, "
                      "than process 0; all need the same on a file system that they share",
                      rank));
    }
  }
  return {};
}

// Moves its argument: copying a Result without memory would end the process (tl::expected).
Result<std::string> Teamwork::broadcast(Result<std::string> mine) {
  if (is_alone()) {
    return mine;
  }
  return unpacked(team_->from_leader(leads() ? packed(mine) : std::string()));
}

Status Teamwork::broadcast(Status mine) {
  if (is_alone()) {
    return mine;
  }
  return without_text(broadcast(mine ? Result<std::string>(std::string())
                                     : Result<std::string>(fail(mine.error()))));
}

std::vector<int> Teamwork::owners(const SavePlan& plan) const {
  std::uint64_t all = 0;
  for (const PlannedPart& part : plan.parts) {
    all += part.bytes;
  }
  const auto size = static_cast<std::uint64_t>(team_->size());
  const std::uint64_t share = all / size + 1;  // of a process, rounded up: the last one has less
  std::vector<int> owners;
  owners.reserve(plan.parts.size());
  std::uint64_t middle = 0;
  for (const PlannedPart& part : plan.parts) {
    owners.push_back(static_cast<int>(std::min((middle + part.bytes / 2) / share, size - 1)));
    middle += part.bytes;
  }
  return owners;
}

std::vector<bool> Teamwork::parts_of_others(const SavePlan& plan) const {
  std::vector<bool> others;
  if (!is_alone()) {
    for (const int owner : owners(plan)) {
      others.push_back(owner != team_->rank());
    }
  }
  return others;
}

std::vector<std::uint32_t> Teamwork::shared_files(const SavePlan& plan) const {
  std::vector<std::uint32_t> shared;
  if (is_alone()) {
    return shared;
  }
  const std::vector<int> owner = owners(plan);
  for (std::size_t i = 1; i < plan.parts.size(); ++i) {
    const std::uint32_t file = plan.parts[i].file;
    if (file == plan.parts[i - 1].file && owner[i] != owner[i - 1] &&
        (shared.empty() || shared.back() != file)) {
      shared.push_back(file);
    }
  }
  return shared;
}

Result<CopiedFiles> Teamwork::join(const SavePlan& plan, Result<CopiedFiles> mine) {
  if (is_alone()) {
    return mine;
  }
  const std::vector<std::string> texts = team_->from_all(
      packed(mine ? Result<std::string>(packed(*mine)) : Result<std::string>(fail(mine.error()))));
  CopiedFiles all;
  all.crcs.resize(plan.parts.size());
  all.sha1s.resize(plan.files.size());
  const std::vector<int> owner = owners(plan);
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const auto text = unpacked(texts[rank]);
    const auto files = text ? unpacked_files(plan, *text) : std::nullopt;
    if (!files) {
      Error error = text ? Error{ErrorCode::kIo, "sent what is no list of parts"} : text.error();
      return fail_in(fmt::format("process {} of the team", rank), std::move(error));
    }
    for (std::size_t part = 0; part < plan.parts.size(); ++part) {
      if (owner[part] == static_cast<int>(rank)) {
        const std::uint32_t file = plan.parts[part].file;
        all.crcs[part] = files->crcs[part];
        all.sha1s[file] = files->sha1s[file];
      }
    }
  }
  return all;
}

}  // namespace onnx_external
