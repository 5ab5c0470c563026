#include "base/parallel.h"

#include <sched.h>

#include <algorithm>

namespace onnx_external {

int available_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) {
    return 1;
  }
  return std::max(1, CPU_COUNT(&set));
}

int thread_count(int requested) {
  return requested > 0 ? requested : available_threads();
}

}  // namespace onnx_external
