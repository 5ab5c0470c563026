#include "common/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "common/command.h"
#include "common/output.h"

namespace onnx_external {
namespace {

constexpr std::size_t kBarCells = 24;
constexpr std::size_t kDefaultColumns = 80;
// Before this the rate is noise.
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
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col
                                                                           : kDefaultColumns;
}

bool can_draw() {
  const char* terminal = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && terminal != nullptr &&
         std::string_view(terminal) != "dumb";
}

}  // namespace

std::string progress_line(const Progress& progress, std::chrono::duration<double> time,
                          std::size_t columns) {
  std::string line = fmt::format("{:<9}", phase_text(progress.phase));
  if (progress.bytes_total > 0) {
    const double part = std::min(
        1.0, static_cast<double>(progress.bytes_done) / static_cast<double>(progress.bytes_total));
    const auto full = static_cast<std::size_t>(part * static_cast<double>(kBarCells));
    line += fmt::format(" [{}{}] {:3.0f}%  {} of {}", std::string(full, '#'),
                        std::string(kBarCells - full, '-'), part * 100,
                        size_text(progress.bytes_done), size_text(progress.bytes_total));
    if (time.count() >= kSettledSeconds && progress.bytes_done > 0) {
      const double rate = static_cast<double>(progress.bytes_done) / time.count();
      const auto left = static_cast<double>(progress.bytes_total -
                                            std::min(progress.bytes_total, progress.bytes_done));
      line += fmt::format("  {:.2f} GB/s  {} left", rate / 1e9, time_text(left / rate));
    }
  }
  // A line that wraps could not be cleared.
  return line.substr(0, columns > 0 ? columns - 1 : 0);
}

ProgressBar::ProgressBar(ShowProgress show)
    : draws_(show == ShowProgress::kYes && can_draw()),
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
    phase_ = progress.phase;
    phase_start_ = now;
  }
  std::string line = progress_line(progress, now - phase_start_, terminal_columns());
  if (line != drawn_) {
    write_stderr(std::string(kClearLine) + line);
    drawn_ = std::move(line);
  }
}

void ProgressBar::hide() {
  if (!drawn_.empty()) {
    write_stderr(kClearLine);
    drawn_.clear();
  }
}

}  // namespace onnx_external
