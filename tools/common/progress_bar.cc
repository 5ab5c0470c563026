#include "common/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/size_text.h"
#include "common/command.h"
#include "common/output.h"

namespace onnx_external {
namespace {

constexpr std::size_t kDefaultColumns = 80;
constexpr std::size_t kMaxColumns = 10'000;
// The rate is shown after this time; before, it is noise.
constexpr double kSettledSeconds = 0.3;
constexpr std::string_view kClearLine = "\r\033[K";

std::string_view phase_text(Phase phase) {
  switch (phase) {
    case Phase::kCopy:
      return "copying";
    case Phase::kSync:
      return "syncing";
    case Phase::kVerify:
      return "verifying";
    case Phase::kCompare:
      return "comparing";
  }
  return "";
}

std::string time_text(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::llround(seconds));
  return whole < 3600 ? fmt::format("{}:{:02}", whole / 60, whole % 60)
                      : fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::size_t terminal_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return size.ws_col;
  }
  const char* columns = std::getenv("COLUMNS");
  const auto given = columns == nullptr ? 0 : std::strtoul(columns, nullptr, 10);
  return given > 0 && given < kMaxColumns ? given : kDefaultColumns;
}

// The items of a line that fit into its width.
struct Pieces {
  std::size_t cells;
  bool bytes;
  bool rate;
  bool left;
};

// The widest first.
constexpr std::array kForms{Pieces{24, true, true, true},   Pieces{12, true, true, true},
                            Pieces{12, true, false, true},  Pieces{6, true, false, true},
                            Pieces{12, false, false, true}, Pieces{12, false, false, false},
                            Pieces{0, false, false, false}};

std::string line_of(const BarState& state, const Pieces& pieces) {
  const Progress& progress = state.progress;
  std::string line = fmt::format("{:<9}", phase_text(progress.phase));
  if (progress.bytes_total == 0) {
    return line;
  }
  const auto total = static_cast<double>(progress.bytes_total);
  const double done = std::min(total, static_cast<double>(progress.bytes_done));
  const double part = part_of(state);
  const auto full = static_cast<std::size_t>(part * static_cast<double>(pieces.cells));
  if (pieces.cells > 0) {
    line += fmt::format(" [{}{}]", std::string(full, '#'), std::string(pieces.cells - full, '-'));
  }
  line += fmt::format(" {:3.0f}%", part * 100);
  if (pieces.bytes) {
    line +=
        fmt::format("  {} of {}", size_text(progress.bytes_done), size_text(progress.bytes_total));
  }
  if (state.time.count() >= kSettledSeconds && done > 0) {
    const double rate = done / state.time.count();
    const auto later = static_cast<double>(state.phases - state.phase - 1);
    line += pieces.rate ? fmt::format("  {:.2f} GB/s", rate / 1e9) : "";
    line += pieces.left ? fmt::format("  {} left", time_text((total - done + later * total) / rate))
                        : "";
  }
  return line;
}

bool can_draw() {
  const char* terminal = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && terminal != nullptr &&
         std::string_view(terminal) != "dumb";
}

}  // namespace

double part_of(const BarState& state) {
  const Progress& progress = state.progress;
  const double done = progress.bytes_total == 0
                          ? 0
                          : std::min(1.0, static_cast<double>(progress.bytes_done) /
                                              static_cast<double>(progress.bytes_total));
  return std::max(state.least,
                  (static_cast<double>(state.phase) + done) / static_cast<double>(state.phases));
}

std::string progress_line(const BarState& state, std::size_t columns) {
  // The line must not wrap, because a wrapped line cannot be cleared.
  const std::size_t most = columns > 0 ? columns - 1 : 0;
  std::string line;
  for (const Pieces& pieces : kForms) {
    line = line_of(state, pieces);
    if (line.size() <= most) {
      return line;
    }
  }
  return line.substr(0, most);
}

ProgressBar::ProgressBar(ShowProgress show, std::vector<Phase> phases)
    : draws_(show == ShowProgress::kYes && can_draw()),
      phases_(std::move(phases)),
      phase_start_(std::chrono::steady_clock::now()) {}

ProgressBar::~ProgressBar() {
  hide();
}

ProgressFn ProgressBar::callback() {
  return [this](const Progress& progress) {
    if (draws_) {
      update(progress);
    }
    return interrupted() ? Continue::kCancel : Continue::kYes;
  };
}

void ProgressBar::update(const Progress& progress) {
  const auto now = std::chrono::steady_clock::now();
  if (progress.phase != phase_ || drawn_.empty()) {
    begin(progress.phase);
    phase_start_ = now;
  }
  BarState state{progress, place_, std::max<std::size_t>(phases_.size(), 1), now - phase_start_,
                 part_};
  if (!phases_.empty() && phases_[place_] != phase_) {
    state.progress.bytes_done = 0;
  }
  part_ = std::max(part_, part_of(state));
  std::string line = progress_line(state, terminal_columns());
  if (line != drawn_) {
    write_stderr(std::string(kClearLine) + line);
    drawn_ = std::move(line);
  }
}

// A resumed save first reads back what the killed save wrote. The bar does not move until the copy.
void ProgressBar::begin(Phase phase) {
  phase_ = phase;
  copied_ = copied_ || phase == Phase::kCopy;
  const auto start = phases_.begin() + static_cast<std::ptrdiff_t>(place_);
  const auto found = std::find(start, phases_.end(), phase);
  if (found != phases_.end() && (copied_ || phase != Phase::kVerify)) {
    place_ = static_cast<std::size_t>(found - phases_.begin());
  }
}

void ProgressBar::hide() {
  if (!drawn_.empty()) {
    write_stderr(kClearLine);
    drawn_.clear();
  }
}

}  // namespace onnx_external
