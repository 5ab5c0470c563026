// Checks names and paths that come from files before any system call, and opens them without
// leaving their folder.
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

// Normalizes a location that a model states: "d/w" for "./d//w". Refuses a location that leads out
// of the folder (an absolute path, a component ".."), and one that is not a portable file name: a
// component that is not a plain name, a slash at the end. Accepts names with ".." inside and '#' at
// the start, because loaders read them. kInvalidArgument says which rule it breaks.
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
// plain_location(). Works like open_beneath() with two exceptions. A symbolic link in the cache of
// the Hugging Face Hub is followed (base/hub_link.h). A file may have several hard links if it
// belongs to the folder's owner and everybody who may read the folder may read the file: the link
// then discloses no private file of another folder. Stores in `is_hub_link` whether the file is a
// link of the cache. Names files that may be the missing one, and refuses a file that holds
// something else (base/foreign_format.h) or was not written to its end (kInvalidArgument).
[[nodiscard]] Result<std::shared_ptr<const SourceFile>> open_data_file(const Directory& folder,
                                                                       std::string_view location,
                                                                       bool* is_hub_link = nullptr);

}  // namespace onnx_external
