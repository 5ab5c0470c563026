// Names and files that lead elsewhere, at every place where one comes from outside: locations in
// models, shards, parts, manifests, tensors, outputs. Each case is refused, or all that it writes
// stands in the output folder; nobody comes near the folder beside it.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "faults/experiment.h"
#include "faults/scene.h"
#include "onnx_external/verify.h"
#include "support/dcp_builder.h"
#include "support/save_fixture.h"
#include "support/torch_file.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;

struct Answer {
  std::optional<std::string> refusal = {};  // what the error or the finding says
  std::string fault = {};                   // of what was accepted
};

Answer refuses(const std::string& why) {
  return {.refusal = why};
}

// in/ holds what is read, out/ what is written, outside/ what nobody may touch.
class Yard {
 public:
  explicit Yard(fs::path folder) : folder_(std::move(folder)) {
    fs::create_directories(outside() / "folder");
    write(outside() / "secret", "SECRET: 16 bytes");
    // A hard link to a file that all may read would be taken as a file of its folder.
    fs::permissions(outside() / "secret", fs::perms::owner_read | fs::perms::owner_write);
    write(outside() / "folder/w.bin", "SECRET: 16 bytes");
  }

  [[nodiscard]] fs::path in() const { return folder_ / "in"; }
  [[nodiscard]] fs::path out() const { return folder_ / "out"; }
  [[nodiscard]] fs::path outside() const { return folder_ / "outside"; }
  [[nodiscard]] fs::path secret() const { return outside() / "secret"; }

  static void write(const fs::path& file, std::string_view bytes) {
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << bytes;
  }

  void clear() const {
    fs::remove_all(in());
    fs::remove_all(out());
    fs::remove(folder_ / "other");
    fs::create_directories(in());
  }

  // Everything but the output folder, as it can be seen without opening it.
  [[nodiscard]] std::map<std::string, std::string> listing() const {
    std::map<std::string, std::string> all;
    for (auto at = fs::recursive_directory_iterator(folder_); at != end(at); ++at) {
      if (at->path() == out()) {
        at.disable_recursion_pending();
        continue;
      }
      struct stat info {};
      (void)::lstat(at->path().c_str(), &info);
      all[at->path().string()] =
          fmt::format("{:o} {} {} {}.{}", info.st_mode, info.st_ino, info.st_size,
                      info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    }
    return all;
  }

 private:
  fs::path folder_;
};

// Notices who opens, makes or changes anything in a folder.
class Watch {
 public:
  explicit Watch(const fs::path& folder) : fd_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    for (const fs::path& watched : {folder, folder / "folder"}) {
      (void)::inotify_add_watch(fd_, watched.c_str(), IN_ALL_EVENTS);
    }
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() { ::close(fd_); }
  [[nodiscard]] bool saw_something() const {
    std::array<char, 4096> events{};
    return ::read(fd_, events.data(), events.size()) > 0;
  }

 private:
  int fd_;
};

// --- names ---------------------------------------------------------------------------------------

std::vector<std::string> evil_names(const Yard& yard) {
  const std::string secret = yard.secret().string();
  const std::string climb = "../outside/secret";
  std::vector<std::string> names{"",
                                 ".",
                                 "..",
                                 "/",
                                 "//",
                                 "...",
                                 "/etc/passwd",
                                 secret,
                                 "/" + secret,
                                 "." + secret,
                                 climb,
                                 "./" + climb,
                                 "../" + climb,
                                 "../in/" + climb,
                                 "x/../" + climb,
                                 "x/../../outside/secret",
                                 "initializers/../" + climb,
                                 "../outside",
                                 "../outside/folder",
                                 "../outside/folder/w.bin",
                                 "..//outside/secret",
                                 ".../" + climb,
                                 "..\\outside\\secret",
                                 "\\outside",
                                 "C:\\secret",
                                 "C:/secret",
                                 "C:secret",
                                 "\\\\?\\C:\\secret",
                                 "\\\\server\\share",
                                 "//server/share",
                                 "file://" + secret,
                                 "~/secret",
                                 "$HOME/secret",
                                 "%2e%2e/outside/secret",
                                 "..%2foutside%2fsecret",
                                 "%c0%ae%c0%ae/secret",
                                 "a//b",
                                 "a/",
                                 "a/.",
                                 "a/..",
                                 "a/./b",
                                 " ",
                                 " " + climb,
                                 climb + " ",
                                 "\t",
                                 "\n",
                                 "a\nb",
                                 "\r" + climb,
                                 "\x1b[2J",
                                 "\x7f",
                                 "#x",
                                 "#" + climb,
                                 "*/_ORT_MEM_ADDR_/*",
                                 "w..bin",
                                 "..w",
                                 "w..",
                                 ".w",
                                 "w.",
                                 "-rf",
                                 "--help",
                                 "|sh",
                                 "`id`",
                                 "$(id)",
                                 "CON",
                                 "nul.txt",
                                 "COM1",
                                 "aux",
                                 "a:b",
                                 "a*b?",
                                 "/proc/self/mem",
                                 "/proc/self/fd/0",
                                 "/proc/self/root" + secret,
                                 "/dev/zero",
                                 "/dev/stdin",
                                 "\xff\xfe",
                                 "\xe2\x80\xaetxt",
                                 "\xe2\x80\xa4\xe2\x80\xa4/secret",
                                 "\uff0fetc",
                                 "\xc3\xa9",
                                 "e\xcc\x81",
                                 std::string(255, 'n'),
                                 std::string(256, 'n'),
                                 std::string(4096, 'n'),
                                 std::string(5000, '/'),
                                 "model.onnx",
                                 "manifest.json",
                                 "initializers",
                                 "model.data",
                                 ".save-external.0123456789abcdef.tmp",
                                 ".save-external.record",
                                 ".save-external.lock"};
  names.push_back("ok\0"s + climb);
  names.push_back("\0"s);
  names.push_back(secret + "\0.bin"s);
  std::string deep;
  for (int i = 0; i < 200; ++i) {
    deep += "../";
  }
  names.push_back(deep + secret.substr(1));
  return names;
}

// --- files that are no plain files ---------------------------------------------------------------

// Makes something in the place of "w.bin" (or "sub/w.bin") in a folder; false where that needs
// other rights.
struct Kind {
  const char* name;
  std::function<bool(const Yard&, const fs::path&)> make;
  bool plain = false;
};

bool make_link(const fs::path& target, const fs::path& at) {
  fs::create_directories(at.parent_path());
  fs::create_symlink(target, at);
  return true;
}

bool make_node(const fs::path& at, mode_t type, dev_t device = 0) {
  fs::create_directories(at.parent_path());
  return ::mknod(at.c_str(), type | 0600, device) == 0;
}

std::vector<Kind> kinds(const std::string& content) {
  return {
      {"a file",
       [=](auto&, auto& at) {
         Yard::write(at, content);
         return true;
       },
       true},
      {"a link out", [](auto& yard, auto& at) { return make_link(yard.secret(), at); }},
      {"a relative link out",
       [](auto&, auto& at) { return make_link("../outside/folder/w.bin", at); }},
      {"a link to a file beside it",
       [=](auto&, auto& at) {
         Yard::write(at.parent_path() / "other", content);
         return make_link("other", at);
       }},
      {"a dangling link",
       [](auto& yard, auto& at) { return make_link(yard.outside() / "new", at); }},
      {"a link to itself", [](auto&, auto& at) { return make_link(at.filename(), at); }},
      {"a link to a folder", [](auto& yard, auto& at) { return make_link(yard.outside(), at); }},
      {"a link to memory", [](auto&, auto& at) { return make_link("/proc/self/mem", at); }},
      {"a link to zeros", [](auto&, auto& at) { return make_link("/dev/zero", at); }},
      {"a link to a descriptor", [](auto&, auto& at) { return make_link("/proc/self/fd/0", at); }},
      {"a hard link",
       [](auto& yard, auto& at) {
         fs::create_directories(at.parent_path());
         fs::create_hard_link(yard.secret(), at);
         return true;
       }},
      {"a hard link to a good file",
       [=](auto&, auto& at) {
         Yard::write(at.parent_path() / "other", content);
         fs::create_hard_link(at.parent_path() / "other", at);
         return true;
       }},
      {"a FIFO", [](auto&, auto& at) { return make_node(at, S_IFIFO); }},
      {"a socket", [](auto&, auto& at) { return make_node(at, S_IFSOCK); }},
      {"a device", [](auto&, auto& at) { return make_node(at, S_IFCHR, ::makedev(1, 5)); }},
      {"a folder", [](auto&, auto& at) { return fs::create_directories(at); }},
      {"nothing", [](auto&, auto&) { return true; }},
  };
}

// --- what is put there, and who reads it
// -----------------------------------------------------------

const std::string kFloats = f32({1, 2, 3, 4});

TestTensor tensor_named(const std::string& name) {
  return {.name = name, .shape = {4}, .bytes = kFloats};
}

std::string checkpoint_of(const std::string& name) {
  return torch_zip({tensor_named(name)});
}

std::string model_with_location(const std::string& location) {
  GraphBuilder b;
  b.external("w", kFloat, {4}, {{"location", location}});
  b.node("Neg", {"w"}, {"y"}).output("y", kFloat, {4});
  return b.bytes();
}

std::string json_text(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// A checkpoint and the graph that it fits.
void put_job(const Yard& yard, const std::vector<TestTensor>& tensors) {
  Yard::write(yard.in() / "c.pt", torch_zip(tensors));
  Yard::write(yard.in() / "graph.onnx", *model_for(tensors).serialize());
}

void put_index(const Yard& yard, const std::string& shard) {
  Yard::write(yard.in() / "x.index.json", json_text({{"weight_map", {{"w", shard}}}}));
}

void put_parts_list(const Yard& yard, const std::string& file) {
  DcpSpec spec;
  spec.tensors = {
      {.name = "w",
       .shape = {4},
       .chunks = {
           {.offsets = {0}, .sizes = {4}, .bytes = tensor_zip(tensor_named("")), .file = file}}}};
  std::map<std::string, std::string> files;
  Yard::write(yard.in() / ".metadata", dcp_metadata(spec, files));
}

Answer verify(const fs::path& model) {
  VerifyOptions options;
  options.threads = 1;
  const auto report = verify_model(model, options);
  if (!report) {
    return refuses(report.error().message);
  }
  return report->ok() ? Answer() : refuses(finding_text(report->findings.front()));
}

Answer open(const fs::path& path) {
  const std::vector<fs::path> paths{path};
  const auto checkpoint = open_checkpoint(paths);
  if (!checkpoint) {
    return refuses(checkpoint.error().message);
  }
  for (std::size_t i = 0; i < checkpoint->tensors().size(); ++i) {
    std::string bytes(checkpoint->nbytes(i), '\0');
    Status read = checkpoint->read(i, 0, std::as_writable_bytes(std::span(bytes)));
    if (!read) {
      return refuses(read.error().message);
    }
    if (bytes != kFloats) {
      return {.fault = "gives other bytes"};
    }
  }
  return {};
}

struct Output {
  std::string model = "model.onnx";
  std::string folder = "initializers";
  Layout layout = Layout::kPerTensor;
};

Answer save(const Yard& yard, const std::vector<fs::path>& checkpoints, const Output& output = {}) {
  SaveOptions options;
  options.write.sync = Sync::kNone;
  options.open.threads = 1;
  options.write.threads = 1;
  options.write.overwrite = Overwrite::kAllow;
  options.plan.layout = output.layout;
  const fs::path graph = yard.in() / "graph.onnx";
  const auto saved = checkpoints.empty()
                         ? relayout_model({yard.out(), output.model, output.folder}, graph, options)
                         : save_graph_with_external_data(yard.out(), output.model, output.folder,
                                                         checkpoints, graph, options);
  if (!saved) {
    return refuses(saved.error().message);
  }
  return {.fault = verify(yard.out() / output.model).refusal.value_or("")};
}

Answer save_job(const Yard& yard, const Output& output = {}) {
  return save(yard, {yard.in() / "c.pt"}, output);
}

Answer stream(const Yard& yard, const std::string& name) {
  auto writer = Writer::create(yard.out() / "model.onnx", {.sync = Sync::kNone});
  if (!writer) {
    return refuses(writer.error().message);
  }
  const std::vector<std::int64_t> shape{4};
  const auto tensor = writer->add(name, DType::kFloat32, shape, std::as_bytes(std::span(kFloats)));
  if (!tensor) {
    return refuses(tensor.error().message);
  }
  GraphBuilder b;
  b.node("Neg", {name}, {"y"}).output("y", kFloat, {4});
  const Status finished = writer->finish(b.model());
  return finished ? Answer{.fault = verify(yard.out() / "model.onnx").refusal.value_or("")}
                  : refuses(finished.error().message);
}

// A model that stands in out/, whose manifest was forged.
void put_forged_model(const Yard& yard, const std::string& file) {
  put_job(yard, {tensor_named("w")});
  (void)save_job(yard);
  const fs::path path = yard.out() / "initializers/manifest.json";
  nlohmann::json manifest = nlohmann::json::parse(read_text(path));
  manifest["tensors"][0]["file"] = file;
  manifest["linked"] = nlohmann::json::array({{{"file", file}, {"bytes", 16}}});
  Yard::write(path, json_text(manifest));
}

// --- the experiment
// --------------------------------------------------------------------------------

enum class Wanted { kRefusal, kSuccess, kEither };

class Walk {
 public:
  Walk(const Settings& settings, Tally& tally)
      : yard_(settings.folder / "yard"), settings_(settings), tally_(tally) {}

  void run() {
    for (const std::string& name : evil_names(yard_)) {
      walk_models(name);
      walk_checkpoints(name);
      walk_outputs(name);
      walk_manifests(name);
    }
    walk_kinds_of_data();
    walk_kinds_of_shards();
    walk_kinds_of_outputs();
  }

 private:
  // Puts what the case needs into the yard; false where that takes other rights.
  using Prepare = std::function<bool()>;
  using Action = std::function<Answer()>;

  static Prepare always(std::function<void()> prepare) {
    return [prepare = std::move(prepare)] {
      prepare();
      return true;
    };
  }
  void put(const char* file, const std::string& bytes) const {
    Yard::write(yard_.in() / file, bytes);
  }

  void walk_models(const std::string& name) {
    // It is a file in its own folder, too.
    const Wanted wanted = name == "model.onnx" ? Wanted::kEither : Wanted::kRefusal;
    run_case("location, verified", name, wanted,
             always([&] { put("model.onnx", model_with_location(name)); }),
             [&] { return verify(yard_.in() / "model.onnx"); });
    run_case("location, copied along", name, Wanted::kRefusal,
             always([&] { put("graph.onnx", model_with_location(name)); }),
             [&] { return save(yard_, {}); });
  }

  void walk_checkpoints(const std::string& name) {
    run_case("shard", name, Wanted::kRefusal, always([&] { put_index(yard_, name); }),
             [&] { return open(yard_.in() / "x.index.json"); });
    run_case("part", name, Wanted::kRefusal, always([&] { put_parts_list(yard_, name); }),
             [&] { return open(yard_.in()); });
    const auto record = [&] {
      ZipBuilder zip;
      zip.add({.name = "a/data.pkl", .data = state_dict_pickle({tensor_named("w")})});
      zip.add({.name = "a/data/0", .data = kFloats});
      zip.add({.name = name, .data = "evil"});
      put("c.pt", zip.finish());
    };
    run_case("record", name, Wanted::kEither, always(record),
             [&] { return open(yard_.in() / "c.pt"); });
    const auto storage = [&] {
      PickleBuilder pickle;
      pickle.proto().empty_dict().mark().string("w");
      put_tensor(pickle, tensor_named("w"), name, kFloats.size());
      put("c.pt", zip_of(pickle.set_items().stop(), {kFloats}));
    };
    run_case("storage", name, Wanted::kRefusal, always(storage),
             [&] { return open(yard_.in() / "c.pt"); });
  }

  void walk_outputs(const std::string& name) {
    const auto job = always([&] { put_job(yard_, {tensor_named("w")}); });
    const auto job_of_name = always([&] { put_job(yard_, {tensor_named(name)}); });
    for (const Layout layout : {Layout::kPerTensor, Layout::kSingle}) {
      run_case("tensor", name, Wanted::kEither, job_of_name,
               [&] { return save_job(yard_, {.layout = layout}); });
      run_case("model name", name, Wanted::kEither, job,
               [&] { return save_job(yard_, {.model = name, .layout = layout}); });
      run_case("data folder", name, Wanted::kEither, job,
               [&] { return save_job(yard_, {.folder = name, .layout = layout}); });
    }
    const auto given = [&] {
      GraphBuilder b;
      b.initializer(name, kFloat, {4}, kFloats).node("Neg", {name}, {"y"});
      put("graph.onnx", b.output("y", kFloat, {4}).bytes());
    };
    run_case("given tensor", name, Wanted::kEither, always(given), [&] { return save(yard_, {}); });
    run_case("streamed tensor", name, Wanted::kEither, always([] {}),
             [&] { return stream(yard_, name); });
    std::string upper = name + "A";
    std::transform(upper.begin(), upper.end(), upper.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
    run_case("twin but for case", name, Wanted::kEither, always([&] {
               put_job(yard_, {tensor_named(name + "a"), tensor_named(upper)});
             }),
             [&] { return save_job(yard_); });
  }

  void walk_manifests(const std::string& name) {
    const auto forged = always([&] { put_forged_model(yard_, name); });
    run_case("manifest, replaced", name, Wanted::kSuccess, forged, [&] { return save_job(yard_); });
    run_case("manifest, verified", name, Wanted::kRefusal, forged,
             [&] { return verify(yard_.out() / "model.onnx"); });
  }

  // A file may have several links: caches and backups have them.
  static Wanted wanted_of(const Kind& kind) {
    const bool is_duplicate = std::string_view(kind.name) == "a hard link to a good file";
    return kind.plain || is_duplicate ? Wanted::kSuccess : Wanted::kRefusal;
  }

  void walk_kinds_of_data() {
    for (const std::string& place : {"w.bin"s, "sub/w.bin"s, "sub/deep/w.bin"s}) {
      for (const Kind& kind : kinds(kFloats)) {
        const Wanted wanted = wanted_of(kind);
        const auto with_model = [&](const char* file, const std::string& location) {
          return [this, &kind, &place, file, location] {
            put(file, model_with_location(location));
            return kind.make(yard_, yard_.in() / place);
          };
        };
        run_case("location, verified", kind.name, wanted, with_model("model.onnx", place),
                 [&] { return verify(yard_.in() / "model.onnx"); });
        run_case("location, copied along", kind.name, wanted, with_model("graph.onnx", place),
                 [&] { return save(yard_, {}); });
        run_case("a parent of a location", kind.name, Wanted::kRefusal,
                 with_model("model.onnx", place + "/w.bin"),
                 [&] { return verify(yard_.in() / "model.onnx"); });
      }
    }
  }

  void walk_kinds_of_shards() {
    for (const Kind& kind : kinds(checkpoint_of("w"))) {
      const auto prepare = [&] {
        put_index(yard_, "w.bin");
        return kind.make(yard_, yard_.in() / "w.bin");
      };
      run_case("shard", kind.name, wanted_of(kind), prepare,
               [&] { return open(yard_.in() / "x.index.json"); });
    }
    for (const Kind& kind : kinds(tensor_zip(tensor_named("")))) {
      const auto prepare = [&] {
        put_parts_list(yard_, "w.distcp");
        return kind.make(yard_, yard_.in() / "w.distcp");
      };
      run_case("part", kind.name, wanted_of(kind), prepare, [&] { return open(yard_.in()); });
    }
  }

  // What a save finds under the names that it wants.
  void walk_kinds_of_outputs() {
    const auto prepare = [&](const Kind& kind, const fs::path& place) {
      return [this, &kind, place] {
        put_job(yard_, {tensor_named("w")});
        return kind.make(yard_, place);
      };
    };
    for (const Layout layout : {Layout::kPerTensor, Layout::kSingle, Layout::kShards}) {
      for (const char* const place :
           {"model.onnx", "initializers", "initializers.1", "model.data", "model.1.data",
            "model.manifest.json", "model-00001-of-00001.data",
            ".save-external.0123456789abcdef.tmp"}) {
        for (const Kind& kind : kinds(kFloats)) {
          run_case("output "s + place, kind.name, Wanted::kEither,
                   prepare(kind, yard_.out() / place),
                   [&] { return save_job(yard_, {.layout = layout}); });
        }
      }
    }
    for (const Kind& kind : kinds(kFloats)) {
      if (std::string_view(kind.name) != "a link to a folder") {  // the user points there
        run_case("output folder", kind.name, Wanted::kEither, prepare(kind, yard_.out()),
                 [&] { return save_job(yard_); });
      }
    }
  }

  void run_case(const std::string& place, const std::string& what, Wanted wanted,
                const Prepare& prepare, const Action& action) {
    if (number_++ % settings_.every != 0) {
      return;
    }
    yard_.clear();
    if (!prepare()) {
      return;
    }
    const auto before = yard_.listing();
    const Watch watch(yard_.outside());
    const Answer answer = action();
    if (!settings_.control.empty()) {
      Yard::write(yard_.outside() / "folder/w.bin", "trespassed");
    }
    const std::string where = fmt::format("{}: {}", place, what.substr(0, 60));
    tally_.run();
    tally_.count(answer.refusal ? "refused" : "accepted, all of it inside");
    tally_.check(where, watch.saw_something() ? "somebody was outside" : "");
    tally_.check(where, yard_.listing() == before ? "" : "something else changed");
    tally_.check(where, answer.fault);
    tally_.check(where, wanted == Wanted::kRefusal && !answer.refusal ? "accepted" : "");
    tally_.check(where, wanted == Wanted::kSuccess ? answer.refusal.value_or("") : "");
    check_message(where, answer.refusal.value_or("a message"));
  }

  void check_message(const std::string& where, const std::string& message) {
    const bool controls = std::any_of(message.begin(), message.end(), [](char c) {
      return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    });
    tally_.check(where, controls ? "a control character in its message" : "");
    tally_.check(where, message.empty() ? "an empty message" : "");
  }

  const Yard yard_;
  const Settings& settings_;
  Tally& tally_;
  std::size_t number_ = 0;
};

}  // namespace

Tally walk_paths(const Settings& settings) {
  Tally tally;
  Walk(settings, tally).run();
  return tally;
}

}  // namespace onnx_external
