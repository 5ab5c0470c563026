#include "onnx_external/result.h"

namespace onnx_external {

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid-argument";
    case ErrorCode::kNotFound:
      return "not-found";
    case ErrorCode::kAlreadyExists:
      return "already-exists";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kMismatch:
      return "mismatch";
    case ErrorCode::kAmbiguous:
      return "ambiguous";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kBusy:
      return "busy";
    case ErrorCode::kCancelled:
      return "cancelled";
  }
  return "";
}

}  // namespace onnx_external
