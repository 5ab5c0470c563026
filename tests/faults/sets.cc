// Several models over one store: whatever a save of some of them meets, each model of the folder is
// complete, and the next save finishes what was begun.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "faults/experiment.h"
#include "faults/scene.h"
#include "onnx_external/verify.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

struct SetFault {
  const char* name;
  Fault fault;
  int error_number = 0;
};
constexpr std::array kSetFaults{
    SetFault{"EIO", Fault::kFailOnce, EIO},
    SetFault{"ENOSPC from then on", Fault::kFailForever, ENOSPC},
    SetFault{"EINTR", Fault::kInterrupt},
    SetFault{"short", Fault::kShort},
    SetFault{"kill", Fault::kKill},
};

// A set that is there before, and the models that are saved over it.
struct SetCase {
  const char* name;
  Names before;
  Names saved;
};
const std::array kSetCases{
    SetCase{"first", {}, {"decoder", "encoder"}},
    SetCase{"replaced", {"decoder", "encoder"}, {"decoder", "encoder"}},
    SetCase{"one of them replaced", {"decoder", "encoder"}, {"encoder"}},
    SetCase{"another set", {"decoder", "encoder"}, {"encoder", "head"}},
};

// The keys that each model uses.
Names keys_of(const std::string& model) {
  if (model == "encoder") {
    return {"large", "second", "tied", "steps"};
  }
  return model == "decoder" ? Names{"large", "middle", "turned"} : Names{"middle", "small"};
}

std::vector<Form> set_forms() {
  std::vector<Form> forms{
      {.name = "per-tensor", .layout = Layout::kPerTensor},
      {.name = "single, verified", .layout = Layout::kSingle, .verification = Verification::kOn},
      {.name = "shards", .layout = Layout::kShards},
      {.name = "link", .layout = Layout::kLink, .input = Input::kBeside}};
  Form form = forms.front();
  form.name += ", no rename flags";
  form.rename_flags = false;
  forms.push_back(form);
  return forms;
}

std::string names_in(const Snapshot& entries) {
  std::string names;
  for (const auto& [name, mark] : entries) {
    names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

bool is_staging(const fs::path& path) {
  return path.filename().string().starts_with(".save-external.");
}

// One case in one form: all its calls, one after another.
class SetSweep {
 public:
  SetSweep(const Scene& scene, const SetCase& which, Form form, Tally& tally)
      : scene_(scene),
        case_(which),
        form_(std::move(form)),
        out_(scene.folder() / "out"),
        tally_(tally) {
    restore();
    before_ = snapshot(out_);
    (void)save(case_.saved, 2);
    after_ = snapshot(out_);
    (void)save({"bystander"}, 3);
    files_after_next_ = files_of(snapshot(out_));
  }

  void run(const SetFault& fault, std::size_t every, std::size_t start) {
    restore();
    for (std::size_t nth = start;; nth += every) {
      const std::string where =
          fmt::format("{}, {}, {}, call {}", form_.name, case_.name, fault.name, nth);
      if (!(fault.fault == Fault::kKill ? step_killed(nth, where) : step(fault, nth, where))) {
        return;
      }
    }
  }

 private:
  Status save(const Names& models, std::uint32_t seed, Injection injection = {},
              std::size_t* calls = nullptr) const {
    return scene_.save_set({out_, seed, form_}, models, keys_of, injection, calls);
  }

  void restore() {
    fs::remove_all(out_);
    scene_.prepare({out_, 1, form_});
    if (!case_.before.empty()) {
      (void)save(case_.before, 1);
    }
  }

  // False once there is no such call any more.
  bool step(const SetFault& fault, std::size_t nth, const std::string& where) {
    std::size_t calls = 0;
    const Status saved = save(case_.saved, 2, {fault.fault, nth, fault.error_number}, &calls);
    const bool once = fault.fault == Fault::kShort;
    if (!once && calls <= nth) {
      tally_.check(where, saved ? "" : "fails without a fault: " + saved.error().message);
      return false;
    }
    tally_.run();
    const bool endures = once || fault.fault == Fault::kInterrupt;
    tally_.check(where, endures && !saved ? "should have gone on: " + saved.error().message : "");
    const std::size_t placed = check_models(where);
    if (!saved && placed == 0) {
      tally_.count("refused, nothing changed");
      tally_.check(where, snapshot(out_) == before_ ? "" : "left something");
    } else {
      tally_.count(saved ? "done in spite of it" : "reported after the commit");
      tally_.check(where, placed == case_.saved.size() ||
                                  (!saved && saved.error().message.find(
                                                 "only some of the models") != std::string::npos)
                              ? ""
                              : "the error does not say that the set is mixed");
      check_next(where, placed);
    }
    restore();
    return !once;
  }

  bool step_killed(std::size_t nth, const std::string& where) {
    const int state = in_child([&] { return save(case_.saved, 2, {Fault::kKill, nth}) ? 0 : 1; });
    if (state >= 0) {
      tally_.check(where, state == 0 ? "" : "fails without a fault");
      return false;
    }
    tally_.run();
    const std::size_t placed = check_models(where);
    tally_.count(placed == 0                   ? "killed, none of the models is new"
                 : placed < case_.saved.size() ? "killed, some of the models are new"
                                               : "killed, all models are new");
    check_next(where, placed);
    restore();
    return true;
  }

  // Each model is complete: the one before, or the one that was saved. Returns how many of these
  // are in place.
  std::size_t check_models(const std::string& where) {
    const Snapshot now = snapshot(out_);
    const auto mark = [](const Snapshot& entries, const std::string& name) {
      const auto entry = entries.find(name + ".onnx");
      return entry == entries.end() ? std::string() : entry->second;
    };
    std::size_t placed = 0;
    for (const std::string model : {"decoder", "encoder", "head"}) {
      const bool is_saved = std::count(case_.saved.begin(), case_.saved.end(), model) > 0;
      const std::string found = mark(now, model);
      const bool is_new = is_saved && found == mark(after_, model);
      placed += is_new ? 1U : 0U;
      tally_.check(where, is_new || found == mark(before_, model) ? "" : model + " is another");
      tally_.check(where, found.empty() ? "" : fault_of(model, Mixed::kAllowed));
    }
    return placed;
  }

  // A save of another model finishes the set, or leaves the models that were there.
  void check_next(const std::string& where, std::size_t placed) {
    const Status next = save({"bystander"}, 3);
    tally_.check(where, next ? "" : "the next save fails: " + next.error().message);
    const std::size_t then = check_models(where + ", next save");
    tally_.check(where, then == (placed == 0 ? 0 : case_.saved.size())
                            ? ""
                            : "the next save leaves the set as it was");
    for (const std::string& model : case_.saved) {
      tally_.check(where, placed == 0 ? "" : fault_of(model, Mixed::kNever));
    }
    tally_.check(where, fault_of("bystander", Mixed::kNever));
    const Snapshot left = snapshot(out_);
    const bool is_clear = std::none_of(left.begin(), left.end(),
                                       [](const auto& entry) { return is_staging(entry.first); });
    tally_.check(where, is_clear ? "" : "staging folders stay");
    // What a model alone has replaced is removed by the next save of that model.
    const bool is_set = case_.saved.size() > 1;
    tally_.check(
        where, placed == 0 || !is_set || files_of(left) == files_after_next_
                   ? ""
                   : "the next save leaves other files than after a clean one: " + names_in(left));
  }

  enum class Mixed : std::uint8_t { kNever, kAllowed };
  [[nodiscard]] std::string fault_of(const std::string& model, Mixed mixed) const {
    VerifyOptions options;
    options.threads = 1;
    const auto report = verify_model(out_ / (model + ".onnx"), options);
    if (!report || !report->used_manifest) {
      return model + (report ? ": has no manifest" : ": " + report.error().message);
    }
    for (const Finding& finding : report->findings) {
      if (mixed == Mixed::kNever || finding.code != FindingCode::kMixedSet) {
        return model + ": " + finding_text(finding);
      }
    }
    return "";
  }

  const Scene& scene_;
  const SetCase& case_;
  Form form_;
  fs::path out_;
  Tally& tally_;
  Snapshot before_;
  Snapshot after_;
  std::size_t files_after_next_ = 0;
};

}  // namespace

Tally save_sets(const Settings& settings) {
  const Scene scene(settings.folder);
  Tally tally;
  std::size_t start = settings.seed;
  for (const Form& form : set_forms()) {
    for (const SetCase& which : kSetCases) {
      SetSweep sweep(scene, which, form, tally);
      for (const SetFault& fault : kSetFaults) {
        sweep.run(fault, settings.every, start++ % settings.every);
      }
    }
  }
  return tally;
}

}  // namespace onnx_external
