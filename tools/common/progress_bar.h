// One line on stderr that says how far the work is; on a terminal only.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "onnx_external/progress.h"

namespace onnx_external {

enum class ShowProgress { kNo, kYes };

// The text of a bar at one moment, at most `columns` wide: phase, bar, bytes, GB/s, time left.
[[nodiscard]] std::string progress_line(const Progress& progress,
                                        std::chrono::duration<double> time, std::size_t columns);

// Draws while it lives, and clears the line when it is destroyed or hide() is called. Its callback
// cancels once a signal asked to stop, whether or not anything is drawn.
class ProgressBar {
 public:
  // Draws nothing unless `show` says so and stderr is a terminal that can go back on a line.
  explicit ProgressBar(ShowProgress show);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // The bar must outlive the function.
  [[nodiscard]] ProgressFn callback();

  void hide();

 private:
  void update(const Progress& progress);

  bool draws_ = false;
  std::string drawn_;
  Phase phase_ = Phase::kCopy;
  std::chrono::steady_clock::time_point phase_start_;
};

}  // namespace onnx_external
