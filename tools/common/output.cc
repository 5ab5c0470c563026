#include "common/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/directory.h"
#include "base/file.h"
#include "base/output_file.h"
#include "base/text.h"

namespace onnx_external {
namespace {

// 0, or errno.
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

// Code points, which is columns for all but a few scripts.
std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
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
  auto folder = Directory::open(path.parent_path());
  if (!folder) {
    return fail(std::move(folder).error());
  }
  const std::string name = path.filename().string();
  const std::string staged = fmt::format(".{}.{}.tmp", name, ::getpid());
  auto file = OutputFile::create(*folder, staged);
  if (!file) {
    return fail(std::move(file).error());
  }
  Status status = file->write(0, std::as_bytes(std::span(text)));
  if (status) {
    status = file->close();
  }
  if (status) {
    status = rename_entry(*folder, staged, *folder, name,
                          overwrite == Overwrite::kAllow ? Replace::kYes : Replace::kNo);
  }
  if (!status) {
    (void)folder->remove_file(staged);
  }
  return status;
}

std::string size_text(std::uint64_t bytes) {
  static constexpr std::array<std::string_view, 6> kUnits{"kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) {
    return count_text(bytes, "byte");
  }
  auto value = static_cast<double>(bytes) / 1000;
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, digits, kUnits[unit]);
}

std::string count_text(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string shown(std::string_view name) {
  const std::string quoted = quote(name);
  return quoted.substr(1, quoted.size() - 2);
}

// One long name shifts its own row, not all rows.
constexpr std::size_t kMaxColumn = 64;

std::string table_text(const std::vector<std::vector<std::string>>& rows,
                       const std::vector<std::size_t>& right) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], std::min(columns(row[i]), kMaxColumn));
    }
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - std::min(columns(row[i]), widths[i]), ' ');
      const bool to_right = std::find(right.begin(), right.end(), i) != right.end();
      line += (i == 0 ? "" : "  ") + (to_right ? padding + row[i] : row[i] + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace onnx_external
