#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/size_text.h"
#include "base/text.h"
#include "common/output.h"
#include "common/text_report.h"
#include "reports/remark_text.h"

namespace onnx_external {
namespace {

// Says how far the bytes are proved if every range is in the checkpoint's own files.
std::string own_ranges_text(const VerifyReport& report) {
  const std::uint64_t known = report.linked - report.linked_without_crc;
  if (known == 0) {
    return "it records no CRC-32 with which to check their bytes";
  }
  return report.linked_without_crc == 0
             ? "their bytes have the recorded CRC-32"
             : fmt::format("the bytes of {} have the recorded CRC-32, {} have none", known,
                           report.linked_without_crc);
}

// Says how far the manifest alone proves the bytes.
std::string recorded_text(const VerifyReport& report) {
  const std::uint64_t known = report.tensors - report.linked_without_crc;
  if (report.linked_without_crc == 0) {
    return "every byte is what the manifest recorded";
  }
  return known == 0 ? "ranges only: all are linked to a checkpoint that records no CRC-32"
                    : fmt::format(
                          "{} are what the manifest recorded; for {} that are linked without a "
                          "recorded CRC-32, only the ranges were checked",
                          known, report.linked_without_crc);
}

std::string compared_text(const VerifyReport& report) {
  const std::string how =
      report.compared_by_manifest == 0 ? ""
      : report.compared_by_manifest == report.compared
          ? ", matched by the manifest"
          : fmt::format(", {} of them matched by the manifest", report.compared_by_manifest);
  const std::string converted =
      report.converted == 0
          ? ""
          : fmt::format(", {} converted to another type", count_text(report.converted, "tensor"));
  if (report.compared == report.tensors && report.linked == report.tensors && report.tensors > 0) {
    return "every range is the same as in the checkpoint" + how + "; " + own_ranges_text(report);
  }
  if (report.compared == report.tensors && report.inline_compared == report.inline_tensors &&
      report.tensors + report.inline_tensors > 0) {
    return "every byte equals the checkpoint's" + converted + how;
  }
  return fmt::format("{} of {} compared with the checkpoint{}; {} not in it", report.compared,
                     count_text(report.tensors, "external tensor"), how,
                     report.tensors - report.compared);
}

// A message without the path of the file that it is about.
std::string_view cause_of(const Finding& finding) {
  const std::string_view message = finding.message;
  const std::string path = finding.file + ": ";
  const std::size_t place = finding.file.empty() ? std::string::npos : message.find(path);
  return place == std::string::npos ? message : message.substr(place + path.size());
}

// "open-slot: 21 tensors: 'a', 'b', ... and 16 more: nodes read it, and nothing defines it".
std::string cause_text(const std::vector<const Finding*>& findings, Names listed) {
  const Finding& first = *findings.front();
  if (findings.size() == 1) {
    return finding_text(first) + "\n";
  }
  std::set<std::string_view> files;
  std::vector<std::string> names;
  names.reserve(findings.size());
  for (const Finding* finding : findings) {
    files.insert(finding->file);
    names.push_back(finding->tensor.empty() ? finding->file : finding->tensor);
  }
  const bool is_of_one_file = files.size() == 1 && !first.file.empty() && !first.tensor.empty();
  const std::size_t most = listed == Names::kAll ? names.size() : kListedNames;
  return fmt::format("{}: {}: {}{}: {}\n", finding_code_name(first.code),
                     count_text(findings.size(), first.tensor.empty() ? "file" : "tensor"),
                     quote_list(names, most), is_of_one_file ? ": " + quote(first.file) : "",
                     cause_of(first));
}

// Groups findings by cause, in the order in which each cause first occurs.
std::string findings_text(const std::vector<Finding>& findings, Names listed) {
  std::map<std::tuple<FindingCode, bool, std::string_view>, std::size_t> known;
  std::vector<std::vector<const Finding*>> causes;
  for (const Finding& finding : findings) {
    const std::tuple cause(finding.code, finding.tensor.empty(), cause_of(finding));
    const auto [place, is_new] = known.try_emplace(cause, causes.size());
    if (is_new) {
      causes.emplace_back();
    }
    causes[place->second].push_back(&finding);
  }
  std::string out;
  for (const auto& cause : causes) {
    out += cause_text(cause, listed);
  }
  return out;
}

}  // namespace

std::string verify_text(const std::filesystem::path& model, const VerifyReport& report,
                        Compared compared, Names names) {
  std::string out = findings_text(report.findings, names);
  const std::string how = compared == Compared::kCheckpoint ? compared_text(report)
                          : report.used_manifest            ? recorded_text(report)
                          : report.tensors == 0             ? "nothing to verify"
                                                : "structure only: no manifest, and no --against";
  const std::string inline_ones = report.tensors > 0 || report.inline_tensors == 0
                                      ? ""
                                      : fmt::format(", {} inside the model", report.inline_tensors);
  const std::string unseen = report.inline_uncompared == 0
                                 ? ""
                                 : fmt::format("; {} with data inside the model {} not compared",
                                               count_text(report.inline_uncompared, "initializer"),
                                               report.inline_uncompared == 1 ? "was" : "were");
  if (report.overflowed > 0) {
    out += fmt::format("warning: {} became infinite when they were converted for this model\n",
                       count_text(report.overflowed, "value"));
  }
  out += notes_text(report.notes);
  out += remarks_text(report.remarks);
  return out + fmt::format("{}: {}{}, {}: {}\n", shown(model.string()),
                           count_text(report.tensors, "external tensor"), inline_ones,
                           size_text(report.bytes),
                           report.ok() ? fmt::format("ok; {}{}", how, unseen)
                                       : count_text(report.findings.size(), "finding"));
}

}  // namespace onnx_external
