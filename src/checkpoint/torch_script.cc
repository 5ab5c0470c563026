#include "checkpoint/torch_script.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "checkpoint/module_names.h"
#include "checkpoint/script_classes.h"
#include "checkpoint/torch_objects.h"
#include "checkpoint/torch_records.h"
#include "checkpoint/torch_tensors.h"

namespace onnx_external {
namespace {

// One pickle of the archive and the records that its storages are.
struct Source {
  Pickle pickle;
  std::string folder;
};

// data.pkl, its modules in the form of their state_dict().
Result<Source> read_module(const ZipArchive& zip, Selection selection, CheckpointPart& part) {
  auto pickle = read_pickle_record(zip, "data.pkl");
  if (!pickle) {
    return fail(std::move(pickle).error());
  }
  part.facts.pickle_protocol = pickle->protocol();
  ScriptClasses classes(zip);
  auto objects = expand_script_modules(*pickle, selection, classes);
  if (!objects) {
    return fail(std::move(objects).error());
  }
  std::move(objects->begin(), objects->end(), std::back_inserter(part.opaque));
  return Source{*std::move(pickle), "data/"};
}

// constants.pkl, its tuple as a dict of names.
Result<Source> read_constants(const ZipArchive& zip, Selection selection, CheckpointPart& part) {
  auto pickle = read_pickle_record(zip, "constants.pkl");
  if (!pickle) {
    return fail(std::move(pickle).error());
  }
  const std::span<const NodeId> tuple = pickle->tuple(pickle->root());
  const std::vector<NodeId> values(tuple.begin(), tuple.end());  // the loop edits the pickle
  Items named;
  for (const NodeId value : values) {
    const std::string name = std::string(kScriptConstants) + ".c" + std::to_string(named.size());
    named.emplace_back(pickle->add_string(name), value);
    if (selection != Selection::kEverything && is_opaque(*pickle, value)) {
      part.opaque.push_back({name, type_name(*pickle, value)});
    }
  }
  if (!named.empty()) {
    pickle->replace(pickle->root(), pickle->add_dict(named));
  }
  return Source{*std::move(pickle), "constants/"};
}

bool has_tensors(const Pickle& pickle) {
  const Items items = pickle.items(pickle.root());
  return std::any_of(items.begin(), items.end(),
                     [&](const auto& item) { return is_tensor(pickle, item.second); });
}

Status add_source(const ZipArchive& zip, const Source& source, const OpenOptions& options,
                  RecordStorages& storages, CheckpointPart& part) {
  auto named = name_tensors(source.pickle, options);
  auto status = named ? add_tensors(
                            source.pickle, *std::move(named), options,
                            [&](const TensorDeclaration& declared) {
                              return storages.find(source.folder + declared.storage_key,
                                                   declared.storage_bytes);
                            },
                            part)
                      : Status(fail(std::move(named).error()));
  return status ? status : fail_in(zip.name(), std::move(status).error());
}

Status read_sources(const ZipArchive& zip, const OpenOptions& options, RecordStorages& storages,
                    CheckpointPart& part) {
  const auto module = read_module(zip, options.selection, part);
  const auto constants = module ? read_constants(zip, options.selection, part) : module;
  if (!constants) {
    return fail(constants.error());
  }
  if (options.selection == Selection::kEverything) {
    auto status = add_source(zip, *module, options, storages, part);
    status = status ? add_source(zip, *constants, options, storages, part) : status;
    if (!status) {
      return status;
    }
    status = check_unique_names(part.tensors);
    return status ? status : fail_in(zip.name(), std::move(status).error());
  }
  const bool by_key = options.key == kScriptConstants;
  const bool is_frozen = options.key.empty() && !has_tensors(module->pickle);
  if (!by_key && !(is_frozen && has_tensors(constants->pickle))) {
    return add_source(zip, *module, options, storages, part);
  }
  OpenOptions all = options;
  all.key.clear();
  return add_source(zip, *constants, all, storages, part);
}

}  // namespace

Result<CheckpointPart> read_torch_script(const ZipArchive& zip, const OpenOptions& options) {
  CheckpointPart part;
  if (auto status = check_version(zip, part.facts); !status) {
    return fail(std::move(status).error());
  }
  const auto order = read_byte_order(zip);
  if (!order) {
    return fail(order.error());
  }
  part.format = zip.find("bytecode.pkl") == nullptr ? "torchscript" : "torchscript-mobile";
  part.files.push_back(zip.file());
  RecordStorages storages(zip, *order, part);
  if (auto status = read_sources(zip, options, storages, part); !status) {
    return fail(std::move(status).error());
  }
  return part;
}

}  // namespace onnx_external
