// Checks names and paths that come from files before they are used in a system call, and opens
// files without leaving a given folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/directory.h"
#include "base/file.h"
#include "onnx_external/result.h"

namespace onnx_external {

// Decides whether open_data_file() checks the contents of the file. In a file that was just saved,
// a search for unwritten ranges makes Linux examine every page. Code that opens a file once for
// each of its tensors should therefore check it only once.
enum class DataCheck : std::uint8_t { kContents, kNone };

// Accepts a plain file name, which has 1 to 255 bytes, is not "." or "..", and contains no '/',
// '\\', NUL or control character. Otherwise fails with kInvalidArgument and says which rule is
// violated.
[[nodiscard]] Status check_plain_name(std::string_view name);

// Accepts a POSIX path that stays inside its folder. The path must be relative and have at most
// 4096 bytes. Each component must be a plain name of at most 255 bytes. There must be no ".."
// anywhere (onnx rejects even "w..bin"), and no '#' at the start. Otherwise fails with
// kInvalidArgument and says which rule is violated.
[[nodiscard]] Status check_relative_location(std::string_view location);

// Normalizes a location that a model states: "./d//w" becomes "d/w". Fails with kInvalidArgument
// for a location that leads out of the folder (an absolute path, or a component "..") or is not a
// portable file name (a component that is not a plain name, or a slash at the end); the message
// says which rule is violated. Accepts names that contain ".." or start with '#', because loaders
// accept them.
[[nodiscard]] Result<std::string> plain_location(std::string_view location);

// Opens folder/location for reading. No component of `location` may be a symbolic link; the file
// must be regular and have one link. Checks the location first. Errors: kInvalidArgument for a bad
// location or kind of file; kNotFound; kIo.
[[nodiscard]] Result<std::shared_ptr<const SourceFile>> open_beneath(
    const std::filesystem::path& folder, std::string_view location);

// Works like the function above, but in a folder that is already open, which saves two system calls
// per file.
[[nodiscard]] Result<std::shared_ptr<const SourceFile>> open_beneath(const Directory& folder,
                                                                     std::string_view location);

// Opens folder/location for reading the data of a model; `location` must satisfy plain_location().
// Works like open_beneath(), with two exceptions. A symbolic link in the cache of the Hugging Face
// Hub is followed (base/hub_link.h). A file may have several hard links if it belongs to the
// folder's owner and all users who may read the folder may read the file, because such a link
// cannot disclose a private file in another folder. Stores in `is_hub_link` whether the file is a
// link in the Hub's cache. If the file is missing, the error suggests files with similar names. A
// file with other contents (base/foreign_format.h) or an incompletely written file is an error
// (kInvalidArgument), unless `check` is kNone.
[[nodiscard]] Result<std::shared_ptr<const SourceFile>> open_data_file(
    const Directory& folder, std::string_view location, bool* is_hub_link = nullptr,
    DataCheck check = DataCheck::kContents);

}  // namespace onnx_external
