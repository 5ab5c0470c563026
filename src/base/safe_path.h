// Names and paths that come from files: checked before any system call, and opened without leaving
// their folder.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/directory.h"
#include "base/file.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Accepts a single plain file name: not empty, no '/', '\\', NUL or control character, not "." or
// "..", at most 255 bytes. kInvalidArgument says which rule it breaks.
[[nodiscard]] Status check_plain_name(std::string_view name);

// Accepts a POSIX path that stays inside its folder: relative, each component a plain name, no ".."
// anywhere (onnx refuses "w..bin" too), not starting with '#', no component over 255 bytes, at most
// 4096 bytes. kInvalidArgument says which rule it breaks.
[[nodiscard]] Status check_relative_location(std::string_view location);

// A location that a model states, in its plainest form: "d/w" for "./d//w". Refuses what leads out
// of the folder (an absolute path, a component ".."), or is no name of a file everywhere: a
// component that is no plain name, a slash at the end. Takes names with ".." inside and '#' at the
// start, which loaders read. kInvalidArgument says which rule it breaks.
[[nodiscard]] Result<std::string> plain_location(std::string_view location);

// Opens folder/location for reading. No component of `location` may be a symbolic link; the file
// must be regular and have one link. Checks the location first.
// kInvalidArgument: bad location or kind of file; kNotFound; kIo.
[[nodiscard]] Result<std::shared_ptr<const SourceFile>> open_beneath(
    const std::filesystem::path& folder, std::string_view location);

// Does the same in a folder that is already open, which saves two system calls per file.
[[nodiscard]] Result<std::shared_ptr<const SourceFile>> open_beneath(const Directory& folder,
                                                                     std::string_view location);

// Opens folder/location for reading the data of a model, where `location` is one for
// plain_location(). As open_beneath(), except that a symbolic link is followed in the cache of the
// Hugging Face Hub (base/hub_link.h), and that a file may have several hard links if it belongs to
// the folder's owner and whoever may read the folder may read it: then its name there gives nobody
// a private file of elsewhere. Stores whether the file is such a link of the cache.
[[nodiscard]] Result<std::shared_ptr<const SourceFile>> open_data_file(const Directory& folder,
                                                                       std::string_view location,
                                                                       bool* is_hub_link = nullptr);

}  // namespace onnx_external
