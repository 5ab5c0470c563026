// mutants [--every N]: damages small honest files in every way of a fixed list, at every place, and
// reads each as the commands do. The list: every byte flipped in its lowest and its highest bit,
// set to 0 and to 255, one more; removed; doubled; every run of 2, 4 and 8 bytes set to 0, to all
// ones and to the largest signed number; every length of the file. With --every N every N-th of
// them.
//
// Wanted of each: an answer or an error that names the file; no crash, no exception, no more than
// kMaxPeakBytes. The slowest and the largest are printed; a crash names its mutant.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "mutants/meter.h"
#include "onnx_external/mapping.h"
#include "onnx_external/save_external.h"
#include "onnx_external/verify.h"
#include "support/dcp_builder.h"
#include "support/gguf_builder.h"
#include "support/legacy_builder.h"
#include "support/pickle_builder.h"
#include "support/save_fixture.h"
#include "support/temp_dir.h"
#include "support/zip_builder.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxPeakBytes = std::size_t{256} << 20;

// One honest file, where it is put, and what reads it. The answer of `read`: whether it was
// accepted; an error must name something of `folder`.
struct Target {
  std::string name;
  fs::path file;
  std::string bytes;
  std::function<Status()> read;
};

// --- what reads them ---------------------------------------------------------------------------

Status read_checkpoint(const fs::path& path) {
  constexpr std::uint64_t kMaxRead = std::uint64_t{1} << 16;
  OpenOptions options{.threads = 1};
  options.selection = Selection::kEverything;
  options.scratch_dir = path.parent_path();
  const std::vector<fs::path> paths{path};
  const auto checkpoint = open_checkpoint(paths, options);
  if (!checkpoint) {
    return fail(checkpoint.error());
  }
  for (std::size_t i = 0; i < checkpoint->tensors().size(); ++i) {
    std::vector<std::byte> bytes(std::min(checkpoint->nbytes(i), kMaxRead));
    if (Status read = checkpoint->read(i, 0, bytes); !read) {
      return read;
    }
  }
  return {};
}

Status verify(const fs::path& model) {
  VerifyOptions options;
  options.threads = 1;
  const auto report = verify_model(model, options);
  if (!report) {
    return fail(report.error());
  }
  return report->ok() ? Status() : fail(ErrorCode::kMismatch, model.string() + ": findings");
}

Status dry_run(const fs::path& graph, const fs::path& checkpoint, const fs::path& out) {
  SaveOptions options;
  options.mode = RunMode::kDryRun;
  options.open.threads = 1;
  options.write.threads = 1;
  const std::vector<fs::path> paths{checkpoint};
  const auto report =
      save_graph_with_external_data(out, "model.onnx", "initializers", paths, graph, options);
  return report ? Status() : Status(fail(report.error()));
}

// --- the honest files --------------------------------------------------------------------------

class Targets {
 public:
  explicit Targets(const fs::path& folder) : folder_(folder) {
    fs::copy(fs::path(ONNX_EXTERNAL_FIXTURES) / "tiny", folder_ / "tiny",
             fs::copy_options::recursive);
    add_checkpoints();
    add_models();
  }

  [[nodiscard]] const std::vector<Target>& all() const { return targets_; }

 private:
  void add(const std::string& name, const fs::path& file, std::function<Status()> read) {
    targets_.push_back({name, file, read_text(file), std::move(read)});
  }

  void add_checkpoint(const std::string& name, const std::string& file, const std::string& bytes) {
    const fs::path path = folder_ / file;
    write(path, bytes);
    add(name, path, [path] { return read_checkpoint(path); });
  }

  static void write(const fs::path& path, const std::string& bytes) {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
  }

  void add_checkpoints() {
    const fs::path tiny = folder_ / "tiny";
    for (const char* file : {"checkpoint.pt", "model.safetensors", "two_lengths.pt",
                             "sharded_bin/pytorch_model.bin.index.json",
                             "sharded_safetensors/model.safetensors.index.json"}) {
      const fs::path path = tiny / file;
      add(fs::path(file).filename(), path, [path] { return read_checkpoint(path); });
    }
    // Without a CRC damage reaches the pickle machine.
    const std::vector<TestTensor> tensors{
        {.name = "a", .shape = {2, 3}, .bytes = noise(24, 1)},
        {.name = "b", .shape = {3, 2}, .strides = std::vector<std::int64_t>{1, 3}, .shares = "a"}};
    add_checkpoint("torch zip without CRCs", "zip/c.pt", torch_zip(tensors, {.with_crc = false}));
    add_checkpoint("legacy", "legacy/c.pt", legacy_file(legacy_object(), {{"7", noise(16, 2)}}));
    add_checkpoint("gguf", "gguf/m.gguf", tiny_gguf().bytes());
    std::map<std::string, std::string> files;
    const std::string metadata = dcp_metadata(dcp(), files);
    for (const auto& [name, bytes] : files) {
      write(folder_ / "dcp" / name, bytes);
    }
    const fs::path dcp = folder_ / "dcp";
    write(dcp / ".metadata", metadata);
    add("dcp metadata", dcp / ".metadata", [dcp] { return read_checkpoint(dcp); });
  }

  static DcpSpec dcp() {
    const auto piece = [](std::int64_t columns, std::uint32_t seed) {
      return tensor_zip(
          {.shape = {2, columns}, .bytes = noise(8 * static_cast<std::size_t>(columns), seed)});
    };
    const DcpTensorSpec cut{.name = "w",
                            .shape = {2, 3},
                            .chunks = {{.offsets = {0, 0}, .sizes = {2, 2}, .bytes = piece(2, 3)},
                                       {.offsets = {0, 2}, .sizes = {2, 1}, .bytes = piece(1, 4)}}};
    return {.tensors = {cut}, .bytes_items = {"step"}, .paths = {{"w", {"model", "w"}}}};
  }

  void add_models() {
    const fs::path tiny = folder_ / "tiny";
    const fs::path graph = tiny / "graph.onnx";
    const fs::path out = folder_ / "out";
    for (const char* name : {"graph.onnx", "untrained_graph.onnx"}) {
      const fs::path path = tiny / name;
      add(name, path,
          [=, this] { return dry_run(path, tiny / "model.safetensors", folder_ / "none"); });
    }
    SaveOptions options;
    options.write.sync = Sync::kNone;
    options.plan.layout = Layout::kSingle;
    const std::vector<fs::path> paths{tiny / "model.safetensors"};
    const auto saved =
        save_graph_with_external_data(out, "model.onnx", "initializers", paths, graph, options);
    if (!saved) {
      fmt::print(stderr, "mutants: {}\n", saved.error().message);
      std::exit(1);
    }
    const fs::path model = out / "model.onnx";
    for (const char* file : {"model.onnx", "model.manifest.json", "model.data"}) {
      add(file, out / file, [model] { return verify(model); });
    }
    write(folder_ / "map.json", R"({"fc.weight": "module.fc.weight", "a\u00e9": "b"})");
    const fs::path map = folder_ / "map.json";
    add("map file", map, [map]() -> Status {
      const auto pairs = read_map_file(map);
      return pairs ? Status() : Status(fail(pairs.error()));
    });
  }

  fs::path folder_;
  std::vector<Target> targets_;
};

// --- the damage --------------------------------------------------------------------------------

struct Mutation {
  std::string what;
  std::string bytes;
};

constexpr std::array<std::size_t, 3> kRuns{2, 4, 8};
constexpr std::size_t kByteWays = 8;
constexpr std::size_t kRunWays = 3;
constexpr std::size_t kWays = kByteWays + kRuns.size() * kRunWays;

// Way number `way` of damaging the byte at `at`.
Mutation mutate(const std::string& honest, std::size_t at, std::size_t way) {
  std::string bytes = honest;
  char& c = bytes[at];
  const auto with = [&](const char* what) {
    return Mutation{fmt::format("{} at {}", what, at), bytes};
  };
  switch (way) {
    case 0:
      c = static_cast<char>(c ^ 1);
      return with("lowest bit flipped");
    case 1:
      c = static_cast<char>(c ^ 0x80);
      return with("highest bit flipped");
    case 2:
      c = 0;
      return with("0");
    case 3:
      c = static_cast<char>(0xFF);
      return with("255");
    case 4:
      c = static_cast<char>(c + 1);
      return with("one more");
    case 5:
      bytes.erase(at, 1);
      return with("removed");
    case 6:
      bytes.insert(at, 1, c);
      return with("doubled");
    case 7:
      bytes.resize(at);
      return with("cut");
    default:
      break;
  }
  const std::size_t run = std::min(kRuns[(way - kByteWays) / kRunWays], bytes.size() - at);
  const std::size_t value = (way - kByteWays) % kRunWays;
  bytes.replace(at, run, run, static_cast<char>(value == 0 ? 0 : 0xFF));
  if (value == 2) {
    bytes[at + run - 1] = 0x7F;
  }
  return with(value == 0 ? "zeros" : value == 1 ? "ones" : "largest signed");
}

// --- the run -----------------------------------------------------------------------------------

// What the handler of a crash prints.
std::array<char, 512> current{};

void on_crash(int number) {
  constexpr std::string_view kText = "\nmutants: crashed: ";
  (void)!::write(STDERR_FILENO, kText.data(), kText.size());
  (void)!::write(STDERR_FILENO, current.data(), std::strlen(current.data()));
  (void)!::write(STDERR_FILENO, "\n", 1);
  ::signal(number, SIG_DFL);
  ::raise(number);
}

struct Tally {
  std::uint64_t mutants = 0, accepted = 0, refused = 0;
  double slowest = 0;
  std::string slowest_mutant;
  std::size_t largest = 0;
  std::string largest_mutant;
};

class Run {
 public:
  explicit Run(std::size_t every) : every_(every) {}

  // False after a mutant that broke a promise.
  bool attack(const Target& target) {
    Tally tally;
    if (Status honest = target.read(); !honest) {
      fmt::print(stderr, "mutants: {}: refused undamaged: {}\n", target.name,
                 honest.error().message);
      return false;
    }
    bool good = true;
    for (std::size_t number = turn_++ % every_; number < target.bytes.size() * kWays;
         number += every_) {
      const Mutation mutation = mutate(target.bytes, number / kWays, number % kWays);
      good = (mutation.bytes == target.bytes || attempt(target, mutation, tally)) && good;
    }
    put(target, target.bytes);
    fmt::print(
        "{:32} {:8} mutants: {:7} accepted, {:7} refused; slowest {:.3f} s ({}), most memory "
        "{:.1f} MiB ({})\n",
        target.name, tally.mutants, tally.accepted, tally.refused, tally.slowest,
        tally.slowest_mutant, static_cast<double>(tally.largest) / 1048576.0, tally.largest_mutant);
    (void)std::fflush(stdout);
    return good;
  }

 private:
  static void put(const Target& target, const std::string& bytes) {
    const UniqueFd fd(::open(target.file.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
    if (!fd || !write_all(fd.get(), 0, std::as_bytes(std::span(bytes)), target.name)) {
      fmt::print(stderr, "mutants: cannot write {}\n", target.file.string());
      std::exit(1);
    }
  }

  bool attempt(const Target& target, const Mutation& mutation, Tally& tally) {
    const std::string name = fmt::format("{}: {}", target.name, mutation.what);
    current.fill(0);
    name.copy(current.data(), current.size() - 1);
    put(target, mutation.bytes);
    reset_peak();
    const auto begin = std::chrono::steady_clock::now();
    bool good = true;
    try {
      const Status status = target.read();
      ++(status ? tally.accepted : tally.refused);
      if (!status && status.error().message.empty()) {
        good = complain(name, "an error without a word");
      }
    } catch (const std::exception& error) {
      good = complain(name, error.what());
    }
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    ++tally.mutants;
    if (time.count() > tally.slowest) {
      tally.slowest = time.count();
      tally.slowest_mutant = mutation.what;
    }
    if (peak_bytes() > tally.largest) {
      tally.largest = peak_bytes();
      tally.largest_mutant = mutation.what;
    }
    return peak_bytes() <= kMaxPeakBytes ? good : complain(name, "too much memory");
  }

  static bool complain(const std::string& mutant, std::string_view what) {
    fmt::print(stderr, "mutants: {}: {}\n", mutant, what);
    return false;
  }

  std::size_t every_;
  std::size_t turn_ = 0;  // each target starts at another way
};

int run(int argc, char** argv) {
  std::size_t every = 1;
  if (argc == 3 && std::string_view(argv[1]) == "--every") {
    every = std::max<std::size_t>(std::strtoul(argv[2], nullptr, 10), 1);
  } else if (argc != 1) {
    fmt::print(stderr, "usage: mutants [--every N]\n");
    return 2;
  }
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) {
    ::signal(number, on_crash);
  }
  const TempDir folder;
  const Targets targets(folder.path());
  Run run(every);
  bool good = true;
  for (const Target& target : targets.all()) {
    good = run.attack(target) && good;
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace onnx_external

int main(int argc, char** argv) {
  return onnx_external::run(argc, argv);
}
