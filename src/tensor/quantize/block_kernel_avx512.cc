#define ONNX_EXTERNAL_LANES 16
#include "tensor/quantize/lane_kernel.h"

namespace onnx_external {

std::uint32_t quantize_blocks_avx512(const BlockJob& job) {
  return quantize_lanes(job);
}

}  // namespace onnx_external
