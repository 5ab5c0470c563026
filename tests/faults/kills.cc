#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <optional>
#include <span>
#include <thread>

#include "base/digest.h"
#include "base/directory.h"
#include "faults/experiment.h"
#include "faults/scene.h"
#include "save/record.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;
using Chance = std::mt19937;

std::size_t below(Chance& chance, std::size_t end) {
  return std::uniform_int_distribution<std::size_t>(0, end - 1)(chance);
}

const char* layout_name(Layout layout) {
  switch (layout) {
    case Layout::kPerTensor:
      return "per-tensor";
    case Layout::kSingle:
      return "single";
    case Layout::kShards:
      return "shards";
    case Layout::kInline:
      return "inline";
    case Layout::kLink:
      break;
  }
  return "link";
}

std::vector<std::string> words_of(const Settings& settings, const Scene& scene,
                                  const SceneSave& request) {
  const Form& form = request.form;
  std::vector<std::string> words{settings.commands / "save-external",
                                 scene.graph(form, request.seed),
                                 "-o",
                                 request.out,
                                 "--overwrite",
                                 "--layout",
                                 layout_name(form.layout),
                                 "--threads",
                                 std::to_string(request.threads)};
  for (const fs::path& checkpoint : scene.checkpoints(request)) {
    words.insert(words.begin() + 2, checkpoint);
  }
  if (form.layout == Layout::kShards) {
    words.insert(words.end(), {"--max-shard-size", "320000"});
  }
  if (form.input == Input::kCast) {
    words.insert(words.end(), {"--dtype", "slot"});
  }
  if (form.input == Input::kRecorded) {
    words.insert(words.end(), {"--test-data", scene.recording()});
  }
  return words;
}

// Starts save-external in a form of the scene; its output goes nowhere.
pid_t start_command(const Settings& settings, const Scene& scene, const SceneSave& request) {
  std::vector<std::string> words = words_of(settings, scene, request);
  scene.prepare(request);
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    ::posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", O_WRONLY, 0);
  }
  pid_t child = -1;
  if (::posix_spawn(&child, words[0].c_str(), &actions, nullptr, arguments.data(), environ) != 0) {
    child = -1;
  }
  ::posix_spawn_file_actions_destroy(&actions);
  if (child <= 0) {  // killing process -1 would kill all of them
    throw Skipped{"cannot start " + words[0]};
  }
  return child;
}

// -N for signal N.
int wait_for(pid_t child) {
  int state = 0;
  if (child < 0 || ::waitpid(child, &state, 0) != child) {
    return -1000;
  }
  return WIFSIGNALED(state) ? -WTERMSIG(state) : WEXITSTATUS(state);
}

std::string staging_in(const fs::path& out) {
  for (const auto& entry : fs::directory_iterator(out)) {
    if (entry.path().filename().string().starts_with(".save-external.")) {
      return entry.path();
    }
  }
  return "";
}

// The longest that a command takes, to draw the moment of the kill from.
std::chrono::microseconds time_command(const Settings& settings, const Scene& scene,
                                       const SceneSave& request) {
  std::chrono::microseconds longest{0};
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    (void)wait_for(start_command(settings, scene, request));
    longest = std::max(longest, std::chrono::duration_cast<std::chrono::microseconds>(
                                    std::chrono::steady_clock::now() - start));
  }
  return longest;
}

bool tells_of_renames(const fs::path& file) {
  return file.filename() == kRecordName && read_text(file).find("\"publish\"") != std::string::npos;
}

// Damages what a dead save left: a bit or the end of any of its files, but for a record of what is
// published, by which data that was renamed already is found.
void damage(const fs::path& staging, Chance& chance, Tally& tally) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(staging)) {
    if (entry.is_regular_file() && entry.file_size() > 0 && !tells_of_renames(entry.path())) {
      files.push_back(entry.path());
    }
  }
  if (files.empty()) {
    return;
  }
  const fs::path& file = files[below(chance, files.size())];
  const std::size_t place = below(chance, fs::file_size(file));
  tally.count("damaged before");
  if (below(chance, 2) == 0) {
    fs::resize_file(file, place);
    return;
  }
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekg(static_cast<std::streamoff>(place));
  const int byte = stream.get();
  stream.seekp(static_cast<std::streamoff>(place));
  stream.put(static_cast<char>(byte ^ (1 << below(chance, 8))));
}

// The same kept part, damaged, with a record that says its damaged bytes are right.
void forge(const fs::path& staging) {
  const fs::path file = staging / "initializers" / "large";
  const auto directory = Directory::open(staging);
  const auto record = directory ? read_record(*directory) : fail(directory.error());
  if (!record || !*record || !fs::exists(file)) {
    return;
  }
  std::string text = read_text(file);
  text[0] = static_cast<char>(text[0] ^ 1);
  std::ofstream(file, std::ios::binary) << text;
  Crc32 crc;
  crc.update(std::as_bytes(std::span(text)));
  (void)RecordWriter::start(*directory, (*record)->job, WrittenRanges{crc.value()});
}

}  // namespace

Tally kill_commands(const Settings& settings) {
  const Scene scene(settings.folder);
  Tally tally;
  Chance chance(settings.seed);
  const std::vector<Form> forms = main_forms();
  const fs::path out = settings.folder / "out";
  const auto longest = time_command(settings, scene, {out, 1, forms[0], Overwrite::kAllow, 2});
  for (std::size_t i = 0; i < settings.count; ++i) {
    const SceneSave request{out, static_cast<std::uint32_t>(2 + i % 2),
                            forms[below(chance, forms.size())], Overwrite::kAllow, 2};
    const std::string where = fmt::format("kill {}, {}", i, request.form.name);
    const pid_t child = start_command(settings, scene, request);
    const auto delay = below(chance, static_cast<std::size_t>(longest.count()));
    std::this_thread::sleep_for(std::chrono::microseconds(delay));
    (void)::kill(child, SIGKILL);
    const int state = wait_for(child);
    if (state >= 0) {
      tally.count("ended before");
      tally.check(where, state == 0 ? "" : "the command fails");
    } else {
      tally.run();
      tally.count(staging_in(out).empty() ? "nothing was left" : "something was left");
    }
    tally.check(where, fault_of_model(out));
    if (i % 8 == 7) {  // else the next command is the one that finds the leftovers
      tally.check(where, wait_for(start_command(settings, scene, request)) == 0
                             ? fault_of_model(out)
                             : "the next command fails");
      tally.check(where, staging_in(out).empty() ? "" : "leftovers stay");
    }
  }
  return tally;
}

Tally resume_saves(const Settings& settings) {
  const Scene scene(settings.folder);
  Tally tally;
  Chance chance(settings.seed);
  const std::vector<Form> forms = all_forms();
  const fs::path out = settings.folder / "out";
  std::map<std::string, std::pair<Snapshot, std::size_t>> clean;
  for (const Form& form : forms) {
    fs::remove_all(out);
    std::size_t calls = 0;
    (void)scene.save({out, 1, form}, {Fault::kKill, 1'000'000}, &calls);
    clean[form.name] = {snapshot(out), calls};
  }
  const bool forges = settings.control == "no-check";
  while (tally.runs() < settings.count) {
    fs::remove_all(out);
    const Form& form = forges ? forms[0] : forms[below(chance, forms.size())];
    const auto& [expected, calls] = clean[form.name];
    const SceneSave request{out, 1, form, Overwrite::kRefuse,
                            static_cast<int>(1 + below(chance, 2))};
    const Injection kill{Fault::kKill, below(chance, calls)};
    (void)in_child([&] { return scene.save(request, kill) ? 0 : 1; });
    const std::string staging = fs::exists(out) ? staging_in(out) : "";
    if (fs::exists(out / "model.onnx") || staging.empty()) {
      continue;  // not begun, or done
    }
    if (forges) {
      forge(staging);
    } else if (below(chance, 3) == 0) {
      damage(staging, chance, tally);
    }
    tally.run();
    // In a child, too: a save that crashes is counted, and ends nothing else.
    const int state = in_child([&] {
      const auto saved = scene.save(request);
      return !saved ? 2 : saved->bytes_resumed > 0 ? 1 : 0;
    });
    const std::string where = fmt::format("{}, killed at call {}", form.name, kill.nth);
    tally.count(state == 1 ? "kept some of it" : "kept nothing");
    tally.check(where, state == 0 || state == 1 ? "" : "cannot be resumed");
    tally.check(where, snapshot(out) == expected ? "" : "other files than in a clean run");
  }
  return tally;
}

}  // namespace onnx_external
