#include "save/teamwork.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/try.h"

namespace onnx_external {
namespace {

// Encodes a result for sending: a byte 0 and the text, or a byte 1 + error code and the message.
std::string packed(const Result<std::string>& result) {
  const int code = result ? 0 : 1 + static_cast<int>(result.error().code);
  return static_cast<char>(code) + (result ? *result : result.error().message);
}

Result<std::string> unpacked(const std::string& text) {
  return text[0] == 0 ? Result<std::string>(text.substr(1))
                      : fail(static_cast<ErrorCode>(text[0] - 1), text.substr(1));
}

// Each process has a run of ranges, with about the same number of bytes.
std::vector<int> owners_of(const SavePlan& plan, const Team& team) {
  std::uint64_t all = 0;
  for (const DataRange& range : plan.ranges) {
    all += range.bytes;
  }
  const auto last = static_cast<std::uint64_t>(team.size() - 1);
  const std::uint64_t share = all / (last + 1) + 1;  // rounded up: the last process has less
  std::vector<int> owners;
  std::uint64_t middle = 0;
  for (const DataRange& range : plan.ranges) {
    owners.push_back(static_cast<int>(std::min((middle + range.bytes / 2) / share, last)));
    middle += range.bytes;
  }
  return owners;
}

// The CRC-32 of each range, then whether it has infinities.
std::string text_of(const CopiedFiles& copied) {
  const std::span<const std::uint32_t> crcs = copied.crcs;
  std::string text(reinterpret_cast<const char*>(crcs.data()), crcs.size_bytes());
  for (const bool infinite : copied.infinite) {
    text += infinite ? '1' : '0';
  }
  return text;
}

// Combines the results that all processes sent, each range from its owner.
Result<CopiedFiles> joined(const std::vector<std::string>& texts, const std::vector<int>& owners) {
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    TRY_IN(fmt::format("process {} of the team", rank), unpacked(texts[rank]));
  }
  CopiedFiles all;
  all.crcs.resize(owners.size());
  for (std::size_t i = 0; i < owners.size(); ++i) {
    const std::string& text = texts[static_cast<std::size_t>(owners[i])];
    std::memcpy(&all.crcs[i], &text[1 + i * sizeof(std::uint32_t)], sizeof(std::uint32_t));
    all.infinite.push_back(text[1 + owners.size() * sizeof(std::uint32_t) + i] == '1');
  }
  return all;
}

}  // namespace

Result<std::string> from_leader(Team& team, const Result<std::string>& mine) {
  return unpacked(team.from_all(packed(mine)).front());
}

Result<CopiedFiles> copy_share(Team& team, const CopyJob& job, ProgressMeter& meter) {
  const std::vector<int> owner = owners_of(job.plan, team);
  WrittenRanges others;
  for (const int rank : owner) {
    others.push_back(rank == team.rank() ? std::nullopt : std::optional(0U));
  }
  WriteOptions options = job.options;
  options.checksum = Checksum::kNone;
  const auto mine =
      copy_files({job.plan, job.models, job.checkpoint, job.data, options, others, nullptr}, meter);
  TRY_ASSIGN(
      auto all,
      joined(team.from_all(packed(mine ? Result<std::string>(text_of(*mine)) : fail(mine.error()))),
             owner));
  all.sha1s.resize(job.plan.files.size());
  if (team.rank() == 0 && job.options.checksum != Checksum::kNone) {
    const WrittenRanges done(all.crcs.begin(), all.crcs.end());
    TRY_ASSIGN(auto summed, copy_files({job.plan, job.models, job.checkpoint, job.data, job.options,
                                        done, nullptr},
                                       meter));
    all.sha1s = std::move(summed.sha1s);
  }
  return all;
}

Error give_up(Team& team, const Error& error) {
  return joined(team.from_all(packed(fail(error))), {}).error();
}

}  // namespace onnx_external
