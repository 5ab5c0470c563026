// Reads all bytes of a tensor whose data is inside a model.
#pragma once

#include <algorithm>
#include <string>

#include "base/read_step.h"
#include "base/try.h"
#include "onnx/inline_data.h"

namespace onnx_external {

// The buffer grows as data is read, because the dims may claim more bytes than the file has.
inline Result<std::string> inline_bytes(const onnx::TensorProto& tensor, const CutTensors& cuts) {
  TRY_ASSIGN(auto reader, InlineReader::open(tensor, cuts));
  std::string bytes;
  while (bytes.size() < reader.nbytes()) {
    const std::size_t before = bytes.size();
    bytes.resize(before +
                 static_cast<std::size_t>(std::min(kReadStepBytes, reader.nbytes() - before)));
    TRY(reader.read(std::as_writable_bytes(std::span(bytes)).subspan(before)));
  }
  return bytes;
}

}  // namespace onnx_external
