#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <iterator>
#include <optional>
#include <utility>

#include "faults/experiment.h"
#include "faults/scene.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

struct Mode {
  const char* name;
  Fault fault;
  int error_number = 0;
};

constexpr std::array kModes{Mode{"EIO", Fault::kFailOnce, EIO},
                            Mode{"ENOSPC", Fault::kFailOnce, ENOSPC},
                            Mode{"EDQUOT", Fault::kFailOnce, EDQUOT},
                            Mode{"ENOSPC from then on", Fault::kFailForever, ENOSPC},
                            Mode{"EIO from then on", Fault::kFailForever, EIO},
                            Mode{"EINTR", Fault::kInterrupt},
                            Mode{"short", Fault::kShort},
                            Mode{"kill", Fault::kKill}};

std::string names_of(const Snapshot& files) {
  std::string names;
  for (const auto& [name, mark] : files) {
    names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

// One form, first save or replacement: all its calls, one after another.
class Sweep {
 public:
  Sweep(const Scene& scene, Form form, bool replaces, Tally& tally)
      : scene_(scene),
        form_(std::move(form)),
        replaces_(replaces),
        out_(scene.folder() / "out"),
        tally_(tally) {
    make_expected();
  }

  void run(const Mode& mode, std::size_t every, std::size_t start) {
    mode_ = mode;
    where_ = fmt::format("{}, {}, {}", form_.name, replaces_ ? "replacing" : "first", mode.name);
    restore();
    for (std::size_t nth = start;; nth += every) {
      if (!step(nth)) {
        return;
      }
    }
  }

 private:
  SceneSave request(std::uint32_t seed) const {
    const bool refuses = !replaces_ && seed == 2;
    return {out_, seed, form_, refuses ? Overwrite::kRefuse : Overwrite::kAllow};
  }

  void make_expected() {
    restore();
    before_ = snapshot(out_);
    (void)scene_.save(request(2));
    after_ = snapshot(out_);
    (void)scene_.save({out_, 3, form_});
    files_after_next_ = files_of(snapshot(out_));
  }

  void restore() {
    fs::remove_all(out_);
    scene_.prepare({out_, 1, form_});
    if (replaces_) {
      (void)scene_.save({out_, 1, form_});
    }
  }

  // False once there is no such call any more.
  bool step(std::size_t nth) {
    const std::string where = fmt::format("{}, call {}", where_, nth);
    if (mode_.fault == Fault::kKill) {
      return step_killed(nth, where);
    }
    std::size_t calls = 0;
    const auto saved = scene_.save(request(2), {mode_.fault, nth, mode_.error_number}, &calls);
    const bool once = mode_.fault == Fault::kShort;
    if (!once && calls <= nth) {
      tally_.check(where, saved ? "" : "fails without a fault: " + saved.error().message);
      tally_.check(where, snapshot(out_) == after_ ? "" : "other files than in a clean run");
      return false;
    }
    tally_.run();
    tally_.check(where, syncs_after_a_failure() == 0 ? "" : "synced again after a failed sync");
    if (saved) {
      tally_.count("done in spite of it");
      check_done(where);
      restore();
    } else {
      check_failure(where, saved.error());
    }
    return !once;
  }

  // Removing the replaced data may have failed: the next save does it.
  void check_done(const std::string& where) {
    const Snapshot now = snapshot(out_);
    if (now == after_) {
      return;
    }
    tally_.count("left old data for the next save");
    const auto model = now.find("model.onnx");
    const bool is_new = model != now.end() && model->second == after_.at("model.onnx");
    tally_.check(where, is_new ? fault_of_model(out_) : "another model");
    (void)scene_.save({out_, 3, form_});
    const Snapshot next = snapshot(out_);
    tally_.check(where, files_of(next) == files_after_next_
                            ? ""
                            : "the next save leaves it too: " + names_of(next));
  }

  void check_failure(const std::string& where, const Error& error) {
    const bool endures = mode_.fault == Fault::kInterrupt || mode_.fault == Fault::kShort;
    tally_.check(where, endures ? "should have gone on: " + error.message : "");
    tally_.check(where, error.message.find(scene_.folder().string()) == std::string::npos
                            ? "names no file: " + error.message
                            : "");
    if (snapshot(out_) == before_) {
      tally_.count("refused, nothing changed");
      return;
    }
    tally_.count("reported after the commit");
    tally_.check(where, error.message.starts_with("the new model is in place")
                            ? fault_of_model(out_)
                            : "left something: " + error.message);
    restore();
  }

  bool step_killed(std::size_t nth, const std::string& where) {
    const int state = in_child([&] { return scene_.save(request(2), {mode_.fault, nth}) ? 0 : 1; });
    if (state >= 0) {
      tally_.check(where, state == 0 ? "" : "fails without a fault");
      return false;
    }
    tally_.run();
    check_after_kill(where);
    restore();
    return true;
  }

  // The old model or the new one; the next save leaves what it leaves after any other.
  void check_after_kill(const std::string& where) {
    const Snapshot left = snapshot(out_);
    const auto model = left.find("model.onnx");
    const bool committed = model != left.end() && model->second == after_.at("model.onnx");
    tally_.count(committed ? "the new model is there" : "the old model is there, or none");
    if (replaces_ || model != left.end()) {
      tally_.check(where, fault_of_model(out_));
    }
    if (!committed && replaces_) {
      tally_.check(where, model->second == before_.at("model.onnx") ? "" : "neither model");
    }
    const auto next = scene_.save(committed ? SceneSave{out_, 3, form_} : request(2));
    tally_.check(where, next ? "" : "the next save fails: " + next.error().message);
    const Snapshot now = snapshot(out_);
    const bool clean = committed ? files_of(now) == files_after_next_ : now == after_;
    tally_.check(where, clean ? "" : "the next save leaves other files than a clean one");
    tally_.check(where, fault_of_model(out_));
    if (next && next->bytes_resumed > 0) {
      tally_.count("resumed");
    }
  }

  const Scene& scene_;
  Form form_;
  bool replaces_;
  Mode mode_{};
  fs::path out_;
  Tally& tally_;
  std::string where_;
  Snapshot before_;
  Snapshot after_;
  std::size_t files_after_next_ = 0;
};

// A write that claims success and does nothing: verification must find it.
Tally sweep_lies(const Scene& scene, const Settings& settings) {
  Tally tally;
  const fs::path out = scene.folder() / "out";
  for (std::size_t nth = 0;; nth += settings.every) {
    fs::remove_all(out);
    std::size_t calls = 0;
    (void)scene.save({out, 1}, {Fault::kLie, nth}, &calls);
    if (calls <= nth) {
      return tally;
    }
    tally.run();
    if (fs::exists(out / "model.onnx")) {
      tally.check(fmt::format("call {}", nth), fault_of_model(out));
    }
  }
}

}  // namespace

Tally sweep_calls(const Settings& settings) {
  const Scene scene(settings.folder);
  if (settings.control == "lie") {
    return sweep_lies(scene, settings);
  }
  Tally tally;
  std::size_t start = settings.seed;
  for (const Form& form : all_forms()) {
    for (const bool replaces : {false, true}) {
      Sweep sweep(scene, form, replaces, tally);
      for (const Mode& mode : kModes) {
        sweep.run(mode, settings.every, start++ % settings.every);
      }
    }
  }
  return tally;
}

}  // namespace onnx_external
