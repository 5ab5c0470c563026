#include "save/publish_set.h"

#include <utility>

#include "base/try.h"
#include "save/staging.h"

namespace onnx_external {

Status commit_model(const Directory& staging, const Directory& out, const std::string& name,
                    Overwrite overwrite, const std::function<Status()>& note_replaced) {
  if (overwrite == Overwrite::kRefuse) {
    return rename_entry(staging, name, out, name, Replace::kNo);
  }
  Status exchanged = exchange_entries(staging, name, out, name);
  if (exchanged || exchanged.error().code == ErrorCode::kNotFound) {
    return exchanged ? exchanged : rename_entry(staging, name, out, name, Replace::kYes);
  }
  if (exchanged.error().code != ErrorCode::kUnsupported) {
    return exchanged;
  }
  TRY(note_replaced());
  return rename_entry(staging, name, out, name, Replace::kYes);
}

Result<std::optional<ModelIdentity>> identify_replaced(const Directory& out,
                                                       const std::string& name) {
  const auto kind = out.kind_of(name);
  if (kind && *kind != EntryKind::kFile) {
    return std::nullopt;
  }
  const auto replaced = kind ? read_identity(out, name) : fail(kind.error());
  if (!replaced) {
    return fail_in("the model to be replaced cannot be read; move it away", replaced.error());
  }
  return *replaced;
}

Status SetPublisher::write_note() const {
  const std::string name(kSetNoteName);
  const std::string temporary = name + ".new";
  TRY(staging_.remove_tree(temporary));
  TRY(write_file(staging_, temporary, set_note_text(note_), sync_));
  TRY(rename_entry(staging_, temporary, staging_, name, Replace::kYes));
  return sync_folder(staging_, sync_);
}

Status SetPublisher::publish(std::size_t number) {
  NotedModel& noted = note_.models[number];
  return commit_model(staging_, out_, noted.name, note_.overwrite, [&]() -> Status {
    TRY_ASSIGN(noted.replaced, identify_replaced(out_, noted.name));
    return write_note();
  });
}

Status SetPublisher::publish_others() {
  for (std::size_t i = 1; i < note_.models.size(); ++i) {
    if (!publish(i)) {
      TRY(publish(i));
    }
  }
  return {};
}

Status SetPublisher::publish_left() {
  for (std::size_t i = 0; i < note_.models.size(); ++i) {
    const NotedModel& noted = note_.models[i];
    const auto kind = out_.kind_of(noted.name);
    if (identify(out_, noted.name) == noted.model || (kind && *kind == EntryKind::kFolder)) {
      continue;
    }
    const auto staged = read_identity(staging_, noted.name);
    if (!staged && staged.error().code != ErrorCode::kNotFound) {
      return fail(staged.error());
    }
    if (!staged || *staged != noted.model) {
      continue;
    }
    Status published = publish(i);
    if (!published && published.error().code != ErrorCode::kAlreadyExists) {
      return published;
    }
  }
  return sync_folder(out_, sync_);
}

}  // namespace onnx_external
