// Verifies one model in several steps. Between the steps, verify.cc reads the data ranges of all
// models that are verified together, so that a shared range is read only once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/byte_comparer.h"
#include "base/progress_meter.h"
#include "cut/parent_note.h"
#include "onnx/data_remarks.h"
#include "onnx/tensor_list.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"
#include "onnx_external/verify.h"
#include "save/manifest.h"
#include "verify/findings.h"
#include "verify/graph_names.h"
#include "verify/manifest_check.h"
#include "verify/model_file.h"
#include "verify/range_check.h"
#include "verify/range_plan.h"

namespace onnx_external {

// The SHA-1s computed for whole files, by location.
using FileSha1s = std::map<std::string, Result<std::string>, std::less<>>;

// The verification of one model. Call prepare(), plan_checks(), check_rest() and collect(), in this
// order. The arguments of the constructor must outlive this object; `checkpoint` may be null.
// Findings are stored by tensor, so that they are returned in the order of the graph, regardless of
// the step or thread that produced them. For use by one thread at a time.
class ModelVerifier {
 public:
  ModelVerifier(const ModelFile& model, const Checkpoint* checkpoint, const VerifyOptions& options)
      : model_(model), checkpoint_(checkpoint), options_(options) {}
  ModelVerifier(const ModelVerifier&) = delete;
  ModelVerifier& operator=(const ModelVerifier&) = delete;

  // Performs all checks that need no tensor data.
  [[nodiscard]] Status prepare(const ModelToVerify& model);

  // Adds the ranges that must be checked to `plan`. `number` is the index of this model among the
  // models that are verified together.
  void plan_checks(std::size_t number, RangePlan& plan);

  // Evaluates the results for these ranges, and checks the inline tensors. `answers` has the
  // results.
  [[nodiscard]] Status check_rest(std::span<const RangeAnswer> answers, FileSha1s& sha1s,
                                  ProgressMeter& meter);

  // Returns the report with all findings, in the order of the graph.
  [[nodiscard]] VerifyReport collect();

  // Return the folder to which locations are relative, for data files and for linked files.
  [[nodiscard]] const std::filesystem::path& data_folder() const { return model_.folder; }
  [[nodiscard]] const std::filesystem::path& linked_folder() const {
    return linked_folder_.empty() ? model_.folder : linked_folder_;
  }
  // Returns whether the file is a linked file in a linked_folder() that differs from the model's
  // folder.
  [[nodiscard]] bool is_linked_elsewhere(std::string_view location) const {
    return !linked_folder_.empty() && found_ && found_->manifest &&
           found_->manifest->is_linked(location);
  }
  // Returns the total size of the inline tensors that are checked, in bytes.
  [[nodiscard]] std::uint64_t inline_bytes() const { return inline_bytes_; }

 private:
  // A tensor of the model, and the facts that are known about it.
  struct Subject {
    ListedTensor tensor;
    std::optional<ExternalEntry> entry;  // nullopt if inline, or if the entry has no readable range
    std::optional<WantedTensor> equals;
    std::optional<std::uint32_t> written_crc;  // used with `equals`
    const ManifestTensor* record = nullptr;    // set if the record does not contradict the tensor
    bool is_expected = false;
    bool by_manifest = false;  // used with `equals`: only the manifest states it
    bool is_shared = false;    // a second name of a tensor that another subject has
    std::size_t check = 0;     // used with `entry`: index of its range check
    std::vector<Finding> findings;
  };

  // The steps that need no data (model_verifier.cc).
  static void report(Subject& subject, FindingCode code, std::string message);
  void remark(const Subject& subject, DataRemarks remarks);
  void read_entries();
  // Resolves the names in the graphs. Does nothing if names may be undefined (OpenSlots::kAllow),
  // as for a model that is being saved, because the mapping has checked this.
  [[nodiscard]] Status read_names();
  [[nodiscard]] Subject* subject_of(std::uint32_t graph, const std::string& name,
                                    TensorPlace place = TensorPlace::kInitializer);
  // Returns a subject for the second name of a tensor. Such subjects come after those of listed
  // tensors.
  [[nodiscard]] Subject* shared_subject(const ExpectedTensor& wanted);
  void match_expected(const ExpectedTensor& wanted);
  void match_packed(const ExpectedTensor& wanted, Subject& subject);
  // Reads the note that identifies the model from which a piece was cut, and checks that this model
  // was not replaced.
  void read_parent();
  // Returns the model that the manifest describes: this model, or the model from which it was cut.
  [[nodiscard]] ModelFile described_model() const;
  void read_manifest(const std::string& known);
  // Performs the remaining checks of the manifest, if it was written for this model.
  void check_own_manifest();
  void check_record(Subject& subject, const ManifestTensor* record);
  // Searches data whose expected bytes are not known for zeros that replaced missing data.
  void check_unknown_data();
  // Counts initializers inside the model that could not be compared
  // (VerifyReport::inline_uncompared).
  void count_uncompared();
  void keep(std::vector<Finding>& findings);

  // The steps that read data (model_verifier_data.cc).
  void apply(Subject& subject, const RangeAnswer& answer);
  void count_linked(const Subject& subject, const RangeAnswer& answer);
  void report_bytes(Subject& subject, const std::optional<ByteDifference>& difference,
                    std::uint32_t crc32);
  // Returns the inline tensors whose expected bytes are known.
  [[nodiscard]] std::vector<Subject*> inline_subjects();
  [[nodiscard]] Status check_inline_ones(const std::vector<Subject*>& subjects,
                                         ProgressMeter& meter);
  [[nodiscard]] Status check_inline(Subject& subject, ByteComparer& comparer, ProgressMeter& meter);
  // Checks the SHA-1s of whole files that the model states. This is a separate pass, because a
  // SHA-1 needs the bytes in file order.
  [[nodiscard]] Status check_checksums(FileSha1s& sha1s, ProgressMeter& meter);
  [[nodiscard]] Status add_sha1s(const std::vector<std::string>& locations, FileSha1s& sha1s,
                                 ProgressMeter& meter) const;

  const ModelFile& model_;
  const Checkpoint* checkpoint_;
  const VerifyOptions& options_;
  std::filesystem::path linked_folder_;  // see ModelToVerify::linked_folder
  std::vector<ListedTensor> tensors_;
  TensorIndex index_;
  std::optional<GraphNames> names_;
  std::vector<Subject> subjects_;     // in graph order, followed by second names
  std::optional<ParentNote> parent_;  // set for a cut piece
  std::optional<FoundManifest> found_;
  RemarkCounter remarks_;
  std::vector<Finding> first_;  // findings about the model as a whole
  std::vector<Finding> last_;   // findings about tensors that the model lacks
  std::uint64_t left_out_ = 0;
  FindingCode first_left_out_ = FindingCode::kBadEntry;
  std::vector<Subject*> inline_ones_;
  std::uint64_t inline_bytes_ = 0;
  VerifyReport report_;
};

}  // namespace onnx_external
