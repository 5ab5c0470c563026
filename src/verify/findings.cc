#include <string>
#include <string_view>

#include "base/text.h"
#include "onnx_external/verify.h"

namespace onnx_external {

std::string_view finding_code_name(FindingCode code) {
  switch (code) {
    case FindingCode::kBadEntry:
      return "bad-entry";
    case FindingCode::kBadLocation:
      return "bad-location";
    case FindingCode::kMissingFile:
      return "missing-file";
    case FindingCode::kBadFileKind:
      return "bad-file-kind";
    case FindingCode::kUnreadable:
      return "unreadable";
    case FindingCode::kOutOfRange:
      return "out-of-range";
    case FindingCode::kWrongLength:
      return "wrong-length";
    case FindingCode::kInlineAndExternal:
      return "inline-and-external";
    case FindingCode::kDuplicateName:
      return "duplicate-name";
    case FindingCode::kBytesDiffer:
      return "bytes-differ";
    case FindingCode::kCrcDiffers:
      return "crc-differs";
    case FindingCode::kChecksumDiffers:
      return "checksum-differs";
    case FindingCode::kTypeDiffers:
      return "type-differs";
    case FindingCode::kManifest:
      return "manifest";
    case FindingCode::kNotInCheckpoint:
      return "not-in-checkpoint";
    case FindingCode::kMissingTensor:
      return "missing-tensor";
    case FindingCode::kModelChanged:
      return "model-changed";
    case FindingCode::kOpenSlot:
      return "open-slot";
  }
  return "unknown";
}

std::string finding_text(const Finding& finding) {
  std::string text(finding_code_name(finding.code));
  text += finding.tensor.empty() ? "" : ": " + quote(finding.tensor);
  text += finding.file.empty() ? "" : ": " + quote(finding.file);
  return text + ": " + finding.message;
}

}  // namespace onnx_external
