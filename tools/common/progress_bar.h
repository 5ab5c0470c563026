// Shows a progress bar as one line on stderr, if stderr is a terminal.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "onnx_external/progress.h"

namespace onnx_external {

enum class ShowProgress { kNo, kYes };

// The state of a bar at a point in time. Each phase has an equal share of the bar.
struct BarState {
  Progress progress;
  std::size_t phase = 0;                    // index of the current phase
  std::size_t phases = 1;                   // number of phases
  std::chrono::duration<double> time = {};  // since this phase began
  double least = 0;                         // largest share shown so far; the bar never moves back
};

// Returns the share of the total work that is done, from 0 to 1.
[[nodiscard]] double part_of(const BarState& state);

// Returns the text of the bar, which has fewer than `columns` characters. It contains the phase, a
// bar, the bytes of the phase, GB/s, and the remaining time of the total work. If there is not
// enough room, the least important items are omitted first.
[[nodiscard]] std::string progress_line(const BarState& state, std::size_t columns);

// Draws the bar during its lifetime, and clears the line when it is destroyed or hide() is called.
// The callback cancels the work once a signal has arrived, even if the bar is not drawn.
class ProgressBar {
 public:
  // The bar is drawn only if `show` is kYes and stderr is a terminal that can rewrite a line.
  // `phases` are the phases that take time, in order; the bar spans all of them. A phase that is
  // out of order or not in the list does not move the bar.
  explicit ProgressBar(ShowProgress show, std::vector<Phase> phases = {});
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Returns the function to pass as a progress callback. The bar must outlive it.
  [[nodiscard]] ProgressFn callback();

  void hide();

 private:
  void update(const Progress& progress);
  void begin(Phase phase);

  bool draws_ = false;
  std::vector<Phase> phases_;
  std::string drawn_;
  Phase phase_ = Phase::kCopy;
  std::size_t place_ = 0;  // index of the current phase in phases_
  double part_ = 0;        // the largest share shown so far
  bool copied_ = false;    // a copy has begun
  std::chrono::steady_clock::time_point phase_start_;
};

}  // namespace onnx_external
