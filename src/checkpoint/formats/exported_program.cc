#include "checkpoint/formats/exported_program.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bad_input.h"
#include "base/remedy.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/assembly/tensor_adder.h"
#include "checkpoint/formats/payload_config.h"
#include "checkpoint/formats/torch_files.h"
#include "checkpoint/storage/computed_storages.h"
#include "checkpoint/torch/torch_records.h"

namespace onnx_external {
namespace {

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kMaxInflatedConfigBytes = std::uint64_t{16} << 20;  // torch stores them
constexpr std::size_t kMaxListedPrograms = 20;
constexpr std::size_t kMaxAdvisedKeys = 8;
constexpr std::string_view kModels = "models/";
constexpr std::string_view kModelSuffix = ".json";
constexpr std::string_view kProgram = "serialized_exported_program.json";

// The two places of a program's tensors: "weights" and "constants".
struct Kind {
  std::string_view flat;     // record of a flat archive, without its suffix
  std::string_view folder;   // of a PT2 archive
  std::string_view config;   // suffix of its config's name
  std::string_view tensors;  // prefix of records that are tensors; others are objects
};
constexpr Kind kWeights{"serialized_state_dict", "data/weights/", "_weights_config.json", ""};
constexpr Kind kConstants{"serialized_constants", "data/constants/", "_constants_config.json",
                          "tensor_"};

// Example inputs, (args, kwargs), of a flat archive and of a program of a PT2 archive.
constexpr std::string_view kFlatInputs = "serialized_example_inputs.pt";
constexpr std::string_view kInputsFolder = "data/sample_inputs/";

// Fills a part from the records of one archive.
class Reader {
 public:
  Reader(const ZipArchive& zip, const OpenOptions& options, ByteOrder order, FileContents& part)
      : zip_(zip),
        options_(options),
        part_(part),
        storages_(zip, order, part),
        find_([this](const TensorDeclaration& tensor) { return find_storage(tensor); }),
        adder_(no_pickle_, options, find_, part) {}

  // A flat archive.
  [[nodiscard]] Status add_flat(const Kind& kind) {
    for (const std::string_view suffix : {".pt", ".json"}) {  // .json: torch 2.1, a zip file too
      const ZipEntry* entry = zip_.find(std::string(kind.flat) + std::string(suffix));
      if (entry != nullptr) {
        return entry->size == 0 ? Status() : add_saved(*entry, "");
      }
    }
    return kind.flat == kConstants.flat
               ? Status()  // torch 2.1 has none
               : fail(ErrorCode::kCorrupt,
                      zip_.name() + ": it has no record " + quote(std::string(kind.flat) + ".pt"));
  }

  // The inputs that a program was exported with, in a record that may be missing or empty.
  [[nodiscard]] Status add_inputs(const std::string& record) {
    const ZipEntry* entry = zip_.find(record);
    if (entry == nullptr || entry->size == 0) {
      return fail(ErrorCode::kNotFound, zip_.name() +
                                            ": the exported program contains no example inputs; "
                                            "record inputs with torch.save((args, kwargs), FILE)");
    }
    TRY_ASSIGN(auto saved, open_saved(*entry, Selection::kRecordedInputs));
    return append(std::move(saved));
  }

  // One program of a PT2 archive.
  [[nodiscard]] Status add_program(const std::string& program, const Kind& kind,
                                   const std::string& prefix) {
    const std::string base = std::string(kind.folder) + program;
    if (const ZipEntry* saved = zip_.find(base + ".pt")) {
      return saved->size == 0 ? Status() : add_saved(*saved, prefix);
    }
    const ZipEntry* config = zip_.find(base + std::string(kind.config));
    if (config == nullptr && kind.folder == kConstants.folder) {
      return {};
    }
    if (config == nullptr) {
      return fail(ErrorCode::kUnsupported, zip_.name() + ": program " + quote(program) +
                                               " has neither a record " + quote(base + ".pt") +
                                               " nor " + quote(base + std::string(kind.config)));
    }
    const auto text = zip_.read_record(*config, config->compression == Compression::kNone
                                                    ? kMaxConfigBytes
                                                    : kMaxInflatedConfigBytes);
    const auto payloads =
        text ? parse_payload_config(*text) : Result<std::vector<Payload>>(fail(text.error()));
    if (!payloads) {
      return text ? fail_in(zip_.name() + ": record " + quote(config->name), payloads.error())
                  : Status(fail(text.error()));
    }
    for (const Payload& payload : *payloads) {
      auto status = add_payload(payload, kind, prefix + payload.name);
      if (!status && !refuse(prefix + payload.name, status.error())) {
        return fail_in(zip_.name() + ": tensor " + quote(prefix + payload.name),
                       std::move(status).error());
      }
    }
    return {};
  }

 private:
  // True if the listing continues without the tensor.
  [[nodiscard]] bool refuse(const std::string& name, const Error& error) {
    if (options_.selection != Selection::kEverything || error.code != ErrorCode::kUnsupported) {
      return false;
    }
    part_.refused.push_back({name, error.message});
    return true;
  }

  [[nodiscard]] Status add_payload(const Payload& payload, const Kind& kind,
                                   const std::string& name) {
    if (!payload.record.starts_with(kind.tensors)) {
      part_.opaque.push_back({name, "an object in the record " + quote(payload.record)});
      return {};
    }
    const std::string record = std::string(kind.folder) + payload.record;
    const ZipEntry* entry = zip_.find(record);
    if (!payload.refusal.empty()) {
      return fail(ErrorCode::kUnsupported, payload.refusal);
    }
    if (entry == nullptr) {
      return fail(ErrorCode::kCorrupt, "its record " + quote(record) + " is missing");
    }
    if (payload.pickled) {
      return add_saved_tensor(*entry, name);
    }
    TensorDeclaration tensor = payload.tensor;
    tensor.storage_key = record;
    return adder_.add(name, tensor);
  }

  // A record of raw bytes; its name is the key.
  [[nodiscard]] Result<std::uint32_t> find_storage(const TensorDeclaration& tensor) {
    const ZipEntry& entry = *zip_.find(tensor.storage_key);
    const auto nbytes = contiguous_nbytes(tensor.dtype, tensor.shape);
    if (entry.size == 0 && nbytes && *nbytes != 0) {
      return unsupported("its record is empty: the program was saved without its weights");
    }
    return storages_.find(tensor.storage_key, entry.size);
  }

  // Opens a record that is itself a torch.save file, in place.
  [[nodiscard]] Result<FileContents> open_saved(const ZipEntry& entry,
                                                Selection selection = Selection::kEverything) {
    const std::string where = zip_.name() + ": record " + quote(entry.name);
    if (entry.compression != Compression::kNone) {
      return fail(ErrorCode::kUnsupported,
                  where + ": is compressed; zip the archive again without compression");
    }
    TRY_ASSIGN(auto slice, SourceFile::slice(zip_.file(), entry.data_offset, entry.size));
    TRY_ASSIGN(auto inner, ZipArchive::open(std::move(slice)));
    OpenOptions all = options_;
    all.selection = selection;
    auto part = read_torch_zip(inner, all);
    for (Storage& storage : part ? std::span(part->storages) : std::span<Storage>()) {
      storage.offset += storage.computed ? 0 : entry.data_offset;
    }
    return part;
  }

  // torch.save of a dict of tensors.
  [[nodiscard]] Status add_saved(const ZipEntry& entry, const std::string& prefix) {
    TRY_ASSIGN(auto saved, open_saved(entry));
    if (options_.selection != Selection::kEverything && !saved.refused.empty()) {
      return fail(ErrorCode::kUnsupported, zip_.name() + ": tensor " +
                                               quote(saved.refused[0].path) + ": " +
                                               saved.refused[0].reason);
    }
    for (TensorView& tensor : saved.tensors) {
      if (tensor.name.empty()) {
        return fail(ErrorCode::kUnsupported, zip_.name() + ": record " + quote(entry.name) +
                                                 " contains one tensor without a name");
      }
      tensor.name = prefix + tensor.name;
    }
    for (RefusedTensor& refused : saved.refused) {
      refused.path = prefix + refused.path;
    }
    for (OpaqueObject& object : saved.opaque) {
      object.path = prefix + object.path;
    }
    return append(std::move(saved));
  }

  // Adds a tensor that was written by torch.save. Several names may share the tensor.
  [[nodiscard]] Status add_saved_tensor(const ZipEntry& entry, const std::string& name) {
    auto known = saved_tensors_.find(&entry);
    if (known == saved_tensors_.end()) {
      known = saved_tensors_.emplace(&entry, open_saved_tensor(entry)).first;
    }
    if (!known->second) {
      return fail(known->second.error());
    }
    part_.tensors.push_back(*known->second);
    part_.tensors.back().name = name;
    return {};
  }

  [[nodiscard]] Result<TensorView> open_saved_tensor(const ZipEntry& entry) {
    TRY_ASSIGN(auto saved, open_saved(entry));
    if (!saved.refused.empty()) {
      return unsupported(saved.refused[0].reason);
    }
    if (saved.tensors.size() != 1 || !saved.tensors[0].name.empty()) {
      return unsupported("its record " + quote(entry.name) +
                         " does not contain exactly one tensor");
    }
    TRY(append(std::move(saved)));
    TensorView view = std::move(part_.tensors.back());
    part_.tensors.pop_back();
    return view;
  }

  // Everything that was opened is in the one file.
  [[nodiscard]] Status append(FileContents saved) {
    const std::size_t before = part_.storages.size();
    saved.facts = part_.facts;  // keep the facts of the archive
    append_contents(part_, std::move(saved));
    part_.files.resize(1);
    for (std::size_t i = before; i < part_.storages.size(); ++i) {
      part_.storages[i].file = 0;
    }
    return MemoryBudget(part_, options_.max_expand).check();
  }

  const ZipArchive& zip_;
  const OpenOptions& options_;
  FileContents& part_;
  RecordStorages storages_;
  const Pickle no_pickle_;
  const FindStorage find_;
  TensorAdder adder_;
  std::map<const ZipEntry*, Result<TensorView>> saved_tensors_;
};

std::vector<std::string> program_names(const ZipArchive& zip) {
  std::vector<std::string> names;
  for (const ZipEntry& entry : zip.entries()) {
    std::string_view name = zip.name_in_root(entry);
    if (name.starts_with(kModels) && name.ends_with(kModelSuffix) &&
        name.size() > kModels.size() + kModelSuffix.size()) {
      name.remove_prefix(kModels.size());
      name.remove_suffix(kModelSuffix.size());
      names.emplace_back(name);
    }
  }
  return names;
}

// The programs that the options select, and whether the names of tensors are prefixed with those of
// the programs.
struct Chosen {
  std::vector<std::string> programs;
  bool prefixed = false;
};

std::vector<Remedy> keys_to_choose(const std::vector<std::string>& programs) {
  std::vector<Remedy> remedies;
  for (std::size_t i = 0; i < programs.size() && i < kMaxAdvisedKeys; ++i) {
    remedies.push_back({RemedyOption::kKey, programs[i], "uses this one"});
  }
  remedies.push_back({RemedyOption::kKey, ".", "uses all of them, under their full names"});
  return remedies;
}

Result<Chosen> choose_programs(const ZipArchive& zip, const OpenOptions& options) {
  Chosen chosen{.programs = program_names(zip)};
  const std::vector<std::string>& all = chosen.programs;
  if (all.empty()) {
    return fail(ErrorCode::kUnsupported,
                zip.name() +
                    ": a PT2 archive without an exported program (only compiled code); save the "
                    "program with torch.export.save");
  }
  chosen.prefixed = all.size() > 1;
  if (options.selection == Selection::kEverything || options.key == "." ||
      (options.key.empty() && all.size() == 1)) {
    return chosen;
  }
  if (options.key.empty()) {
    return fail_with(
        ErrorCode::kAmbiguous,
        zip.name() + ": several exported programs: " + quote_list(all, kMaxListedPrograms),
        keys_to_choose(all));
  }
  if (std::find(all.begin(), all.end(), options.key) == all.end()) {
    return fail(ErrorCode::kNotFound, zip.name() + ": no exported program " + quote(options.key) +
                                          "; available: " + quote_list(all, kMaxListedPrograms));
  }
  return Chosen{.programs = {options.key}};
}

Status check_archive(const ZipArchive& zip, FormatFacts& facts) {
  for (const auto& [name, wanted] :
       {std::pair<std::string_view, std::string_view>{"archive_format", "pt2"},
        {"archive_version", "0"}}) {
    const ZipEntry* entry = zip.find(name);
    TRY_ASSIGN(const auto text, entry == nullptr ? Result<std::string>(std::string(wanted))
                                                 : zip.read_record(*entry, kMaxSmallRecord));
    if (text != wanted) {
      return fail(ErrorCode::kUnsupported, zip.name() + ": record " + quote(entry->name) + ": " +
                                               quote(text) + " is not supported, only " +
                                               quote(wanted));
    }
  }
  return check_version(zip, facts);
}

// The example inputs of the only program.
Status read_inputs(const ZipArchive& zip, Reader& reader) {
  const std::vector<std::string> all = program_names(zip);
  return all.size() <= 1
             ? reader.add_inputs(std::string(kInputsFolder) + (all.empty() ? "" : all[0]) + ".pt")
             : fail(ErrorCode::kAmbiguous,
                    zip.name() +
                        ": several exported programs: " + quote_list(all, kMaxListedPrograms) +
                        "; record the inputs of one program with torch.save((args, kwargs), FILE)");
}

Status read_archive(const ZipArchive& zip, const OpenOptions& options, Reader& reader,
                    FormatFacts& facts) {
  TRY(check_archive(zip, facts));
  if (options.selection == Selection::kRecordedInputs) {
    return read_inputs(zip, reader);
  }
  TRY_ASSIGN(const auto chosen, choose_programs(zip, options));
  for (const std::string& program : chosen.programs) {
    if (!is_utf8(program)) {
      return fail(ErrorCode::kUnsupported,
                  zip.name() + ": program name " + quote(program) + " is not UTF-8");
    }
    const std::string prefix = chosen.prefixed ? program + "." : "";
    TRY(reader.add_program(program, kWeights, prefix));
    TRY(reader.add_program(program, kConstants, prefix));
  }
  return {};
}

Status read_flat(const ZipArchive& zip, const OpenOptions& options, Reader& reader) {
  if (options.selection == Selection::kRecordedInputs) {
    return reader.add_inputs(std::string(kFlatInputs));
  }
  if (!options.key.empty() && options.key != ".") {
    return fail(ErrorCode::kNotFound, zip.name() + ": no dict at the key " + quote(options.key) +
                                          "; an exported program has a single dict, without a key");
  }
  TRY(reader.add_flat(kWeights));
  return reader.add_flat(kConstants);
}

}  // namespace

bool is_exported_program(const ZipArchive& zip) {
  return zip.find(kProgram) != nullptr || zip.find("archive_format") != nullptr;
}

Result<FileContents> read_exported_program(const ZipArchive& zip, const OpenOptions& options) {
  TRY_ASSIGN(const auto order, read_byte_order(zip));
  FileContents part;
  part.format = "torch-export";
  part.files.push_back(zip.file());
  Reader reader(zip, options, order, part);
  TRY(zip.find(kProgram) != nullptr ? read_flat(zip, options, reader)
                                    : read_archive(zip, options, reader, part.facts));
  TRY_IN(zip.name(), check_unique_names(part.tensors));
  return part;
}

}  // namespace onnx_external
