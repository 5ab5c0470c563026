#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "faults/experiment.h"
#include "faults/scene.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPage = 4096;

// A tmpfs while it lives.
class SmallDisk {
 public:
  explicit SmallDisk(const fs::path& folder) : folder_(folder) {
    fs::create_directories(folder_);
    if (::mount("none", folder_.c_str(), "tmpfs", 0, "size=64m") != 0) {
      throw Skipped{fmt::format("cannot mount a tmpfs: {}", std::strerror(errno))};
    }
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() { ::umount2(folder_.c_str(), MNT_DETACH); }

  [[nodiscard]] bool limit(const std::string& options) const {
    return ::mount("none", folder_.c_str(), "tmpfs", MS_REMOUNT, options.c_str()) == 0;
  }

 private:
  fs::path folder_;
};

std::uint64_t pages_of(const Snapshot& files) {
  std::uint64_t pages = 0;
  for (const auto& [name, mark] : files) {
    pages += (std::strtoull(mark.c_str(), nullptr, 10) + kPage - 1) / kPage;
  }
  return pages;
}

class DiskFiller {
 public:
  DiskFiller(const Scene& scene, Tally& tally)
      : scene_(scene), disk_(scene.folder() / "disk"), tally_(tally) {}

  // Room for the old model and `pages` more, or for so many more files.
  void save_over(const Form& form, const char* limit, std::size_t room, bool overlooked) {
    const SmallDisk disk(disk_);
    (void)scene_.save({out(), 1, form});
    const Snapshot before = snapshot(out());
    const bool inodes = std::string(limit) == "nr_inodes";
    // The root, the output folder; a page for each folder's list may be needed.
    const std::size_t used = inodes ? before.size() + 2 : pages_of(before);
    if (!disk.limit(fmt::format("{}={}", limit, inodes ? used + room : (used + room) * kPage))) {
      return;
    }
    const std::string where = fmt::format("{}, {} {}", form.name, limit, room);
    tally_.run();
    check(scene_.save({out(), 2, form}), before, where, overlooked);
  }

  // A limit of the process, in a child that has it.
  void save_limited(const Form& form, int resource, std::uint64_t most, const char* name) {
    fs::remove_all(out());
    fs::create_directories(disk_);
    (void)scene_.save({out(), 1, form});
    const Snapshot before = snapshot(out());
    const std::string where = fmt::format("{}, {} {}", form.name, name, most);
    tally_.run();
    const int state = in_child([&] {
      ::signal(SIGXFSZ, SIG_IGN);
      const struct rlimit limit { most, most };
      ::setrlimit(static_cast<__rlimit_resource>(resource), &limit);
      const auto saved = scene_.save({out(), 2, form});
      return saved ? 0 : saved.error().message.empty() ? 2 : 1;
    });
    tally_.count(state == 0 ? "done" : "refused");
    tally_.check(where, state == 0 || state == 1 ? "" : fmt::format("ends with {}", state));
    tally_.check(where, state == 0 || snapshot(out()) == before ? "" : "left something");
    tally_.check(where, fault_of_model(out()));
  }

 private:
  fs::path out() const { return disk_ / "out"; }

  void check(const Result<SaveReport>& saved, const Snapshot& before, const std::string& where,
             bool overlooked) {
    tally_.check(where, fault_of_model(out()));
    if (saved) {
      tally_.count("done");
      return;
    }
    const std::string& message = saved.error().message;
    const bool beforehand = message.find("the save needs") != std::string::npos;
    tally_.count(beforehand ? "refused beforehand" : "refused when it was full");
    tally_.check(where, overlooked || beforehand || message.find("space") != std::string::npos
                            ? ""
                            : "does not say why: " + message);
    tally_.check(where, snapshot(out()) == before ? "" : "left something: " + message);
  }

  const Scene& scene_;
  fs::path disk_;
  Tally& tally_;
};

}  // namespace

Tally fill_disks(const Settings& settings) {
  const Scene scene(settings.folder);
  Tally tally;
  DiskFiller filler(scene, tally);
  constexpr std::size_t kMostPages = 190;  // a model takes about 150
  constexpr std::size_t kMostInodes = 20;
  for (const Form& form : main_forms()) {
    for (const bool overlooked : {false, true}) {
      sabotage(overlooked ? Sabotage::kNoFreeSpace : Sabotage::kNone);
      for (std::size_t pages = settings.seed % settings.every; pages < kMostPages;
           pages += settings.every) {
        filler.save_over(form, "size", pages, overlooked);
      }
    }
    sabotage(Sabotage::kNone);
    for (std::size_t inodes = 0; inodes < kMostInodes; inodes += settings.every) {
      filler.save_over(form, "nr_inodes", inodes, true);
    }
    for (std::uint64_t bytes = 0; bytes < 1'000'000; bytes += 10'000 * settings.every) {
      filler.save_limited(form, RLIMIT_FSIZE, bytes, "RLIMIT_FSIZE");
    }
    for (std::uint64_t files = 3; files < 64; files += settings.every) {
      filler.save_limited(form, RLIMIT_NOFILE, files, "RLIMIT_NOFILE");
    }
  }
  return tally;
}

}  // namespace onnx_external
