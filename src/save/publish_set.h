// Puts the models of a set in place, one after another. Also for single models: the rename that
// commits a save.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/directory.h"
#include "onnx_external/result.h"
#include "onnx_external/writer.h"
#include "save/generations.h"
#include "save/set_note.h"

namespace onnx_external {

// Renames a staged model into the output folder. A replaced model is exchanged with the new one: it
// is then in the staging folder and tells, even after a kill, whose data must be removed. Where
// files cannot be exchanged, `note_replaced` is called before the old one is lost.
[[nodiscard]] Status commit_model(const Directory& staging, const Directory& out,
                                  const std::string& name, Overwrite overwrite,
                                  const std::function<Status()>& note_replaced);

// The model that is about to be lost; nothing if there is none, or a link, which has no data. An
// error if it cannot be read, else its data would stay for ever.
[[nodiscard]] Result<std::optional<ModelIdentity>> identify_replaced(const Directory& out,
                                                                     const std::string& name);

// Refers to the folders. One thread at a time.
class SetPublisher {
 public:
  SetPublisher(const Directory& staging, const Directory& out, SetNote note, Sync sync)
      : staging_(staging), out_(out), note_(std::move(note)), sync_(sync) {}

  // Writes the note, durably. Before anything is renamed.
  [[nodiscard]] Status write_note() const;

  // Commits the set: puts its first model in place. After an error nothing has changed.
  [[nodiscard]] Status publish_first() { return publish(0); }

  // Puts the other models in place, each in two attempts. After an error the next save goes on.
  [[nodiscard]] Status publish_others();

  // Goes on where a save was killed. Models that are in place, and those that are in the staging
  // folder no more, are left as they are. So is a model that has appeared since, if the save was
  // not allowed to replace one.
  [[nodiscard]] Status publish_left();

 private:
  [[nodiscard]] Status publish(std::size_t number);

  const Directory& staging_;
  const Directory& out_;
  SetNote note_;
  Sync sync_;
};

}  // namespace onnx_external
