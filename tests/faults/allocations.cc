// Replaces operator new in this executable: the k-th allocation of a save fails, once or from then
// on. malloc itself (of the C libraries) does not fail.
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <optional>

#include "base/directory.h"
#include "faults/experiment.h"
#include "faults/scene.h"

namespace {

std::atomic<bool> counting = false;
std::atomic<std::size_t> allocations = 0;
std::atomic<std::size_t> first_to_fail = 0;
std::atomic<std::size_t> last_to_fail = 0;

void* allocate(std::size_t size, std::size_t alignment) {
  if (counting) {
    const std::size_t number = allocations++;
    if (number >= first_to_fail && number <= last_to_fail) {
      throw std::bad_alloc();
    }
  }
  const std::size_t rounded =
      (std::max<std::size_t>(size, 1) + alignment - 1) / alignment * alignment;
  void* const memory = alignment <= alignof(std::max_align_t)
                           ? std::malloc(std::max<std::size_t>(size, 1))
                           : std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

}  // namespace

void* operator new(std::size_t size) {
  return allocate(size, 1);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
// Else a sanitizer's own, whose memory the operators below could not take back.
void* operator new(std::size_t size, const std::nothrow_t& /*nothrow*/) noexcept {
  try {
    return allocate(size, 1);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
// Not inlined: GCC would see free() take what its own operator new gave.
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

// Fails the allocations from `first` to `last`, counted from 0, while it lives.
class FailingAllocations {
 public:
  FailingAllocations(std::size_t first, std::size_t last) {
    allocations = 0;
    first_to_fail = first;
    last_to_fail = last;
    counting = true;
  }
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;
  ~FailingAllocations() { counting = false; }
};

constexpr std::size_t kNeverFails = static_cast<std::size_t>(-1);

enum class Ending { kDone, kRefused, kThrew };

class Starver {
 public:
  Starver(const Scene& scene, Form form, bool forever, Tally& tally)
      : scene_(scene), form_(std::move(form)), forever_(forever), tally_(tally) {}

  void run(std::size_t every, std::size_t start) {
    fs::remove_all(out_);
    (void)scene_.save({out_, 1, form_});
    const Snapshot before = snapshot(out_);
    const std::size_t all = count();
    for (std::size_t nth = start; nth < all; nth += every) {
      step(nth, before);
    }
  }

 private:
  std::size_t count() {
    {
      const FailingAllocations none(kNeverFails, kNeverFails);
      (void)scene_.save(request());
    }
    restore();
    return allocations;
  }

  SceneSave request() const { return {out_, 2, form_}; }

  void restore() {
    fs::remove_all(out_);
    (void)scene_.save({out_, 1, form_});
  }

  Ending save(std::size_t nth) {
    const SceneSave wanted = request();
    const FailingAllocations failing(nth, forever_ ? kNeverFails - 1 : nth);
    try {
      return scene_.save(wanted) ? Ending::kDone : Ending::kRefused;
    } catch (const std::bad_alloc&) {
      return Ending::kThrew;
    }
  }

  // A descriptor that were lost would keep the lock, and all later saves would fail for that alone.
  bool lock_is_free() const {
    const auto folder = Directory::open(out_);
    return folder && folder->try_lock() != false;
  }

  void step(std::size_t nth, const Snapshot& before) {
    const std::string where =
        fmt::format("{}, allocation {}{}", form_.name, nth, forever_ ? " and all later ones" : "");
    tally_.run();
    const Ending ending = save(nth);
    tally_.count(ending == Ending::kDone      ? "done in spite of it"
                 : ending == Ending::kRefused ? "an error"
                                              : "std::bad_alloc");
    tally_.check(where, lock_is_free() ? "" : "the lock is still held");
    tally_.check(where, fault_of_model(out_));
    const Snapshot after = snapshot(out_);
    if (ending != Ending::kDone && !forever_ && after.at("model.onnx") == before.at("model.onnx")) {
      tally_.check(where, after == before ? "" : "left something");
    }
    if (ending == Ending::kDone && !forever_) {
      tally_.check(where, files_of(after) == files_of(before) ? "" : "old data stays, unsaid");
    }
    if (after == before) {
      return;
    }
    // Nothing can be removed without memory: the next save does.
    if (after.at("model.onnx") == before.at("model.onnx")) {
      tally_.count("left for the next save to remove");
      tally_.check(where, scene_.save(request()) ? "" : "the next save fails");
      tally_.check(where, files_of(snapshot(out_)) == files_of(before) ? "" : "leftovers stay");
    }
    restore();
  }

  const Scene& scene_;
  Form form_;
  bool forever_;
  Tally& tally_;
  fs::path out_ = scene_.folder() / "out";
};

}  // namespace

Tally fail_allocations(const Settings& settings) {
  const Scene scene(settings.folder);
  Tally tally;
  std::size_t start = settings.seed;
  const std::vector<Form> forms = all_forms();
  for (const Form& form : forms) {
    for (const bool forever : {false, true}) {
      Starver(scene, form, forever, tally).run(settings.every, start++ % settings.every);
    }
  }
  return tally;
}

}  // namespace onnx_external
