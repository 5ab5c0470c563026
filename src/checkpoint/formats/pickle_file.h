// Files written by pickle.dump without torch.save, in which storages are byte strings.
#pragma once

#include <memory>

#include "base/file.h"
#include "checkpoint/storage/file_contents.h"
#include "onnx_external/checkpoint.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Format "pickle". Storages are plain ranges of the file if the pickle holds their bytes as they
// are (protocols 3 to 5), and computed if it spells them as text. Bytes after the pickle are
// ignored. kCorrupt, kUnsupported.
[[nodiscard]] Result<FileContents> read_pickle_file(std::shared_ptr<const SourceFile> file,
                                                    const OpenOptions& options);

}  // namespace onnx_external
