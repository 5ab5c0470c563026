#include "save/reuse.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/buffer_pool.h"
#include "base/byte_comparer.h"
#include "base/digest.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/io_buffer.h"
#include "base/name_map.h"
#include "base/parallel.h"
#include "base/progress_meter.h"
#include "base/read_step.h"
#include "base/safe_path.h"
#include "base/try.h"
#include "save/file_names.h"
#include "save/file_syncer.h"
#include "save/generations.h"
#include "save/part_source.h"
#include "save/planned_bytes.h"

namespace onnx_external {
namespace {

// Each may hold Checkpoint::kReadScratchBytes.
constexpr int kMaxReuseReaders = 4;

// A data file of the model that is replaced, as its manifest describes it.
struct OldPart {
  std::uint64_t length = 0;
  std::optional<std::uint32_t> crc32;
};
struct OldFile {
  std::string location;
  std::map<std::uint64_t, OldPart> parts;  // by offset
};

// What files of all generations have in common, whatever their names: "/weight" of
// "initializers.1/weight", "-00001-of-00002" of "model.1-00001-of-00002.data", "" of a single file.
std::string_view name_in_generation(std::string_view location) {
  const std::size_t slash = location.rfind('/');
  return slash != std::string_view::npos ? location.substr(slash) : shard_mark(location);
}

using OldFiles = NameMap<OldFile>;  // by name_in_generation()

// Adds the model's own data files; those that it links to are not ours to keep. The models of a set
// share files.
void add_old_files(const Manifest& manifest, const GenerationNames& names, OldFiles& files) {
  for (const ManifestTensor& tensor : manifest.tensors) {
    const bool is_beside = tensor.file.find('/') == std::string::npos;
    if (tensor.file.empty() || manifest.is_linked(tensor.file) ||
        !(is_beside ? !data_name_fault(names.model, tensor.file)
                    : generation_of_location(names, tensor.file).has_value())) {
      continue;
    }
    OldFile& file = files[name_in_generation(tensor.file)];
    if (file.location.empty()) {
      file.location = tensor.file;
    }
    if (file.location == tensor.file) {
      file.parts.try_emplace(tensor.offset, OldPart{tensor.length, tensor.crc32});
    }
  }
}

// The models that the plan replaces.
std::vector<GenerationNames> replaced_names(const SavePlan& plan) {
  const std::string folder(generation_base(plan.data_dir));
  std::vector<GenerationNames> names;
  for (const PlannedModel& model : plan.set) {
    names.push_back({model.name, folder, plan.data_name});
  }
  if (names.empty()) {
    names.push_back({plan.model_name, folder, plan.data_name});
  }
  return names;
}

// A planned file that may stand in the old model already.
struct Candidate {
  std::uint32_t file = 0;
  std::uint32_t first_part = 0;
  std::uint32_t end_part = 0;
  const OldFile* old = nullptr;
};

// Compares one candidate with its old file.
class OldFileCheck {
 public:
  OldFileCheck(const SavePlan& plan, const SourceModels& models, const Checkpoint& checkpoint,
               const Candidate& candidate, ByteComparer& comparer, BufferPool& tiles,
               ProgressMeter& meter)
      : plan_(plan),
        models_(models),
        checkpoint_(checkpoint),
        candidate_(candidate),
        comparer_(comparer),
        tiles_(tiles),
        meter_(meter) {}

  // Nothing: it is another file, or cannot be read.
  Result<std::optional<ReusedFile>> run(const Directory& out, const WriteOptions& options) {
    const PlannedFile& planned = plan_.files[candidate_.file];
    const auto old = open_beneath(out, candidate_.old->location);
    const auto stamp = old ? (*old)->stamp() : fail(old.error());
    if (!stamp || (*old)->size() != planned.bytes) {
      return std::nullopt;
    }
    old_ = *old;
    reused_.location = candidate_.old->location;
    reused_.stamp = *stamp;
    if (options.checksum == Checksum::kSha1) {
      sha_.emplace(Sha::Kind::kSha1);
    }
    if (options.sync == Sync::kFiles) {
      drop_pages(old_->fd());
    }
    TRY_ASSIGN(const bool equal, compare());
    if (!equal) {
      return std::nullopt;
    }
    reused_.sha1 = sha_ ? sha_->hex() : std::string();
    return std::move(reused_);
  }

 private:
  Result<bool> compare() {
    bool equal = true;
    for (std::uint32_t part = candidate_.first_part; equal && part < candidate_.end_part; ++part) {
      TRY_ASSIGN(equal, compare_padding(plan_.parts[part].offset));
      if (equal) {
        TRY_ASSIGN(equal, compare_part(part));
      }
    }
    return equal;
  }

  Result<bool> compare_padding(std::uint64_t end) {
    const auto zeros = [](std::uint64_t, std::span<std::byte> room) -> Status {
      std::memset(room.data(), 0, room.size());
      return {};
    };
    TRY_ASSIGN(const auto crc, crc_if_equal(end - position_, zeros));
    return crc.has_value();
  }

  Result<bool> compare_part(std::uint32_t number) {
    const PlannedPart& part = plan_.parts[number];
    const PlannedTensor& tensor = plan_.tensors[part.source_tensor];
    if (const auto tiles = planned_tiles(checkpoint_, tensor)) {
      return compare_tiles(*tiles, part.bytes);
    }
    TRY_ASSIGN(const auto wanted, planned_reader(tensor, models_, checkpoint_));
    TRY_ASSIGN(const auto crc, crc_if_equal(part.bytes, wanted));
    if (!crc) {
      return false;
    }
    reused_.crcs.push_back(*crc);
    const auto recorded = recorded_crc_of(checkpoint_, tensor);
    return !recorded || *recorded == *crc;  // else the copying says what is damaged
  }

  // A SHA needs the bytes in their order, so they are read again.
  Result<bool> compare_tiles(const TiledView& tiles, std::uint64_t bytes) {
    BufferPool::Lease tile(tiles_);
    bool equal = true;
    const auto compare = [&](std::uint64_t at, std::span<const std::byte> run) -> Status {
      const auto take = [this](std::span<const std::byte> piece) {
        return meter_.step(piece.size());
      };
      TRY_ASSIGN(const auto compared,
                 comparer_.compare(at, run.size(), {old_bytes(), bytes_in_memory(at, run), take},
                                   AtDifference::kStop));
      equal = compared.equal();
      return equal ? Status() : cancelled();  // of the tiles that are left
    };
    const auto crc = tiles.read(0, bytes, *tile, compare);
    if (!equal) {
      return false;
    }
    if (!crc) {
      return fail(crc.error());
    }
    reused_.crcs.push_back(*crc);
    if (sha_) {
      IoBuffer buffer;
      const auto read = for_each_step(
          bytes, buffer, [&](std::uint64_t first, std::span<std::byte> found) -> Status {
            TRY(old_->read(position_ + first, found));
            sha_->update(found);
            return {};
          });
      equal = read.has_value();
    }
    position_ += bytes;
    return equal;
  }

  // Bytes of the old file from where the part that is being compared begins.
  ReadBytes old_bytes() const {
    return [this](std::uint64_t at, std::span<std::byte> out) {
      return old_->read(position_ + at, out);
    };
  }

  // The CRC of the next bytes of the old file if they are the wanted ones. What cannot be read is
  // not reused.
  Result<std::optional<std::uint32_t>> crc_if_equal(std::uint64_t bytes, const ReadBytes& wanted) {
    Crc32 crc;
    const auto take = [&](std::span<const std::byte> piece) {
      crc.update(piece);
      if (sha_) {
        sha_->update(piece);
      }
      return meter_.step(piece.size());
    };
    TRY_ASSIGN(const auto compared,
               comparer_.compare(0, bytes, {old_bytes(), bytes_read_by(wanted), take},
                                 AtDifference::kStop));
    position_ += bytes;
    return compared.equal() ? std::optional(crc.value()) : std::nullopt;
  }

  const SavePlan& plan_;
  SourceModels models_;
  const Checkpoint& checkpoint_;
  const Candidate& candidate_;
  ByteComparer& comparer_;
  BufferPool& tiles_;
  ProgressMeter& meter_;
  std::shared_ptr<const SourceFile> old_;
  std::uint64_t position_ = 0;  // in the file
  std::optional<Sha> sha_;
  ReusedFile reused_;
};

// The same parts, with CRCs that do not speak against it.
bool may_be_equal(const Candidate& candidate, const SavePlan& plan, const Checkpoint& checkpoint) {
  for (std::uint32_t i = candidate.first_part; i < candidate.end_part; ++i) {
    const PlannedPart& part = plan.parts[i];
    const PlannedTensor& tensor = plan.tensors[part.source_tensor];
    const auto old = candidate.old->parts.find(part.offset);
    if (old == candidate.old->parts.end() || old->second.length != part.bytes) {
      return false;
    }
    const auto recorded = recorded_crc_of(checkpoint, tensor);
    if (recorded && old->second.crc32 && *recorded != *old->second.crc32) {
      return false;
    }
  }
  return true;
}

std::vector<Candidate> find_candidates(const SavePlan& plan, const OldFiles& old,
                                       const Checkpoint& checkpoint) {
  std::vector<Candidate> candidates;
  for (std::uint32_t part = 0; part < plan.parts.size();) {
    Candidate candidate{plan.parts[part].file, part, part, nullptr};
    while (part < plan.parts.size() && plan.parts[part].file == candidate.file) {
      candidate.end_part = ++part;
    }
    const std::string location = plan.location(candidate.file);
    const auto found = old.find(name_in_generation(location));
    if (found != old.end()) {
      candidate.old = &found->second;
      if (may_be_equal(candidate, plan, checkpoint)) {
        candidates.push_back(candidate);
      }
    }
  }
  return candidates;
}

// What an earlier save did not wait for must be on the disk before this one is.
Status sync_old_files(const Directory& out, const std::vector<Candidate>& candidates, int threads) {
  if (are_synced_together(candidates.size())) {
    return out.sync_file_system();
  }
  return parallel_for(candidates.size(), threads, [&](std::size_t i, int) -> Status {
    const auto file = open_beneath(out, candidates[i].old->location);
    return file ? sync_file((*file)->fd(), (*file)->name()) : Status();  // else it is not reused
  });
}

}  // namespace

Error no_locks_error(const Directory& out) {
  return {ErrorCode::kUnsupported,
          out.path().string() +
              ": its file system has no locks, so another save could remove what is to be "
              "kept; write all files anew, without reuse"};
}

WrittenParts with_reused_files(const SavePlan& plan, WrittenParts written) {
  std::optional<std::uint32_t> file;
  std::size_t place = 0;  // of the part in its file
  for (std::size_t i = 0; i < plan.parts.size() && !plan.reused.empty(); ++i) {
    place = file == plan.parts[i].file ? place + 1 : 0;
    file = plan.parts[i].file;
    if (const auto reused = plan.reused.find(*file); reused != plan.reused.end()) {
      written[i] = reused->second.crcs[place];
    }
  }
  return written;
}

std::vector<PlannedFile> files_to_write(const SavePlan& plan) {
  std::vector<PlannedFile> files;
  for (std::uint32_t file = 0; file < plan.files.size(); ++file) {
    if (!plan.reused.contains(file)) {
      files.push_back(plan.files[file]);
    }
  }
  return files;
}

Status check_reused_files(const SavePlan& plan, const std::filesystem::path& out_dir, Sync sync) {
  if (plan.reused.empty()) {
    return {};
  }
  TRY_ASSIGN(const auto out, Directory::open(out_dir));
  std::set<std::string> folders;
  for (const auto& [number, reused] : plan.reused) {
    const auto file = open_beneath(out, reused.location);
    const auto stamp = file ? (*file)->stamp() : fail(file.error());
    if (!stamp || *stamp != reused.stamp) {
      return fail(ErrorCode::kCorrupt, out.child(reused.location) +
                                           ": was to be kept, but changed meanwhile; run it again");
    }
    folders.insert(reused.location.substr(0, reused.location.find('/')));
  }
  if (plan.layout != Layout::kPerTensor || sync != Sync::kFiles) {
    return {};
  }
  for (const std::string& name : folders) {
    const auto folder = out.open_folder(name);
    TRY(folder ? folder->sync() : Status());
  }
  return {};
}

Result<SavePlan> reuse_equal_files(SavePlan plan, const SourceModels& models,
                                   const Checkpoint& checkpoint,
                                   const std::filesystem::path& out_dir,
                                   const WriteOptions& options) {
  if (options.team != nullptr && options.team->size() > 1) {
    return fail(ErrorCode::kInvalidArgument,
                "keeping files of the old model is work for one process; leave it out in a team");
  }
  const auto out = Directory::open(out_dir);
  if (!out || plan.layout == Layout::kInline || plan.layout == Layout::kLink) {
    return plan;  // a folder that is missing is made by the save
  }
  std::deque<Manifest> manifests;  // what the names of `files` are part of
  OldFiles files;
  for (const GenerationNames& names : replaced_names(plan)) {
    if (auto manifest = current_manifest(*out, names)) {
      add_old_files(manifests.emplace_back(*std::move(manifest)), names, files);
    }
  }
  if (manifests.empty()) {
    return plan;
  }
  // The lock ends with this descriptor: the save takes its own.
  if (const auto probe = Directory::open(out_dir); probe && !probe->try_lock().has_value()) {
    return fail(no_locks_error(*out));
  }
  const std::vector<Candidate> candidates = find_candidates(plan, files, checkpoint);
  const int threads = std::min(thread_count(options.threads), kMaxReuseReaders);
  if (options.sync == Sync::kFiles && !candidates.empty()) {
    TRY(sync_old_files(*out, candidates, threads));
  }
  ProgressMeter meter(options.progress);
  std::uint64_t bytes = 0;
  for (const Candidate& candidate : candidates) {
    bytes += plan.files[candidate.file].bytes;
  }
  meter.begin(Phase::kCompare, bytes);
  std::vector<std::optional<ReusedFile>> reused(candidates.size());
  std::vector<ByteComparer> comparers(static_cast<std::size_t>(threads));
  BufferPool tiles(kMaxTiles);
  TRY(parallel_for(candidates.size(), threads, [&](std::size_t i, int thread) -> Status {
    TRY_ASSIGN(reused[i], OldFileCheck(plan, models, checkpoint, candidates[i],
                                       comparers[static_cast<std::size_t>(thread)], tiles, meter)
                              .run(*out, options));
    return {};
  }));
  TRY(meter.finish());
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (reused[i]) {
      plan.bytes -= plan.files[candidates[i].file].bytes;
      plan.reused.emplace(candidates[i].file, *std::move(reused[i]));
    }
  }
  return plan;
}

}  // namespace onnx_external
