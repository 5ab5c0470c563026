// Reads, from the code in a TorchScript archive, which attributes of its classes are parameters and
// which are buffers. Ignores everything else in the code.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/container/zip_archive.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Limits for the total size of the code that is read. The lists of names that are extracted from
// code need up to ten times as much memory.
inline constexpr std::uint64_t kMaxScriptCodeBytes = std::uint64_t{256} << 20;
inline constexpr std::uint64_t kMaxInflatedScriptCodeBytes = std::uint64_t{32} << 20;

struct ScriptClass {
  bool is_module = false;
  std::vector<std::string> parameters;
  std::vector<std::string> buffers;
  bool lists_buffers = false;  // false for code of torch before 1.6, which lists only parameters
};

// Finds classes by name. The file `code/__torch__/a/b.py` is read when a class of `__torch__.a.b`
// is first requested. For use by one thread at a time.
class ScriptClasses {
 public:
  // `zip` must outlive this object.
  explicit ScriptClasses(const ZipArchive& zip) : zip_(zip) {}

  [[nodiscard]] std::string archive() const { return zip_.name(); }

  // Returns a class, or nullptr if the archive has no code for it. Fails with kCorrupt for a
  // damaged record. Fails with kUnsupported for more than kMaxScriptCodeBytes of code, or more than
  // kMaxInflatedScriptCodeBytes of code in compressed records.
  [[nodiscard]] Result<const ScriptClass*> find(std::string_view module, std::string_view name);

 private:
  using Classes = std::map<std::string, ScriptClass, std::less<>>;  // by their names in the file
  const ZipArchive& zip_;
  std::map<std::string, Classes, std::less<>> files_;
  std::uint64_t bytes_left_ = kMaxScriptCodeBytes;
  std::uint64_t inflated_left_ = kMaxInflatedScriptCodeBytes;
};

}  // namespace onnx_external
