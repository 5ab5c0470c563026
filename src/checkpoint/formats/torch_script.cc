#include "checkpoint/formats/torch_script.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/try.h"
#include "checkpoint/assembly/all_tensors.h"
#include "checkpoint/naming/module_names.h"
#include "checkpoint/naming/script_classes.h"
#include "checkpoint/torch/torch_objects.h"
#include "checkpoint/torch/torch_records.h"

namespace onnx_external {
namespace {

// One pickle of the archive and the records that its storages are.
struct Source {
  Pickle pickle;
  std::string folder;
};

// Reads data.pkl. Modules are read as their state_dict().
Result<Source> read_module(const ZipArchive& zip, Selection selection, FileContents& part) {
  TRY_ASSIGN(auto pickle, read_pickle_record(zip, "data.pkl"));
  part.facts.pickle_protocol = pickle.protocol();
  ScriptClasses classes(zip);
  TRY_ASSIGN(auto objects, expand_script_modules(pickle, selection, classes));
  std::move(objects.begin(), objects.end(), std::back_inserter(part.opaque));
  return Source{std::move(pickle), "data/"};
}

// Reads constants.pkl, whose tuple becomes a dict of names.
Result<Source> read_constants(const ZipArchive& zip, Selection selection, FileContents& part) {
  TRY_ASSIGN(auto pickle, read_pickle_record(zip, "constants.pkl"));
  const std::span<const NodeId> tuple = pickle.tuple(pickle.root());
  const std::vector<NodeId> values(tuple.begin(), tuple.end());  // the loop edits the pickle
  Items named;
  for (const NodeId value : values) {
    const std::string name = std::string(kScriptConstants) + ".c" + std::to_string(named.size());
    named.emplace_back(pickle.add_string(name), value);
    if (selection != Selection::kEverything && is_opaque(pickle, value)) {
      part.opaque.push_back({name, type_name(pickle, value)});
    }
  }
  if (!named.empty()) {
    pickle.replace(pickle.root(), pickle.add_dict(named));
  }
  return Source{std::move(pickle), "constants/"};
}

bool has_tensors(const Pickle& pickle) {
  const Items items = pickle.items(pickle.root());
  return std::any_of(items.begin(), items.end(),
                     [&](const auto& item) { return is_tensor(pickle, item.second); });
}

Status add_source(const ZipArchive& zip, const Source& source, const OpenOptions& options,
                  RecordStorages& storages, FileContents& part) {
  TRY_ASSIGN_IN(zip.name(), auto named, name_tensors(source.pickle, options));
  const auto find = [&](const TensorDeclaration& declared) {
    return storages.find(source.folder + declared.storage_key, declared.storage_bytes);
  };
  TRY_IN(zip.name(), add_tensors(source.pickle, std::move(named), options, find, part));
  return {};
}

Status read_sources(const ZipArchive& zip, const OpenOptions& options, RecordStorages& storages,
                    FileContents& part) {
  TRY_ASSIGN(const auto module, read_module(zip, options.selection, part));
  TRY_ASSIGN(const auto constants, read_constants(zip, options.selection, part));
  if (options.selection == Selection::kEverything) {
    TRY(add_source(zip, module, options, storages, part));
    TRY(add_source(zip, constants, options, storages, part));
    TRY_IN(zip.name(), check_unique_names(part.tensors));
    return {};
  }
  const bool by_key = options.key == kScriptConstants;
  const bool is_frozen = options.key.empty() && !has_tensors(module.pickle);
  if (!by_key && !(is_frozen && has_tensors(constants.pickle))) {
    return add_source(zip, module, options, storages, part);
  }
  OpenOptions all = options;
  all.key.clear();
  return add_source(zip, constants, all, storages, part);
}

}  // namespace

Result<FileContents> read_torch_script(const ZipArchive& zip, const OpenOptions& options) {
  FileContents part;
  TRY(check_version(zip, part.facts));
  TRY_ASSIGN(const auto order, read_byte_order(zip));
  part.format = zip.find("bytecode.pkl") == nullptr ? "torchscript" : "torchscript-mobile";
  part.files.push_back(zip.file());
  RecordStorages storages(zip, order, part);
  TRY(read_sources(zip, options, storages, part));
  return part;
}

}  // namespace onnx_external
