#include "save/journal.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/digest.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/derivation_json.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "onnx/model_access.h"
#include "onnx/model_source.h"
#include "save/planned_bytes.h"

namespace onnx_external {
namespace {

constexpr std::string_view kJournalMagic = "onnx-external-journal 1 ";
constexpr std::size_t kJobDigits = 64;
constexpr std::size_t kHeaderBytes = kJournalMagic.size() + kJobDigits + 1;
constexpr std::size_t kLineBytes = 27;
constexpr const char* kTemporaryName = ".save-external.journal.new";

std::uint32_t crc32_of_text(std::string_view text) {
  Crc32 crc;
  crc.update(std::as_bytes(std::span(text)));
  return crc.value();
}

// "<part> <CRC-32 of its bytes> <CRC-32 of the text before it>\n", in hex.
std::string line_for(std::uint32_t part, std::uint32_t crc32) {
  std::string line;
  line.reserve(kLineBytes);
  line.append(hex_text(part)).append(" ").append(hex_text(crc32));
  const std::uint32_t own = crc32_of_text(line);
  line.append(" ").append(hex_text(own)).append("\n");
  return line;
}

// A line that is not exactly as line_for() writes it claims nothing.
void read_line(std::string_view line, WrittenParts& written) {
  const auto part = hex_number(line.substr(0, 8));
  const auto crc32 = hex_number(line.substr(9, 8));
  if (part && crc32 && *part < written.size() && line == line_for(*part, *crc32)) {
    written[*part] = *crc32;
  }
}

std::string header_for(std::string_view job) {
  return std::string(kJournalMagic).append(job).append("\n");
}

// The first `most` bytes of a journal that may be one of ours.
std::optional<std::string> read_text(const Directory& staging, std::uint64_t most) {
  const auto file = OutputFile::reopen(staging, std::string(kJournalName));
  const auto size = file ? file->size() : fail(file.error());
  if (!size) {
    return std::nullopt;
  }
  std::string text(static_cast<std::size_t>(std::min(*size, most)), '\0');
  const Status status =
      read_exact(file->fd(), 0, std::as_writable_bytes(std::span(text)), file->name());
  return status ? std::optional(std::move(text)) : std::nullopt;
}

// Feeds a hash with numbers of 7 bits a byte (most are small), and with texts and lists behind
// their lengths.
class JobHasher {
 public:
  void add(std::string_view text) {
    add(text.size());
    pending_ += text;
    if (pending_.size() > kPendingBytes) {
      flush();
    }
  }
  void add(std::uint64_t number) {
    for (; number >= 0x80; number >>= 7U) {
      pending_ += static_cast<char>(number | 0x80U);
    }
    pending_ += static_cast<char>(number);
  }
  void add(std::span<const std::int64_t> numbers) {
    add(numbers.size());
    for (const std::int64_t number : numbers) {
      add(static_cast<std::uint64_t>(number));
    }
  }
  std::string hex() {
    flush();
    return sha_.hex();
  }

 private:
  static constexpr std::size_t kPendingBytes = std::size_t{64} << 10;
  void flush() {
    sha_.update(std::as_bytes(std::span(pending_)));
    pending_.clear();
  }
  Sha sha_{Sha::Kind::kSha256};
  std::string pending_;
};

void add_plan(const SavePlan& plan, JobHasher& hasher) {
  hasher.add(plan.data_dir);
  hasher.add(plan.models.size());
  for (const PlannedModel& model : plan.models) {
    hasher.add(model.name);
    hasher.add(derived_json(model.asked.derived, ""));
  }
  hasher.add(static_cast<std::uint64_t>(plan.layout));
  hasher.add(plan.files.size());
  for (const PlannedFile& file : plan.files) {
    hasher.add(file.name);
    hasher.add(file.bytes);
  }
  hasher.add(plan.parts.size());
  for (const PlannedPart& part : plan.parts) {
    hasher.add(part.bytes);
    hasher.add(part.file);
    hasher.add(part.offset);
  }
}

void add_view(const Checkpoint& checkpoint, const PlannedTensor& tensor, JobHasher& hasher) {
  const DerivedView derived = planned_view(checkpoint, tensor);
  const TensorView& view = *derived;
  const Storage& storage = checkpoint.storages()[view.storage];
  hasher.add(view.name);
  hasher.add(torch_name(view.dtype));
  hasher.add(view.shape);
  hasher.add(view.strides);
  hasher.add(view.storage_offset);
  hasher.add((view.conj ? 2U : 0U) + (view.neg ? 1U : 0U));
  hasher.add(storage.file);
  hasher.add(storage.offset);
  hasher.add(storage.stored_bytes);
  hasher.add(storage.bytes);
}

Status add_external(const Model& model, std::size_t index, JobHasher& hasher) {
  const ExternalTensor& external = model.external_tensors()[index];
  TRY_ASSIGN(const auto file, open_external(model, external));
  TRY_ASSIGN(const auto stamp, file->stamp());
  hasher.add(external.location);
  hasher.add(external.offset);
  hasher.add(external.length);
  hasher.add(stamp);
  return {};
}

// The bytes stand in the model's file. A model from memory has none, and its save is never resumed:
// its placeholders begin with random bytes.
Status add_inline(const Model& model, std::size_t index, JobHasher& hasher) {
  const CutTensors& cuts = ModelAccess::cuts(model);
  const auto& file = cuts.shared_file();
  TRY_ASSIGN(const auto stamp, file ? file->stamp() : cuts.placeholders().text(0));
  hasher.add(index);
  hasher.add(stamp);
  return {};
}

Status add_source(const PlannedTensor& tensor, const SourceModels& models,
                  const Checkpoint& checkpoint, JobHasher& hasher) {
  switch (tensor.source) {
    case TensorSource::kCheckpoint:
      add_view(checkpoint, tensor, hasher);
      return {};
    case TensorSource::kModelExternal:
      return add_external(models.of(tensor), tensor.source_index, hasher);
    case TensorSource::kModelInline:
      break;
  }
  return add_inline(models.of(tensor), tensor.source_index, hasher);
}

}  // namespace

Result<std::string> name_job(const SavePlan& plan, const SourceModels& models,
                             const Checkpoint& checkpoint) {
  JobHasher hasher;
  add_plan(plan, hasher);
  for (const auto& file : CheckpointAccess::files(checkpoint)) {
    TRY_ASSIGN(const auto stamp, file->stamp());
    hasher.add(stamp);
  }
  for (const PlannedPart& part : plan.parts) {
    const PlannedTensor& tensor = plan.tensors[part.source_tensor];
    hasher.add(static_cast<std::uint64_t>(tensor.source));
    hasher.add(static_cast<std::uint64_t>(tensor.data_type));
    TRY(add_source(tensor, models, checkpoint, hasher));
  }
  return hasher.hex();
}

Journal::Journal(OutputFile file)
    : file_(std::move(file)), mutex_(std::make_unique<std::mutex>()) {}

Result<Journal> Journal::start(const Directory& staging, std::string_view job,
                               const WrittenParts& written) {
  TRY(staging.remove_tree(kTemporaryName));
  TRY_ASSIGN(auto file, OutputFile::create(staging, kTemporaryName));
  Journal journal(std::move(file));
  std::string text = header_for(job);
  for (std::uint32_t part = 0; part < written.size(); ++part) {
    if (written[part]) {
      text += line_for(part, *written[part]);
    }
  }
  TRY(journal.file_.write(0, std::as_bytes(std::span(text))));
  journal.end_ = text.size();
  TRY(rename_entry(staging, kTemporaryName, staging, std::string(kJournalName), Replace::kYes));
  return journal;
}

Status Journal::add(std::uint32_t part, std::uint32_t crc32, std::uint64_t bytes) {
  const std::string line = line_for(part, crc32);
  const std::lock_guard<std::mutex> lock(*mutex_);
  waiting_ += line;
  waiting_bytes_ += bytes;
  if (waiting_bytes_ < kJournaledBytes) {
    return {};
  }
  Status status = file_.write(end_, std::as_bytes(std::span(waiting_)));
  end_ += waiting_.size();
  waiting_.clear();
  waiting_bytes_ = 0;
  return status;
}

std::optional<WrittenParts> read_journal(const Directory& staging, std::string_view job,
                                         std::size_t parts) {
  // Each part is claimed once at most, so a longer file is none of ours.
  const std::uint64_t most = kHeaderBytes + std::uint64_t{kLineBytes} * parts;
  const auto text = read_text(staging, most + 1);
  if (!text || text->size() > most || !text->starts_with(header_for(job))) {
    return std::nullopt;
  }
  WrittenParts written(parts);
  for (std::size_t at = kHeaderBytes; at + kLineBytes <= text->size(); at += kLineBytes) {
    read_line(std::string_view(*text).substr(at, kLineBytes), written);
  }
  return written;
}

bool has_journal_of(const Directory& staging, std::string_view job) {
  const auto text = read_text(staging, kHeaderBytes);
  return text && *text == header_for(job);
}

}  // namespace onnx_external
