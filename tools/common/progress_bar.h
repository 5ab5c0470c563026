// One line on stderr that says how far the work is; on a terminal only.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "onnx_external/progress.h"

namespace onnx_external {

enum class ShowProgress { kNo, kYes };

// A bar at one moment. Phases count alike: two of them fill half of the bar each.
struct BarState {
  Progress progress;
  std::size_t phase = 0;                    // of those that the work has, counted from 0
  std::size_t phases = 1;                   // how many it has
  std::chrono::duration<double> time = {};  // since this phase began
  double least = 0;                         // the part that was shown before: a bar never goes back
};

// The part of all work that is done, from 0 to 1.
[[nodiscard]] double part_of(const BarState& state);

// Its text, less than `columns` wide: phase, bar, bytes of the phase, GB/s, time left for all. What
// has no room is left out, the least important first.
[[nodiscard]] std::string progress_line(const BarState& state, std::size_t columns);

// Draws while it lives, and clears the line when it is destroyed or hide() is called. Its callback
// cancels once a signal asked to stop, whether or not anything is drawn.
class ProgressBar {
 public:
  // Draws nothing unless `show` says so and stderr is a terminal that can go back on a line.
  // `phases`: those that take time, in order; the bar spans all of them. One that comes out of its
  // order, or is not in the list, does not move it.
  explicit ProgressBar(ShowProgress show, std::vector<Phase> phases = {});
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // The bar must outlive the function.
  [[nodiscard]] ProgressFn callback();

  void hide();

 private:
  void update(const Progress& progress);
  void begin(Phase phase);

  bool draws_ = false;
  std::vector<Phase> phases_;
  std::string drawn_;
  Phase phase_ = Phase::kCopy;
  std::size_t place_ = 0;  // of the phase in phases_
  double part_ = 0;        // the largest that was shown
  bool copied_ = false;    // a copy has begun
  std::chrono::steady_clock::time_point phase_start_;
};

}  // namespace onnx_external
