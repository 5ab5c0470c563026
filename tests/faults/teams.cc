// Several processes save together, and one of them is killed, or a call of its fails: the old model
// or the new one is complete, and the next save clears up.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include "faults/experiment.h"
#include "faults/scene.h"
#include "onnx_external/team.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

constexpr int kSize = 2;
constexpr int kLeftAlone = 3;  // the exit code of a process whose team has lost another one

bool read_all(int fd, void* bytes, std::size_t size) {
  for (auto* at = static_cast<char*>(bytes); size > 0;) {
    const ssize_t got = ::read(fd, at, size);
    if (got <= 0) {
      return false;
    }
    at += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

// Texts are small enough for the buffer of a socket.
bool send_text(int fd, const std::string& text) {
  const std::size_t size = text.size();
  return ::send(fd, &size, sizeof(size), MSG_NOSIGNAL) == sizeof(size) &&
         (size == 0 || ::send(fd, text.data(), size, MSG_NOSIGNAL) == static_cast<ssize_t>(size));
}

bool receive_text(int fd, std::string& text) {
  std::size_t size = 0;
  if (!read_all(fd, &size, sizeof(size))) {
    return false;
  }
  text.resize(size);
  return read_all(fd, text.data(), size);
}

// A process of a team, which sends its texts to a parent that gives all of them to all.
Team forked_team(int rank, int to_parent) {
  const auto from_all = [to_parent](const std::string& text) {
    std::vector<std::string> texts(kSize);
    bool works = send_text(to_parent, text);
    for (std::string& one : texts) {
      works = works && receive_text(to_parent, one);
    }
    if (!works) {
      ::_exit(kLeftAlone);  // as mpirun ends what is left of a job
    }
    return texts;
  };
  return {rank, kSize, from_all};
}

struct Member {
  pid_t process = -1;
  int fd = -1;
  int state = 0;
};

// Passes texts on until a member ends; if one ends badly, the others are killed.
void serve(std::array<Member, kSize>& members) {
  std::array<std::string, kSize> texts;
  const auto all = [&](const auto& does) {
    bool works = true;
    for (std::size_t i = 0; i < kSize && works; ++i) {
      works = does(i);
    }
    return works;
  };
  while (all([&](std::size_t i) { return receive_text(members[i].fd, texts[i]); }) &&
         all([&](std::size_t i) {
           return all([&](std::size_t j) { return send_text(members[i].fd, texts[j]); });
         })) {
  }
  for (Member& member : members) {
    ::close(member.fd);
  }
  for (Member& member : members) {
    ::waitpid(member.process, &member.state, 0);
  }
}

// A fault in one process of a team.
struct TeamFault {
  int rank = 0;
  Injection injection = {};
};

struct TeamEnd {
  bool killed = false;    // also if it was left alone
  bool failed = false;    // some process did
  std::size_t calls = 0;  // of the process with the fault, if it was not killed
};

// Memory that forked processes share.
std::size_t& shared_number() {
  static void* const page = ::mmap(nullptr, sizeof(std::size_t), PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return *static_cast<std::size_t*>(page);
}

TeamEnd save_together(const Scene& scene, const SceneSave& request, const TeamFault& fault) {
  shared_number() = 0;
  std::array<Member, kSize> members;
  for (int rank = 0; rank < kSize; ++rank) {
    std::array<int, 2> pair{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) {
      throw Skipped{"no sockets"};
    }
    Member& member = members[static_cast<std::size_t>(rank)];
    member.fd = pair[0];
    member.process = ::fork();
    if (member.process == 0) {
      for (const Member& other : members) {
        ::close(other.fd);  // else nobody sees that one has ended
      }
      const Team team = forked_team(rank, pair[1]);
      SceneSave own = request;
      own.team = &team;
      std::size_t calls = 0;
      const bool is_hit = rank == fault.rank;
      const auto saved = scene.save(own, is_hit ? fault.injection : Injection{}, &calls);
      shared_number() += is_hit ? calls : 0;
      ::_exit(saved ? 0 : 1);
    }
    ::close(pair[1]);
  }
  serve(members);
  TeamEnd end{false, false, shared_number()};
  for (const Member& member : members) {
    end.killed = end.killed || WIFSIGNALED(member.state) || WEXITSTATUS(member.state) == kLeftAlone;
    end.failed = end.failed || member.state != 0;
  }
  return end;
}

class TeamSweep {
 public:
  TeamSweep(const Scene& scene, Form form, bool replaces, Tally& tally)
      : scene_(scene),
        form_(std::move(form)),
        replaces_(replaces),
        out_(scene.folder() / "out"),
        tally_(tally) {
    restore();
    before_ = snapshot(out_);
    (void)scene_.save({out_, 2, form_});
    after_ = snapshot(out_);
  }

  void run(int rank, Injection injection, std::size_t every) {
    for (;; injection.nth += every) {
      restore();
      const TeamEnd end = save_together(scene_, {out_, 2, form_}, {rank, injection});
      const std::string where =
          fmt::format("{}, {} of rank {}, call {}", form_.name,
                      injection.fault == Fault::kKill ? "kill" : "EIO", rank, injection.nth);
      if (!end.killed && end.calls <= injection.nth) {
        tally_.check(where, end.failed ? "fails without a fault" : "");
        tally_.check(where, snapshot(out_) == after_ ? "" : "other files than one process writes");
        return;
      }
      tally_.run();
      check(where, end);
    }
  }

 private:
  void restore() {
    fs::remove_all(out_);
    scene_.prepare({out_, 1, form_});
    if (replaces_) {
      (void)scene_.save({out_, 1, form_});
    }
  }

  void check(const std::string& where, const TeamEnd& end) {
    const Snapshot left = snapshot(out_);
    const auto model = left.find("model.onnx");
    const bool is_new = model != left.end() && model->second == after_.at("model.onnx");
    tally_.count(is_new ? "the new model is there" : "the old model is there, or none");
    if (replaces_ || is_new) {
      tally_.check(where, fault_of_model(out_));
    }
    if (!is_new) {
      const bool is_old = replaces_
                              ? model != left.end() && model->second == before_.at("model.onnx")
                              : model == left.end();
      tally_.check(where, is_old ? "" : "neither model");
      tally_.check(where, end.killed || left == before_ ? "" : "left something");
      tally_.check(where, end.failed ? "" : "succeeds without a model");
    }
    const auto next = scene_.save({out_, 2, form_});
    tally_.check(where, next ? "" : "the next save fails: " + next.error().message);
    const bool is_clean =
        is_new ? files_of(snapshot(out_)) == files_of(after_) : snapshot(out_) == after_;
    tally_.check(where, is_clean ? "" : "the next save leaves other files than a clean one");
    tally_.check(where, fault_of_model(out_));
  }

  const Scene& scene_;
  Form form_;
  bool replaces_;
  fs::path out_;
  Tally& tally_;
  Snapshot before_;
  Snapshot after_;
};

}  // namespace

Tally save_in_teams(const Settings& settings) {
  const Scene scene(settings.folder);
  Tally tally;
  std::size_t start = settings.seed;
  for (const Form& form : all_forms()) {
    const bool is_fit = form.input == Input::kCheckpoint || form.input == Input::kCast;
    if (!is_fit || !form.rename_flags) {
      continue;
    }
    for (const bool replaces : {false, true}) {
      TeamSweep sweep(scene, form, replaces, tally);
      for (int rank = 0; rank < kSize; ++rank) {
        for (const Fault fault : {Fault::kKill, Fault::kFailOnce}) {
          sweep.run(rank, {fault, start++ % settings.every, EIO}, settings.every);
        }
      }
    }
  }
  return tally;
}

}  // namespace onnx_external
