// The steps of ModelVerifier that need data: they plan ranges, evaluate the answers, and read the
// inline tensors.
#include <fmt/format.h>

#include <utility>

#include "base/digest.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx/external_data.h"
#include "onnx/inline_data.h"
#include "save/planned_bytes.h"
#include "verify/model_verifier.h"

namespace onnx_external {
namespace {

// ", byte 330132 of the file,"; nothing for a tensor inside the model.
std::string place_in_file(const std::optional<ExternalEntry>& entry, std::uint64_t byte) {
  return entry ? fmt::format(", byte {} of the file,", entry->offset + byte) : std::string();
}

}  // namespace

void ModelVerifier::plan_checks(std::size_t number, RangePlan& plan) {
  for (Subject& subject : subjects_) {
    if (subject.entry) {
      const bool wants_crc = subject.record != nullptr && subject.record->crc32;
      const RangePlan::Added added =
          plan.add(*subject.entry, subject.equals, subject.written_crc, wants_crc, number);
      subject.check = added.check;
      report_.bytes += added.bytes;
    }
  }
}

Status ModelVerifier::check_rest(std::span<const RangeAnswer> answers, FileSha1s& sha1s,
                                 ProgressMeter& meter) {
  for (Subject& subject : subjects_) {
    if (subject.entry) {
      apply(subject, answers[subject.check]);
    }
  }
  TRY(check_inline_ones(inline_ones_, meter));
  return check_checksums(sha1s, meter);
}

void ModelVerifier::apply(Subject& subject, const RangeAnswer& answer) {
  if (answer.fault) {
    report(subject, answer.fault->code, answer.fault->message);
    return;
  }
  if (answer.hard_links && !subject.is_shared) {
    remarks_.add(DataRemark::kHardLinks, name_in_finding(subject.tensor.name));
  }
  if (answer.hub_link && !subject.is_shared) {
    remarks_.add(DataRemark::kHubLink, name_in_finding(subject.tensor.name));
  }
  if (subject.equals && !subject.is_shared) {
    ++report_.compared;
    report_.compared_by_manifest += subject.by_manifest ? 1U : 0U;
    report_.converted += subject.equals->cast_to ? 1U : 0U;
  }
  if (!subject.is_shared) {
    count_linked(subject, answer);
  }
  if (options_.compare != Compare::kPlaces && !is_linked_elsewhere(subject.entry->location)) {
    report_bytes(subject, answer.difference, answer.crc32);
  }
}

void ModelVerifier::count_linked(const Subject& subject, const RangeAnswer& answer) {
  const bool by_record = !subject.equals && subject.record != nullptr &&
                         found_->manifest->is_linked(subject.record->file);
  if (!by_record && !answer.own) {
    return;
  }
  const bool has_crc = by_record ? subject.record->crc32.has_value()
                                 : recorded_crc_of(*checkpoint_, *subject.equals).has_value();
  ++report_.linked;
  report_.linked_without_crc += has_crc ? 0U : 1U;
}

void ModelVerifier::report_bytes(Subject& subject, const std::optional<ByteDifference>& difference,
                                 std::uint32_t crc32) {
  if (difference) {
    report(
        subject, FindingCode::kBytesDiffer,
        fmt::format(
            "byte {} of the tensor{} is {:#04x}, but {} {} has {:#04x}", difference->byte,
            place_in_file(subject.entry, difference->byte), difference->found,
            kind_of_source(*checkpoint_, *subject.equals) == StorageKind::kFile ? "the checkpoint's"
                                                                                : "in memory",
            quote(checkpoint_->tensors()[subject.equals->source_index].name), difference->wanted));
  }
  if (subject.record != nullptr && subject.record->crc32 && *subject.record->crc32 != crc32) {
    report(subject, FindingCode::kCrcDiffers,
           "its bytes differ from those that the manifest recorded");
  }
}

std::vector<ModelVerifier::Subject*> ModelVerifier::inline_subjects() {
  std::vector<Subject*> found;
  for (Subject& subject : subjects_) {
    const onnx::TensorProto& proto = *subject.tensor.proto;
    if (!is_external(proto) && (subject.equals || subject.record != nullptr)) {
      found.push_back(&subject);
      report_.inline_tensors += subject.is_shared ? 0U : 1U;
      report_.inline_compared += subject.equals && !subject.is_shared ? 1U : 0U;
      inline_bytes_ += onnx_nbytes(proto.data_type(), dims_of(proto)).value_or(0);
    }
  }
  report_.bytes += inline_bytes_;
  return found;
}

Status ModelVerifier::check_inline_ones(const std::vector<Subject*>& subjects,
                                        ProgressMeter& meter) {
  const int threads = thread_count(options_.threads);
  std::vector<ByteComparer> comparers(static_cast<std::size_t>(threads));
  return parallel_for(subjects.size(), threads, [&](std::size_t i, int thread) {
    return check_inline(*subjects[i], comparers[static_cast<std::size_t>(thread)], meter);
  });
}

Status ModelVerifier::check_inline(Subject& subject, ByteComparer& comparer, ProgressMeter& meter) {
  auto reader = InlineReader::open(*subject.tensor.proto, *model_.cuts);
  if (!reader) {
    report(subject, FindingCode::kBadEntry, reader.error().message);
    return {};
  }
  const bool by_crc = subject.written_crc && options_.compare == Compare::kRecordedCrc;
  Crc32 crc;
  ComparedBytes bytes{
      bytes_read_by([&](std::uint64_t, std::span<std::byte> out) { return reader->read(out); }),
      {},
      [&](std::span<const std::byte> piece) {
        crc.update(piece);
        return meter.step(piece.size());
      }};
  MemoryRuns::Held held;
  if (subject.equals && !by_crc) {
    TRY_ASSIGN(held, hold_planned(*checkpoint_, *subject.equals));
    bytes.wanted = bytes_read_by([&](std::uint64_t at, std::span<std::byte> room) {
      return read_planned(*checkpoint_, *subject.equals, at, room);
    });
  }
  TRY_ASSIGN(const auto compared,
             comparer.compare(0, reader->nbytes(), bytes, AtDifference::kReadOn));
  if (compared.unreadable) {
    report(subject, FindingCode::kBadEntry, compared.unreadable->message);
    return {};
  }
  if (by_crc && crc.value() != *subject.written_crc) {
    if (kind_of_source(*checkpoint_, *subject.equals) == StorageKind::kMade) {
      report(subject, FindingCode::kBytesDiffer, kNotWhatWasMade);
      return {};
    }
    subject.written_crc.reset();  // which byte is it?
    return check_inline(subject, comparer, meter);
  }
  report_bytes(subject, compared.difference, crc.value());
  return {};
}

Status ModelVerifier::check_checksums(FileSha1s& sha1s, ProgressMeter& meter) {
  std::map<std::string_view, std::vector<Subject*>> by_file;
  std::vector<std::string> left;
  for (Subject& subject : subjects_) {
    if (subject.entry && !subject.entry->sha1.empty()) {
      by_file[subject.entry->location].push_back(&subject);
    }
  }
  for (const auto& [location, users] : by_file) {
    if (!sha1s.contains(location)) {
      left.emplace_back(location);
    }
  }
  TRY(add_sha1s(left, sha1s, meter));
  for (const auto& [location, users] : by_file) {
    const Result<std::string>& sha1 = sha1s.find(location)->second;
    for (Subject* user : users) {
      if (sha1 && *sha1 != user->entry->sha1) {  // an unreadable file has already been reported
        report(*user, FindingCode::kChecksumDiffers, "the SHA-1 of its file is " + *sha1);
      }
    }
  }
  return {};
}

Status ModelVerifier::add_sha1s(const std::vector<std::string>& locations, FileSha1s& sha1s,
                                ProgressMeter& meter) const {
  std::vector<Result<std::string>> found(locations.size());
  TRY(parallel_for(locations.size(), thread_count(options_.threads),
                   [&](std::size_t i, int) -> Status {
                     found[i] = file_sha1(data_folder(), locations[i], meter);
                     return found[i] || found[i].error().code != ErrorCode::kCancelled
                                ? Status()
                                : Status(fail(found[i].error()));
                   }));
  for (std::size_t i = 0; i < locations.size(); ++i) {
    sha1s.emplace(locations[i], std::move(found[i]));
  }
  return {};
}

}  // namespace onnx_external
