#include "verify/model_verifier.h"

#include <iterator>
#include <map>
#include <utility>

#include "base/directory.h"
#include "base/safe_path.h"
#include "base/text.h"
#include "base/try.h"
#include "onnx/duplicate_names.h"
#include "onnx/external_data.h"
#include "onnx/inline_data.h"
#include "onnx/side_files.h"
#include "save/identity.h"
#include "save/kept_rows.h"
#include "save/packed_json.h"
#include "save/planned_bytes.h"
#include "tensor/missing_data.h"
#include "verify/set_check.h"

namespace onnx_external {
namespace {

// Caps a report near 1 MB; the rest are only counted.
constexpr std::size_t kMaxFindings = 1000;

bool has_bytes_of(const onnx::TensorProto& proto, const TensorView& view) {
  const auto found = onnx_nbytes(proto.data_type(), dims_of(proto));
  const auto wanted = contiguous_nbytes(view.dtype, view.shape);
  return found && wanted && *found == *wanted;
}

}  // namespace

Status ModelVerifier::prepare(const ModelToVerify& model) {
  linked_folder_ = model.linked_folder;
  TRY_ASSIGN(tensors_, list_tensors(*model_.proto));
  index_ = index_tensors(tensors_);
  read_entries();
  TRY(read_names());
  for (const ExpectedTensor& wanted : model.expected) {
    match_expected(wanted);
  }
  read_manifest(model.manifest);
  if (model.expected.empty() && !report_.used_manifest) {
    check_unknown_data();
  }
  inline_ones_ = inline_subjects();
  return {};
}

VerifyReport ModelVerifier::collect() {
  count_uncompared();
  keep(first_);
  for (Subject& subject : subjects_) {
    keep(subject.findings);
  }
  keep(last_);
  report_.remarks = remarks_.list();
  if (left_out_ > 0) {
    report_.findings.push_back({first_left_out_, "", "",
                                "and " + std::to_string(left_out_) +
                                    (left_out_ == 1 ? " more finding" : " more findings")});
  }
  return std::move(report_);
}

void ModelVerifier::report(Subject& subject, FindingCode code, std::string message) {
  subject.findings.push_back({code, name_in_finding(subject.tensor.name),
                              subject.entry ? name_in_finding(subject.entry->location) : "",
                              std::move(message)});
}

void ModelVerifier::remark(const Subject& subject, DataRemarks remarks) {
  remarks_.add(remarks, name_in_finding(subject.tensor.name));
  const bool lacks_length =
      remarks.has(DataRemark::kNoLength) || remarks.has(DataRemark::kZeroLength);
  report_.without_length += lacks_length ? 1U : 0U;
}

void ModelVerifier::read_entries() {
  subjects_.resize(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    Subject& subject = subjects_[i];
    subject.tensor = tensors_[i];
    if (is_external(*tensors_[i].proto)) {
      ++report_.tensors;
      subject.entry = read_entry(tensors_[i], subject.findings);
      if (subject.entry) {
        remark(subject, subject.entry->remarks);
      }
    }
  }
}

Status ModelVerifier::read_names() {
  if (options_.open_slots == OpenSlots::kAllow) {
    return {};
  }
  TRY_ASSIGN(names_, GraphNames::of(*model_.proto));
  last_ = names_->open_slots(*model_.proto, tensors_);
  report_.open_slots = last_.size();
  for (const std::string& file : list_side_files(*model_.proto)) {
    if (const auto opened = open_beneath(model_.folder, file); !opened) {
      last_.push_back({opened.error().code == ErrorCode::kNotFound ? FindingCode::kMissingFile
                                                                   : FindingCode::kBadLocation,
                       "", name_in_finding(file),
                       "EPContext nodes need it: " + opened.error().message});
    }
  }
  TRY_ASSIGN(const auto graphs, list_graphs(model_.proto->graph()));
  for (DuplicateName& duplicate : find_duplicate_names(graphs)) {
    Subject* subject = subject_of(duplicate.graph, std::string(duplicate.name));
    subject = subject != nullptr
                  ? subject
                  : subject_of(duplicate.graph, std::string(duplicate.name), TensorPlace::kSparse);
    if (subject != nullptr) {
      report(*subject, FindingCode::kDuplicateName, std::move(duplicate.message));
    }
  }
  return {};
}

ModelVerifier::Subject* ModelVerifier::subject_of(std::uint32_t graph, const std::string& name,
                                                  TensorPlace place) {
  const auto found = index_.find({graph, place, name});
  return found == index_.end() ? nullptr : &subjects_[found->second];
}

ModelVerifier::Subject* ModelVerifier::shared_subject(const ExpectedTensor& wanted) {
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

void ModelVerifier::match_expected(const ExpectedTensor& wanted) {
  Subject* found = subject_of(wanted.graph, wanted.initializer, wanted.place);
  found = found == nullptr && wanted.place == TensorPlace::kInitializer ? shared_subject(wanted)
                                                                        : found;
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
           "according to the manifest, it was saved from the checkpoint's " +
               quote(checkpoint_->tensors()[*wanted.disputed].name) + ", but the mapping gives " +
               quote(checkpoint_->tensors()[wanted.tensor].name) +
               (*wanted.disputed == wanted.tensor ? ", one of them transposed" : "") +
               "; give the mapping options of the save, if it had any");
  }
  const onnx::TensorProto& proto = *subject.tensor.proto;
  const TensorView& view = checkpoint_->tensors()[wanted.tensor];
  if (wanted.by == ExpectedBy::kModel && has_bytes_of(proto, view)) {
    subject.equals = {wanted.tensor, {}, std::nullopt, {}};
    subject.written_crc = wanted.written_crc;
    return;
  }
  if (wanted.packed) {
    match_packed(wanted, subject);
    return;
  }
  const auto derived = apply_recipe(wanted.recipe, view);
  const auto made = derived ? apply_recipe(wanted.recipe, view.shape) : fail(derived.error());
  const auto shape = made ? onnx_shape(view.dtype, *made) : made;
  const bool same_type = proto.data_type() == onnx_data_type(view.dtype);
  const auto target = dtype_from_onnx(proto.data_type());
  const bool casts = wanted.casts == Casts::kAllow || ends_with_cast(wanted.recipe);
  const bool castable = casts && can_cast_from(view.dtype) && target && can_cast_to(*target);
  if (shape && dims_of(proto) == *shape && (same_type || castable)) {
    subject.equals = {wanted.tensor, wanted.recipe, same_type ? std::nullopt : target, {}};
    subject.written_crc = wanted.written_crc;
  } else {
    report(subject, FindingCode::kTypeDiffers,
           std::string(onnx_type_name(proto.data_type())) + " " + shape_text(dims_of(proto)) +
               ", but the checkpoint's " + quote(view.name) + " is " +
               std::string(torch_name(view.dtype)) + " " + shape_text(view.shape) +
               (wanted.recipe.empty() ? "" : ", before " + recipe_text(wanted.recipe)));
  }
}

// A part of a quantized matrix has other dims than the matrix, and several shapes serve for codes.
void ModelVerifier::match_packed(const ExpectedTensor& wanted, Subject& subject) {
  const onnx::TensorProto& proto = *subject.tensor.proto;
  const TensorView& view = checkpoint_->tensors()[wanted.tensor];
  const PackedTensor& packed = *wanted.packed;
  const auto derived = apply_recipe(wanted.recipe, view);
  const auto rows = derived ? apply_recipe(wanted.recipe, view.shape) : fail(derived.error());
  const bool same_shape = rows && rows->size() == 2 &&
                          static_cast<std::uint64_t>((*rows)[0]) == packed.rows &&
                          static_cast<std::uint64_t>((*rows)[1]) == packed.columns;
  const auto bytes = onnx_nbytes(proto.data_type(), dims_of(proto));
  const std::uint64_t part_bytes = packed_bytes(packed);
  const auto kept = derived && packed.scheme.kept
                        ? KeptRows::of(*checkpoint_, *derived, packed.columns, packed.scheme.scales)
                        : Result<std::optional<KeptRows>>(std::nullopt);
  const bool same_scheme =
      !packed.scheme.kept || (kept && *kept && (*kept)->scheme() == packed.scheme);
  if (same_shape && same_scheme && can_cast_from(view.dtype) && bytes && *bytes == part_bytes &&
      is_packed_type(packed, proto.data_type())) {
    subject.equals = {wanted.tensor, wanted.recipe, packing_cast(view.dtype), packed};
    subject.written_crc = wanted.written_crc;
    return;
  }
  report(subject, FindingCode::kTypeDiffers,
         std::string(onnx_type_name(proto.data_type())) + " " + shape_text(dims_of(proto)) +
             ", but the checkpoint's " + quote(view.name) + ", " +
             std::string(torch_name(view.dtype)) + " " + shape_text(view.shape) +
             (packed.scheme.kept ? ", has no codes that yield this tensor ("
                                 : ", does not yield this tensor when it is quantized (") +
             scheme_text(packed.scheme) + ")");
}

void ModelVerifier::read_parent() {
  auto note = read_parent_note(*model_.proto);
  if (!note) {
    first_.push_back({FindingCode::kManifest, "", "", note.error().message});
    return;
  }
  parent_ = *std::move(note);
  if (!parent_) {
    return;
  }
  const auto folder = Directory::open(model_.folder);
  const auto found = folder ? identify_parent(*folder, parent_->file) : std::nullopt;
  if (found != parent_->model) {
    first_.push_back({FindingCode::kParentReplaced, "", name_in_finding(parent_->file),
                      found ? "is not the model that the piece was cut from; cut the piece again"
                            : "the model that the piece was cut from does not exist"});
  }
}

ModelFile ModelVerifier::described_model() const {
  ModelFile described = model_;
  if (parent_) {
    described.name = parent_->file;
    described.bytes = parent_->model.bytes;
    described.crc32 = parent_->model.crc32;
  }
  return described;
}

// A cut piece has no manifest of its own. The manifest of its parent says what its data must be.
void ModelVerifier::read_manifest(const std::string& known) {
  read_parent();
  const ModelFile described = described_model();
  found_ = find_manifest(described, tensors_, known);
  if (parent_ && found_ && !(found_->manifest && knows(*found_->manifest, described))) {
    found_.reset();
  }
  if (found_ && !found_->manifest) {
    first_.push_back(
        {FindingCode::kManifest, "", found_->location, found_->manifest.error().message});
  }
  report_.used_manifest = found_ && found_->manifest;
  ManifestFacts facts;
  facts.records.resize(tensors_.size(), nullptr);
  if (report_.used_manifest) {
    const Manifest& manifest = *found_->manifest;
    if (!knows(manifest, described)) {
      first_.push_back(
          {FindingCode::kModelChanged, "", "", "the manifest was written for another model file"});
    }
    facts = match_manifest(manifest, found_->location, tensors_.size(), index_);
  }
  for (std::size_t i = 0; i < facts.records.size(); ++i) {
    // The subgraphs of a piece are numbered differently than those of its parent.
    const bool is_known = !parent_ || tensors_[i].graph == 0;
    check_record(subjects_[i], is_known ? facts.records[i] : nullptr);
  }
  if (!parent_) {
    std::move(facts.unplaced.begin(), facts.unplaced.end(), std::back_inserter(last_));
    check_own_manifest();
  }
}

void ModelVerifier::check_unknown_data() {
  std::map<std::string_view, std::vector<std::size_t>> files;
  std::vector<Shape> shapes;
  for (std::size_t i = 0; i < subjects_.size(); ++i) {
    shapes.push_back(dims_of(*subjects_[i].tensor.proto));
    if (subjects_[i].entry && subjects_[i].entry->has_range()) {
      files[subjects_[i].entry->location].push_back(i);
    }
  }
  const auto folder = Directory::open(data_folder());
  for (const auto& [location, indices] : files) {
    const auto file =
        folder ? open_data_file(*folder, std::string(location)) : fail(folder.error());
    if (!file) {
      continue;  // its tensors have findings
    }
    std::vector<StoredRange> ranges;
    for (const std::size_t i : indices) {
      const ExternalEntry& entry = *subjects_[i].entry;
      ranges.push_back({subjects_[i].tensor.name, shapes[i], entry.offset, entry.length});
    }
    auto note = check_is_not_missing(**file, std::move(ranges));
    if (!note) {
      last_.push_back({FindingCode::kBadFileKind, "", name_in_finding(std::string(location)),
                       std::move(note).error().message});
    } else if (!note->empty()) {
      report_.notes.push_back(*std::move(note));
    }
  }
}

void ModelVerifier::check_own_manifest() {
  if (report_.used_manifest) {
    check_linked_files(linked_folder(), found_->manifest->linked, last_);
  }
  check_set(model_, report_.used_manifest ? &*found_->manifest : nullptr, last_);
}

void ModelVerifier::check_record(Subject& subject, const ManifestTensor* record) {
  const bool external = is_external(*subject.tensor.proto);
  const bool copied_along = record != nullptr && record->key.empty();
  if (checkpoint_ != nullptr && external && subject.tensor.is_initializer() &&
      !subject.is_expected && !copied_along) {
    report(subject, FindingCode::kNotInCheckpoint, "no tensor in the checkpoint fills it");
  }
  if (external && !subject.entry) {
    return;  // reported already; there is no range to compare
  }
  if (record == nullptr) {
    if (report_.used_manifest && !parent_ && external && subject.tensor.is_initializer()) {
      report(subject, FindingCode::kManifest, "it is not in the manifest");
    }
    return;
  }
  std::string message =
      contradiction(*record, found_->folder, subject.tensor, external ? &*subject.entry : nullptr);
  if (message.empty()) {
    subject.record = record;
    report_.overflowed += record->overflowed;
  } else {
    report(subject, FindingCode::kManifest, std::move(message));
  }
}

void ModelVerifier::count_uncompared() {
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

void ModelVerifier::keep(std::vector<Finding>& findings) {
  for (Finding& finding : findings) {
    if (report_.findings.size() < kMaxFindings) {
      report_.findings.push_back(std::move(finding));
    } else if (left_out_++ == 0) {
      first_left_out_ = finding.code;
    }
  }
  findings = {};
}

}  // namespace onnx_external
