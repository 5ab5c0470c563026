#include "common/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "base/directory.h"
#include "base/file.h"
#include "base/output_file.h"
#include "base/try.h"

namespace onnx_external {
namespace {

// Returns 0 or errno.
int write_descriptor(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put < 0 && errno != EINTR) {
      return errno;
    }
    text.remove_prefix(put < 0 ? 0 : static_cast<std::size_t>(put));
  }
  return 0;
}

}  // namespace

Status write_stdout(std::string_view text) {
  if (const int error = write_descriptor(STDOUT_FILENO, text); error != 0) {
    return fail(errno_error(error, "stdout: cannot write"));
  }
  return {};
}

void write_stderr(std::string_view text) {
  (void)write_descriptor(STDERR_FILENO, text);
}

Status write_file(const std::filesystem::path& path, std::string_view text, Overwrite overwrite) {
  TRY_ASSIGN(const auto folder, Directory::open(path.parent_path()));
  const std::string name = path.filename().string();
  const std::string staged = fmt::format(".{}.{}.tmp", name, ::getpid());
  TRY_ASSIGN(auto file, OutputFile::create(folder, staged));
  Status status = file.write(0, std::as_bytes(std::span(text)));
  if (status) {
    status = file.close();
  }
  if (status) {
    status = rename_entry(folder, staged, folder, name,
                          overwrite == Overwrite::kAllow ? Replace::kYes : Replace::kNo);
  }
  if (!status) {
    (void)folder.remove_file(staged);
  }
  return status;
}

}  // namespace onnx_external
