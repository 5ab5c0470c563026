#include "base/similar_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/text.h"

namespace onnx_external {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t kMaxListedNames = 1000;
constexpr std::size_t kMostSimilar = 3;

// Suffixes that programs append to the name of a file that they are still downloading.
constexpr std::array kUnfinishedEnds = {".incomplete"sv, ".crdownload"sv, ".part"sv, ".partial"sv,
                                        ".download"sv,   ".opdownload"sv, ".tmp"sv,  ".aria2"sv};
constexpr std::array kDataEnds = {".data"sv, "_data"sv, ".bin"sv, ".weights"sv};

bool ends_with_any(std::string_view name, const auto& ends) {
  return std::any_of(ends.begin(), ends.end(),
                     [&](std::string_view end) { return name.ends_with(end); });
}

// --- names as people compare them --------------------------------------------------------------

std::string without_percents(std::string_view name) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  std::string out;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool coded =
        name[i] == '%' && i + 2 < name.size() && digit(name[i + 1]) >= 0 && digit(name[i + 2]) >= 0;
    out += coded ? static_cast<char>(digit(name[i + 1]) * 16 + digit(name[i + 2])) : name[i];
    i += coded ? 2 : 0;
  }
  return out;
}

// The letters of U+00C0 to U+017F without their accents; '*' stands for one that has none.
constexpr std::string_view kBaseLetters =
    "aaaaaa*ceeeeiiii*nooooo**uuuuy**aaaaaa*ceeeeiiii*nooooo**uuuuy*y"
    "aaaaaaccccccccdd**eeeeeeeeeegggggggghh**iiiiiiiii***jjkk*llllll*"
    "***nnnnnn***oooooo**rrrrrrsssssssstttt**uuuuuuuuuuuuwwyyyzzzzzz*";
constexpr unsigned kFirstLetter = 0xC0;

// Accents that follow their letter: U+0300 to U+036F. Other characters of two bytes and their
// letters without accents have one form each.
void append_folded(unsigned code, std::string_view bytes, std::string& out) {
  if (code >= 0x300 && code <= 0x36F) {
    return;
  }
  const bool has_base = code >= kFirstLetter && code - kFirstLetter < kBaseLetters.size() &&
                        kBaseLetters[code - kFirstLetter] != '*';
  if (has_base) {
    out += kBaseLetters[code - kFirstLetter];
  } else {
    out += bytes;
  }
}

// Returns the name without case, accents, percent codes and separators.
std::string folded(std::string_view name) {
  const std::string plain = ascii_lower(without_percents(name));
  std::string out;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const auto first = static_cast<unsigned char>(plain[i]);
    const bool is_pair = (first & 0xE0U) == 0xC0U && i + 1 < plain.size();
    if (is_pair) {
      const auto second = static_cast<unsigned char>(plain[i + 1]);
      append_folded((first & 0x1FU) << 6U | (second & 0x3FU), std::string_view(plain).substr(i, 2),
                    out);
      ++i;
    } else if ("._- +"sv.find(plain[i]) == std::string_view::npos) {
      out += plain[i];
    }
  }
  return out;
}

// --- the files that are there -----------------------------------------------------------------

std::vector<std::string> names_in(int folder) {
  std::vector<std::string> names;
  UniqueFd fd(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(fd ? ::fdopendir(fd.get()) : nullptr,
                                                   ::closedir);
  if (!stream) {
    return names;
  }
  (void)fd.release();  // the stream closes it
  // NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is this function's own
  for (const dirent* entry = nullptr; (entry = ::readdir(stream.get())) != nullptr;) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == ".." || entry->d_type == DT_DIR) {
      continue;
    }
    if (names.size() == kMaxListedNames) {
      break;
    }
    names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The most similar names first.
enum class Likeness { kSame, kUnfinished, kSameEnding, kData };

// Nullopt if the names have nothing in common.
std::optional<Likeness> likeness(std::string_view wanted, std::string_view other) {
  const std::string key = folded(wanted);
  const std::string other_key = folded(other);
  if (key == other_key) {
    return Likeness::kSame;
  }
  if (other_key.starts_with(key) && ends_with_any(other, kUnfinishedEnds)) {
    return Likeness::kUnfinished;
  }
  // The file of one tensor is not that of another.
  if (!ends_with_any(ascii_lower(wanted), kDataEnds) ||
      !ends_with_any(ascii_lower(other), kDataEnds)) {
    return std::nullopt;
  }
  const std::string ending = folded(wanted.substr(std::min(wanted.find('.'), wanted.size())));
  return other_key.ends_with(ending) ? Likeness::kSameEnding : Likeness::kData;
}

}  // namespace

std::string similar_files_text(int folder, std::string_view name) {
  std::vector<std::string> names = names_in(folder);
  std::erase_if(names, [&](const std::string& other) {
    return other == name || other.ends_with(".onnx") || other.ends_with(".json");
  });
  std::array<std::vector<std::string>, 4> found;
  for (const std::string& other : names) {
    if (const auto like = likeness(name, other)) {
      found[static_cast<std::size_t>(*like)].push_back(other);
    }
  }
  const auto first =
      std::find_if(found.begin(), found.end(), [](const auto& likes) { return !likes.empty(); });
  if (first == found.end()) {
    return "";
  }
  const auto like = static_cast<Likeness>(first - found.begin());
  const std::string there = "; the folder contains " + quote_list(*first, kMostSimilar);
  if (like == Likeness::kUnfinished) {
    return there + ", which is an incomplete download: download the file again";
  }
  return there +
         (like == Likeness::kSame ? ": rename it to " : "; if it is this file, rename it to ") +
         quote(name);
}

}  // namespace onnx_external
