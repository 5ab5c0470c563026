#include <fmt/format.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "faults/experiment.h"
#include "faults/scene.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

// A file system in a file; mounted and unmounted again and again, as a machine is started.
class LoopDisk {
 public:
  LoopDisk(const fs::path& folder, std::string type)
      : image_(folder / "image"), mount_point_(folder / "disk"), type_(std::move(type)) {
    fs::create_directories(mount_point_);
    const bool is_xfs = type_ == "xfs";
    if (type_ == "ext4-writeback") {  // the mode that promises least
      type_ = "ext4";
      mount_options_ = "data=writeback,noauto_da_alloc";
    }
    const std::string make = is_xfs ? "mkfs.xfs -q -f " : "mkfs.ext4 -q -F ";
    run(fmt::format("truncate -s {} '{}' && {} '{}'", is_xfs ? "320M" : "32M", image_.string(),
                    make, image_.string()));
    device_ = output_of(fmt::format("losetup --find --show '{}'", image_.string()));
    if (device_.empty()) {
      throw Skipped{"no loop device can be had"};
    }
  }
  LoopDisk(const LoopDisk&) = delete;
  LoopDisk& operator=(const LoopDisk&) = delete;
  ~LoopDisk() {
    unmount();
    (void)std::system(("losetup --detach " + device_).c_str());
  }

  void mount() {
    if (::mount(device_.c_str(), mount_point_.c_str(), type_.c_str(), 0, mount_options_.c_str()) !=
        0) {
      throw Skipped{fmt::format("cannot mount {}: {}", type_, std::strerror(errno))};
    }
  }
  void unmount() { ::umount2(mount_point_.c_str(), 0); }
  [[nodiscard]] const fs::path& folder() const { return mount_point_; }

 private:
  static void run(const std::string& command) {
    if (std::system((command + " > /dev/null 2>&1").c_str()) != 0) {
      throw Skipped{"fails: " + command};
    }
  }
  static std::string output_of(const std::string& command) {
    std::string text;
    if (FILE* pipe = ::popen((command + " 2> /dev/null").c_str(), "r")) {
      for (int byte = std::fgetc(pipe); byte != EOF; byte = std::fgetc(pipe)) {
        text += static_cast<char>(byte);
      }
      ::pclose(pipe);
    }
    return text.substr(0, text.find('\n'));
  }

  fs::path image_;
  fs::path mount_point_;
  std::string type_;
  std::string mount_options_;
  std::string device_;
};

class PowerCutter {
 public:
  PowerCutter(const Scene& scene, LoopDisk& disk, Tally& tally)
      : scene_(scene), disk_(disk), out_(disk.folder() / "out"), tally_(tally) {}

  // False once there is no such call any more: then the power was cut after the end.
  bool cut(const Form& form, bool replaces, std::size_t nth) {
    const std::string where =
        fmt::format("{}, {}, call {}", form.name, replaces ? "replacing" : "first", nth);
    disk_.mount();
    fs::remove_all(out_);
    scene_.prepare({out_, 1, form});  // what is linked must be on the disk before
    if (replaces) {
      (void)scene_.save({out_, 1, form});
    }
    ::sync();
    // The descriptor that stops the disk must be closed before it is unmounted: in a child.
    const int state = in_child([&] {
      set_power_cut_target(disk_.folder().c_str());
      const auto saved = scene_.save({out_, 2, form}, {Fault::kPowerCut, nth});
      return saved && cut_power() ? 0 : 1;
    });
    disk_.unmount();
    disk_.mount();
    tally_.run();
    tally_.check(where, state <= 0 ? "" : "fails without a fault, or power cannot be cut");
    check(where, form, replaces, state == 0);
    disk_.unmount();
    return state < 0;
  }

 private:
  void check(const std::string& where, const Form& form, bool replaces, bool ended) {
    const bool has_model = fs::exists(out_ / "model.onnx");
    if (has_model || replaces || ended) {
      tally_.check(where, fault_of_model(out_));
    }
    const std::string data = fault_of_model(out_).empty() && replaces ? generation() : "";
    tally_.check(where, ended && data == "old" ? "the new model is lost after the end" : "");
    tally_.count(ended ? "after the end" : has_model ? "a model is there" : "no model yet");
    const auto next = scene_.save({out_, 2, form});
    tally_.check(where,
                 next ? fault_of_model(out_) : "the next save fails: " + next.error().message);
    for (const auto& entry : fs::directory_iterator(out_)) {
      const bool left = entry.path().filename().string().starts_with(".save-external.");
      tally_.check(where, left ? "leftovers stay" : "");
    }
    if (next && next->bytes_resumed > 0) {
      tally_.count("resumed");
    }
  }

  // A saved model with a generation in its names is the one that replaced another.
  std::string generation() const {
    for (const auto& [name, mark] : snapshot(out_)) {
      if (name.starts_with("initializers.1") || name.starts_with("model.1")) {
        return "new";
      }
    }
    return "old";
  }

  const Scene& scene_;
  LoopDisk& disk_;
  fs::path out_;
  Tally& tally_;
};

}  // namespace

Tally cut_power_everywhere(const Settings& settings) {
  if (::geteuid() != 0) {
    throw Skipped{"only root may mount"};
  }
  const Scene scene(settings.folder);
  LoopDisk disk(settings.folder, settings.file_system);
  Tally tally;
  PowerCutter cutter(scene, disk, tally);
  std::size_t start = settings.seed;
  for (const Form& form : main_forms()) {
    for (const bool replaces : {false, true}) {
      std::size_t nth = start++ % settings.every;
      while (cutter.cut(form, replaces, nth)) {
        nth += settings.every;
      }
    }
  }
  return tally;
}

}  // namespace onnx_external
