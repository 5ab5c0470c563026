// Shows a progress bar: one line on stderr, drawn only if stderr is a terminal.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "onnx_external/progress.h"

namespace onnx_external {

enum class ShowProgress { kNo, kYes };

// The state of a bar at one moment. Each phase has an equal share of the bar.
struct BarState {
  Progress progress;
  std::size_t phase = 0;                    // index of the current phase
  std::size_t phases = 1;                   // number of phases
  std::chrono::duration<double> time = {};  // since this phase began
  double least = 0;                         // the share shown before; the bar never moves back
};

// Returns the share of the whole work that is done, from 0 to 1.
[[nodiscard]] double part_of(const BarState& state);

// Returns the text of the bar, less than `columns` wide: phase, bar, bytes of the phase, GB/s, and
// remaining time of the whole work. Items that do not fit are omitted, the least important first.
[[nodiscard]] std::string progress_line(const BarState& state, std::size_t columns);

// Draws the bar during its lifetime, and clears the line when it is destroyed or hide() is called.
// Its callback cancels the work once a signal has arrived, even if nothing is drawn.
class ProgressBar {
 public:
  // Draws only if `show` is kYes and stderr is a terminal that can rewrite a line. `phases`: the
  // phases that take time, in order; the bar spans all of them. A phase that is out of order or not
  // in the list does not move the bar.
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
  std::size_t place_ = 0;  // index of the current phase in phases_
  double part_ = 0;        // the largest share shown so far
  bool copied_ = false;    // a copy has begun
  std::chrono::steady_clock::time_point phase_start_;
};

}  // namespace onnx_external
