#include "onnx_external/verify.h"

#include <fmt/format.h>

#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/byte_comparer.h"
#include "base/digest.h"
#include "base/parallel.h"
#include "base/progress_meter.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/storage/bytes_ids.h"
#include "onnx/external_data.h"
#include "onnx/inline_data.h"
#include "save/planned_bytes.h"
#include "verify/external_entry.h"
#include "verify/graph_names.h"
#include "verify/manifest_check.h"
#include "verify/model_file.h"
#include "verify/range_check.h"

namespace onnx_external {
namespace {

// Caps a report near 1 MB; the rest are only counted.
constexpr std::size_t kMaxFindings = 1000;

// What is known of one tensor of the model.
struct Subject {
  ListedTensor tensor;
  std::optional<ExternalEntry> entry;  // nothing: inline, or no range that could be read
  std::optional<WantedTensor> equals;
  std::optional<std::uint32_t> written_crc;  // with `equals`
  const ManifestTensor* record = nullptr;    // nothing contradicts it
  bool is_expected = false;
  bool is_compared = false;  // VerifyOptions::compared_files has its file
  bool by_manifest = false;  // with `equals`: only the manifest names it
  bool is_shared = false;    // a second name of another subject's tensor
  std::size_t check = 0;     // with `entry`: index of its range check
  std::vector<Finding> findings;
};

// The range checks of all tensors; those that share a range and its expected bytes share a check.
std::vector<RangeCheck> plan_checks(std::vector<Subject>& subjects, const Checkpoint* checkpoint) {
  BytesIds ids(checkpoint == nullptr ? std::span<const Storage>() : checkpoint->storages());
  const auto id_of = [&](const WantedTensor& wanted) {
    return ids.id_of(*planned_view(*checkpoint, wanted), wanted.cast_to);
  };
  using Expected = std::optional<std::size_t>;
  std::map<std::tuple<std::string_view, std::uint64_t, std::uint64_t, bool, Expected>, std::size_t>
      known;
  std::vector<RangeCheck> checks;
  for (Subject& subject : subjects) {
    if (!subject.entry || subject.is_compared) {
      continue;
    }
    const Expected expected = subject.equals ? id_of(*subject.equals) : std::nullopt;
    const ExternalEntry& entry = *subject.entry;
    const auto [place, is_new] = known.try_emplace(
        {entry.location, entry.offset, entry.length, subject.equals.has_value(), expected},
        checks.size());
    if (is_new) {
      checks.push_back(
          {entry.location, entry.offset, entry.length, subject.equals, subject.written_crc, false});
    }
    subject.check = place->second;
    checks[subject.check].wants_crc |= subject.record != nullptr && subject.record->crc32;
  }
  return checks;
}

// One verification, step by step. Findings are kept by tensor, so that their order is the graph's
// whatever step and whatever thread made them.
class Verifier {
 public:
  Verifier(const ModelFile& model, const Checkpoint* checkpoint, const VerifyOptions& options)
      : model_(model), checkpoint_(checkpoint), options_(options) {}

  Result<VerifyReport> run(std::span<const ExpectedTensor> expected) {
    TRY_ASSIGN(const auto tensors, list_tensors(*model_.proto));
    index_ = index_tensors(tensors);
    read_entries(tensors);
    TRY(read_names());
    for (const ExpectedTensor& wanted : expected) {
      match_expected(wanted);
    }
    read_manifest(tensors);
    TRY(check_data());
    return collect();
  }

 private:
  static void report(Subject& subject, FindingCode code, std::string message) {
    subject.findings.push_back({code, name_in_finding(subject.tensor.name),
                                subject.entry ? name_in_finding(subject.entry->location) : "",
                                std::move(message)});
  }

  static TensorKey key_of(const ListedTensor& tensor) {
    return {tensor.graph, tensor.place, tensor.name};
  }

  void read_entries(const std::vector<ListedTensor>& tensors) {
    subjects_.resize(tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      Subject& subject = subjects_[i];
      subject.tensor = tensors[i];
      if (is_external(*tensors[i].proto)) {
        ++report_.tensors;
        subject.entry = read_entry(tensors[i], subject.findings);
        report_.without_length += subject.entry && !subject.entry->states_length ? 1U : 0U;
        subject.is_compared =
            subject.entry && options_.compared_files.contains(subject.entry->location);
      }
      if (tensors[i].is_initializer() && index_.at(key_of(tensors[i])) != i) {
        report(subject, FindingCode::kDuplicateName,
               "another initializer of its graph has this name");
      }
    }
  }

  // A model that is being saved was read name by name already.
  Status read_names() {
    if (options_.open_slots == OpenSlots::kAllow) {
      return {};
    }
    TRY_ASSIGN(names_, GraphNames::of(*model_.proto));
    last_ = names_->open_slots();
    return {};
  }

  Subject* subject_of(std::uint32_t graph, const std::string& initializer) {
    const auto found = index_.find({graph, TensorPlace::kInitializer, initializer});
    return found == index_.end() ? nullptr : &subjects_[found->second];
  }

  // The second name gets a subject of its own behind those of the list.
  Subject* shared_subject(const ExpectedTensor& wanted) {
    const auto shared =
        names_ ? names_->shared_initializer(wanted.graph, wanted.initializer) : std::nullopt;
    Subject* const first = shared ? subject_of(shared->first, shared->second) : nullptr;
    if (first == nullptr) {
      return nullptr;
    }
    first->is_expected = true;
    Subject second = *first;
    second.tensor.name = wanted.initializer;
    second.is_shared = true;
    second.findings.clear();
    return &subjects_.emplace_back(std::move(second));
  }

  void match_expected(const ExpectedTensor& wanted) {
    Subject* found = subject_of(wanted.graph, wanted.initializer);
    found = found == nullptr ? shared_subject(wanted) : found;
    if (found == nullptr) {
      if (!names_ || !names_->is_open(wanted.graph, wanted.initializer)) {
        last_.push_back({FindingCode::kMissingTensor, name_in_finding(wanted.initializer), "",
                         "the model has no such initializer"});
      }
      return;
    }
    Subject& subject = *found;
    subject.is_expected = true;
    subject.by_manifest = wanted.by == ExpectedBy::kManifest;
    if (wanted.disputed) {
      report(subject, FindingCode::kManifest,
             "the manifest has it from the checkpoint's " +
                 quote(checkpoint_->tensors()[*wanted.disputed].name) + ", but mapping gives " +
                 quote(checkpoint_->tensors()[wanted.tensor].name) +
                 (*wanted.disputed == wanted.tensor ? ", one of them transposed" : "") +
                 "; name the mapping options of the save, if it had some");
    }
    const onnx::TensorProto& proto = *subject.tensor.proto;
    const TensorView& view = checkpoint_->tensors()[wanted.tensor];
    const auto derived = apply_recipe(wanted.recipe, view);
    const auto shape = derived ? onnx_shape(view.dtype, derived->shape) : fail(derived.error());
    const bool same_type = proto.data_type() == onnx_data_type(view.dtype);
    const auto target = dtype_from_onnx(proto.data_type());
    const bool casts = wanted.casts == Casts::kAllow || ends_with_cast(wanted.recipe);
    const bool castable = casts && can_cast_from(view.dtype) && target && can_cast_to(*target);
    if (shape && dims_of(proto) == *shape && (same_type || castable)) {
      subject.equals = {wanted.tensor, wanted.recipe, same_type ? std::nullopt : target};
      subject.written_crc = wanted.written_crc;
    } else {
      report(subject, FindingCode::kTypeDiffers,
             std::string(onnx_type_name(proto.data_type())) + " " + shape_text(dims_of(proto)) +
                 ", but the checkpoint's " + quote(view.name) + " is " +
                 std::string(torch_name(view.dtype)) + " " + shape_text(view.shape) +
                 (wanted.recipe.empty() ? "" : ", before " + recipe_text(wanted.recipe)));
    }
  }

  void read_manifest(const std::vector<ListedTensor>& tensors) {
    found_ = find_manifest(model_, tensors, options_.manifest);
    if (found_ && !found_->manifest) {
      first_.push_back(
          {FindingCode::kManifest, "", found_->location, found_->manifest.error().message});
    }
    report_.used_manifest = found_ && found_->manifest;
    ManifestFacts facts;
    facts.records.resize(tensors.size(), nullptr);
    if (report_.used_manifest) {
      const Manifest& manifest = *found_->manifest;
      if (!knows(manifest, model_)) {
        first_.push_back({FindingCode::kModelChanged, "", "",
                          "the model file is not the one that the manifest was written for"});
      }
      facts = match_manifest(manifest, found_->location, tensors.size(), index_);
    }
    for (std::size_t i = 0; i < facts.records.size(); ++i) {
      check_record(subjects_[i], facts.records[i]);
    }
    std::move(facts.unplaced.begin(), facts.unplaced.end(), std::back_inserter(last_));
    if (report_.used_manifest) {
      check_test_data(model_, found_->manifest->test_data, last_);
      check_linked_files(data_folder(), found_->manifest->linked, last_);
    }
  }

  const std::filesystem::path& data_folder() const {
    return options_.data_folder.empty() ? model_.folder : options_.data_folder;
  }

  void check_record(Subject& subject, const ManifestTensor* record) {
    const bool external = is_external(*subject.tensor.proto);
    const bool copied_along = record != nullptr && record->key.empty();
    if (checkpoint_ != nullptr && external && subject.tensor.is_initializer() &&
        !subject.is_expected && !copied_along) {
      report(subject, FindingCode::kNotInCheckpoint, "no tensor of the checkpoint fills it");
    }
    if (external && !subject.entry) {
      return;  // reported already; there is no range to compare
    }
    if (record == nullptr) {
      if (report_.used_manifest && external && subject.tensor.is_initializer()) {
        report(subject, FindingCode::kManifest, "the manifest does not have it");
      }
      return;
    }
    std::string message = contradiction(*record, found_->folder, subject.tensor,
                                        external ? &*subject.entry : nullptr);
    if (message.empty()) {
      subject.record = record;
    } else {
      report(subject, FindingCode::kManifest, std::move(message));
    }
  }

  Status check_data() {
    const std::vector<RangeCheck> checks = plan_checks(subjects_, checkpoint_);
    for (const RangeCheck& check : checks) {
      report_.bytes += check.length;
    }
    const std::vector<Subject*> inline_ones = inline_subjects();
    ProgressMeter meter(options_.progress);
    meter.begin(Phase::kVerify, report_.bytes);
    TRY_ASSIGN(auto answers, check_ranges(data_folder(), checks, checkpoint_, options_, meter));
    for (Subject& subject : subjects_) {
      if (subject.entry && !subject.is_compared) {
        apply(subject, answers[subject.check]);
      }
    }
    TRY(check_inline_ones(inline_ones, meter));
    TRY(check_checksums(meter));
    TRY(meter.finish());
    return checkpoint_ == nullptr ? Status() : checkpoint_->check_unchanged();
  }

  void apply(Subject& subject, const RangeAnswer& answer) {
    if (answer.fault) {
      report(subject, answer.fault->code, answer.fault->message);
      return;
    }
    if (subject.equals && !subject.is_shared) {
      ++report_.compared;
      report_.compared_by_manifest += subject.by_manifest ? 1U : 0U;
      report_.converted += subject.equals->cast_to ? 1U : 0U;
    }
    if (!subject.is_shared) {
      count_linked(subject, answer);
    }
    if (options_.compare != Compare::kPlaces) {
      report_bytes(subject, answer.difference, answer.crc32);
    }
  }

  void count_linked(const Subject& subject, const RangeAnswer& answer) {
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

  void report_bytes(Subject& subject, const std::optional<ByteDifference>& difference,
                    std::uint32_t crc32) {
    if (difference) {
      report(subject, FindingCode::kBytesDiffer,
             fmt::format("byte {} is {:#04x}, but the checkpoint's {} has {:#04x}",
                         difference->byte, difference->found,
                         quote(checkpoint_->tensors()[subject.equals->source_index].name),
                         difference->wanted));
    }
    if (subject.record != nullptr && subject.record->crc32 && *subject.record->crc32 != crc32) {
      report(subject, FindingCode::kCrcDiffers,
             "its bytes are not those that the manifest recorded");
    }
  }

  // Those inside the model that something is known to compare with.
  std::vector<Subject*> inline_subjects() {
    std::vector<Subject*> found;
    for (Subject& subject : subjects_) {
      const onnx::TensorProto& proto = *subject.tensor.proto;
      if (!is_external(proto) && (subject.equals || subject.record != nullptr)) {
        found.push_back(&subject);
        report_.inline_tensors += subject.is_shared ? 0U : 1U;
        report_.inline_compared += subject.equals && !subject.is_shared ? 1U : 0U;
        report_.bytes += onnx_nbytes(proto.data_type(), dims_of(proto)).value_or(0);
      }
    }
    return found;
  }

  // Kept initializers that nothing speaks for.
  void count_uncompared() {
    const bool is_known = report_.used_manifest && knows(*found_->manifest, model_);
    for (const Subject& subject : subjects_) {
      const onnx::TensorProto& proto = *subject.tensor.proto;
      const bool is_weight = subject.tensor.is_initializer() && !subject.is_shared &&
                             !is_external(proto) && onnx_is_floating(proto.data_type()) &&
                             has_data(proto) &&
                             onnx_nbytes(proto.data_type(), dims_of(proto)).value_or(0) > 0;
      const bool is_compared =
          checkpoint_ != nullptr ? subject.is_expected : is_known || subject.record != nullptr;
      report_.inline_uncompared += is_weight && !is_compared ? 1U : 0U;
    }
  }

  Status check_inline_ones(const std::vector<Subject*>& subjects, ProgressMeter& meter) {
    const int threads = thread_count(options_.threads);
    std::vector<ByteComparer> comparers(static_cast<std::size_t>(threads));
    return parallel_for(subjects.size(), threads, [&](std::size_t i, int thread) {
      return check_inline(*subjects[i], comparers[static_cast<std::size_t>(thread)], meter);
    });
  }

  Status check_inline(Subject& subject, ByteComparer& comparer, ProgressMeter& meter) {
    auto reader = InlineReader::open(*subject.tensor.proto, *model_.cuts);
    if (!reader) {
      report(subject, FindingCode::kBadEntry, reader.error().message);
      return {};
    }
    const bool by_crc = subject.written_crc && options_.compare == Compare::kRecordedCrc;
    Crc32 crc;
    ComparedBytes bytes{[&](std::uint64_t, std::span<std::byte> out) { return reader->read(out); },
                        {},
                        [&](std::span<const std::byte> piece) {
                          crc.update(piece);
                          return meter.step(piece.size());
                        }};
    if (subject.equals && !by_crc) {
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
      subject.written_crc.reset();  // which byte is it?
      return check_inline(subject, comparer, meter);
    }
    report_bytes(subject, compared.difference, crc.value());
    return {};
  }

  // SHA-1 of whole files, where the model states it; runs in file order, so it is a pass of its
  // own.
  Status check_checksums(ProgressMeter& meter) {
    std::map<std::string_view, std::vector<Subject*>> by_file;
    for (Subject& subject : subjects_) {
      if (subject.entry && !subject.is_compared && !subject.entry->sha1.empty()) {
        by_file[subject.entry->location].push_back(&subject);
      }
    }
    std::vector<std::vector<Subject*>> files;
    files.reserve(by_file.size());
    for (auto& [location, users] : by_file) {
      files.push_back(std::move(users));
    }
    return parallel_for(files.size(), thread_count(options_.threads), [&](std::size_t i, int) {
      auto sha1 = file_sha1(data_folder(), files[i].front()->entry->location, meter);
      if (!sha1 && sha1.error().code == ErrorCode::kCancelled) {
        return Status(fail(std::move(sha1).error()));
      }
      for (Subject* user : files[i]) {
        if (sha1 && *sha1 != user->entry->sha1) {
          report(*user, FindingCode::kChecksumDiffers, "the SHA-1 of its file is " + *sha1);
        }
      }
      return Status();  // a file that cannot be read is a finding already
    });
  }

  VerifyReport collect() {
    count_uncompared();
    keep(first_);
    for (Subject& subject : subjects_) {
      keep(subject.findings);
    }
    keep(last_);
    if (left_out_ > 0) {
      report_.findings.push_back({first_left_out_, "", "",
                                  "and " + std::to_string(left_out_) +
                                      (left_out_ == 1 ? " more finding" : " more findings")});
    }
    return std::move(report_);
  }

  void keep(std::vector<Finding>& findings) {
    for (Finding& finding : findings) {
      if (report_.findings.size() < kMaxFindings) {
        report_.findings.push_back(std::move(finding));
      } else if (left_out_++ == 0) {
        first_left_out_ = finding.code;
      }
    }
    findings = {};
  }

  const ModelFile& model_;
  const Checkpoint* checkpoint_;
  const VerifyOptions& options_;
  TensorIndex index_;
  std::optional<GraphNames> names_;
  std::vector<Subject> subjects_;  // in graph order, then those of second names
  std::optional<FoundManifest> found_;
  std::vector<Finding> first_;  // of the model as a whole
  std::vector<Finding> last_;   // of tensors that the model does not have
  std::uint64_t left_out_ = 0;
  FindingCode first_left_out_ = FindingCode::kBadEntry;
  VerifyReport report_;
};

Result<VerifyReport> verify(const std::filesystem::path& model_path, const Checkpoint* checkpoint,
                            std::span<const ExpectedTensor> expected,
                            const VerifyOptions& options) {
  for (int reads = 1;; ++reads) {
    TRY_ASSIGN(auto model, read_model_file(model_path, options.drop_cache));
    auto report = Verifier(model, checkpoint, options).run(expected);
    const bool may_be_replaced = report && !report->ok() && reads < kMaxModelReads;
    if (!may_be_replaced || is_current(model_path, model)) {
      return report;
    }
  }
}

}  // namespace

Result<VerifyReport> verify_model(const std::filesystem::path& model_path,
                                  const VerifyOptions& options) {
  return verify(model_path, nullptr, {}, options);
}

Result<VerifyReport> verify_model_against(const std::filesystem::path& model_path,
                                          const Checkpoint& checkpoint,
                                          std::span<const ExpectedTensor> expected,
                                          const VerifyOptions& options) {
  return verify(model_path, &checkpoint, expected, options);
}

}  // namespace onnx_external
