// Checks names and paths that come from files before any system call, and opens them without
// leaving their folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/directory.h"
#include "base/file.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Whether open_data_file() checks the contents of the file. To search for unwritten ranges in a
// file that was just saved, Linux looks at every page of it, so a file that is opened for each of
// its tensors should be searched once.
enum class DataCheck : std::uint8_t { kContents, kNone };

// Accepts a single plain file name: not empty, no '/', '\\', NUL or control character, not "." or
// "..", at most 255 bytes. Otherwise fails with kInvalidArgument and says which rule is broken.
[[nodiscard]] Status check_plain_name(std::string_view name);

// Accepts a POSIX path that stays inside its folder: relative, each component a plain name, no ".."
// anywhere (onnx rejects even "w..bin"), no '#' at the start, no component over 255 bytes, at most
// 4096 bytes. Otherwise fails with kInvalidArgument and says which rule is broken.
[[nodiscard]] Status check_relative_location(std::string_view location);

// Normalizes a location that a model states: "./d//w" becomes "d/w". Rejects a location that leads
// out of the folder (an absolute path, a component "..") or is not a portable file name (a
// component that is not a plain name, a slash at the end). Accepts names that contain ".." or start
// with '#', because loaders read them. An error is kInvalidArgument and says which rule is broken.
[[nodiscard]] Result<std::string> plain_location(std::string_view location);

// Opens folder/location for reading. No component of `location` may be a symbolic link; the file
// must be regular and have one link. Checks the location first. Errors: kInvalidArgument for a bad
// location or kind of file; kNotFound; kIo.
[[nodiscard]] Result<std::shared_ptr<const SourceFile>> open_beneath(
    const std::filesystem::path& folder, std::string_view location);

// Does the same in a folder that is already open, which saves two system calls per file.
[[nodiscard]] Result<std::shared_ptr<const SourceFile>> open_beneath(const Directory& folder,
                                                                     std::string_view location);

// Opens folder/location for reading the data of a model; `location` must satisfy plain_location().
// Works like open_beneath(), with two exceptions. A symbolic link in the cache of the Hugging Face
// Hub is followed (base/hub_link.h). A file may have several hard links if it belongs to the
// folder's owner and everybody who may read the folder may read the file: the hard link then cannot
// disclose a private file in another folder. Stores in `is_hub_link` whether the file is a link in
// the Hub's cache. If the file is missing, the error names files that may be it. A file with other
// contents (base/foreign_format.h) or an incompletely written file is an error (kInvalidArgument),
// unless `check` is kNone.
[[nodiscard]] Result<std::shared_ptr<const SourceFile>> open_data_file(
    const Directory& folder, std::string_view location, bool* is_hub_link = nullptr,
    DataCheck check = DataCheck::kContents);

}  // namespace onnx_external
