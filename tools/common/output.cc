#include "common/output.h"

#include <unistd.h>

#include <cerrno>

#include "base/output_file.h"

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
  return write_whole_file(path, text,
                          overwrite == Overwrite::kAllow ? Replace::kYes : Replace::kNo);
}

}  // namespace onnx_external
