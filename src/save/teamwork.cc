#include "save/teamwork.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "base/try.h"
#include "save/item_copier.h"

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

// The ranges that other processes copy: each has a run of ranges, of about the same size.
WrittenRanges ranges_of_others(const SavePlan& plan, const Team& team) {
  const std::uint64_t share = plan.bytes / static_cast<std::uint64_t>(team.size) + 1;  // rounded up
  WrittenRanges others;
  std::uint64_t begin = 0;
  for (const Pass& pass : passes_of(plan)) {  // one process makes all ranges of a pass
    const std::uint64_t middle = begin + plan.ranges[pass.head].bytes / 2;
    const bool is_mine = static_cast<int>(middle / share) == team.rank;
    for (std::uint32_t n = 0; n < pass.ranges; ++n) {
      others.push_back(is_mine ? std::nullopt : std::optional(0U));
      begin += plan.ranges[pass.head + n].bytes;
    }
  }
  return others;
}

// The message that a process sends for each range that it copied: its CRC, and 1 if a value became
// infinite.
using RangeResult = std::array<std::uint32_t, 2>;

std::string text_of(const CopiedFiles& copied, const WrittenRanges& others) {
  std::string text;
  for (std::size_t i = 0; i < others.size(); ++i) {
    const RangeResult range{copied.crcs[i], copied.infinite[i] ? 1U : 0U};
    text.append(reinterpret_cast<const char*>(&range), others[i] ? 0 : sizeof(range));
  }
  return text;
}

// Combines the results of all processes in the order of the processes, which is also the order of
// the ranges.
Result<CopiedFiles> joined(const std::vector<std::string>& texts) {
  CopiedFiles all;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    TRY_IN(fmt::format("process {} of the team", rank), unpacked(texts[rank]));
    for (std::size_t at = 1; at < texts[rank].size(); at += sizeof(RangeResult)) {
      RangeResult range{};
      std::memcpy(&range, &texts[rank][at], sizeof(range));
      all.crcs.push_back(range[0]);
      all.infinite.push_back(range[1] != 0);
    }
  }
  return all;
}

}  // namespace

Result<std::string> from_leader(const Team& team, const Result<std::string>& mine) {
  return unpacked(team.from_all(packed(mine)).front());
}

Result<CopiedFiles> copy_share(const Team& team, const CopyJob& job, ProgressMeter& meter) {
  const WrittenRanges others = ranges_of_others(job.plan, team);
  WriteOptions options = job.options;
  options.checksum = Checksum::kNone;
  const auto mine =
      copy_files({job.plan, job.models, job.checkpoint, job.data, options, others, nullptr}, meter);
  const auto sent = mine ? Result<std::string>(text_of(*mine, others)) : fail(mine.error());
  TRY_ASSIGN(auto all, joined(team.from_all(packed(sent))));
  all.sha1s.resize(job.plan.files.size());
  if (team.rank == 0 && job.options.checksum != Checksum::kNone) {
    const WrittenRanges done(all.crcs.begin(), all.crcs.end());
    TRY_ASSIGN(auto summed, copy_files({job.plan, job.models, job.checkpoint, job.data, job.options,
                                        done, nullptr},
                                       meter));
    all.sha1s = std::move(summed.sha1s);
  }
  return all;
}

Error give_up(const Team& team, const Error& error) {
  return joined(team.from_all(packed(fail(error)))).error();
}

}  // namespace onnx_external
