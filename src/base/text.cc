#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace onnx_external {
namespace {

constexpr std::size_t kHexDigits = 8;  // for 32 bits

// Length of the well-formed UTF-8 sequence at the start of `text`; 0 if there is none.
// Table 3-7 of the Unicode standard: lead byte, then the allowed range of the second byte.
std::size_t utf8_sequence(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) {
    return 1;
  }
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) {
    return 0;
  }
  const unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) {
    return 0;
  }
  for (std::size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) {
      return 0;
    }
  }
  return length;
}

// C1 control characters (U+0080 to U+009F) are two bytes, C2 80 to C2 9F; terminals obey them.
bool is_c1_control(std::string_view sequence) {
  return sequence.size() == 2 && sequence[0] == '\xC2' &&
         static_cast<unsigned char>(sequence[1]) < 0xA0;
}

// A column is at most this wide: a longer name shifts its own row only.
constexpr std::size_t kMaxColumn = 64;

// The number of code points, which is the width in columns for all but a few scripts.
std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

}  // namespace

std::string quote(std::string_view name) {
  std::string out = "'";
  for (std::size_t i = 0; i < name.size();) {
    if (out.size() > kMaxQuotedBytes) {
      out += "...";
      break;
    }
    const std::size_t length = utf8_sequence(name.substr(i));
    const auto byte = static_cast<unsigned char>(name[i]);
    if (length == 0 ||
        (length == 1 && (byte < 0x20 || byte == 0x7F || byte == '\'' || byte == '\\'))) {
      append_hex(out += "\\x", byte);
      ++i;
    } else if (is_c1_control(name.substr(i, length))) {
      append_hex(out += "\\x", byte);
      append_hex(out += "\\x", static_cast<unsigned char>(name[i + 1]));
      i += 2;
    } else {
      out += name.substr(i, length);
      i += length;
    }
  }
  out += '\'';
  return out;
}

std::string quote_list(std::span<const std::string> names, std::size_t most) {
  std::string out;
  for (std::size_t i = 0; i < names.size() && i < most; ++i) {
    out += (i == 0 ? "" : ", ") + quote(names[i]);
  }
  if (names.size() > most) {
    out += " and " + std::to_string(names.size() - most) + " more";
  }
  return out;
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_sequence(text.substr(i));
    if (length == 0) {
      return false;
    }
    i += length;
  }
  return true;
}

void append_hex(std::string& out, unsigned char byte) {
  static constexpr char kDigits[] = "0123456789abcdef";
  out += kDigits[byte >> 4U];
  out += kDigits[byte & 0xFU];
}

std::string hex_text(std::uint32_t number) {
  return fmt::format("{:08x}", number);
}

std::optional<std::uint32_t> hex_number(std::string_view digits) {
  std::uint32_t number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, number, 16);
  return digits.size() == kHexDigits && error == std::errc() && stop == end ? std::optional(number)
                                                                            : std::nullopt;
}

std::string ascii_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') {
      c = static_cast<char>(c - 'A' + 'a');
    }
  }
  return out;
}

std::string shown(std::string_view name) {
  const std::string quoted = quote(name);
  return quoted.substr(1, quoted.size() - 2);
}

bool is_harmless(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_c1 =
        byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (byte < 0x20 || byte == 0x7f || is_c1) {
      return false;
    }
  }
  return is_utf8(text);
}

std::string calm(const std::string& words) {
  return is_harmless(words) ? words : shown(words);
}

bool matches_pattern(std::string_view name, std::string_view pattern) {
  std::size_t n = 0;
  std::size_t p = 0;
  std::size_t star = std::string_view::npos;  // the last * that was met
  std::size_t after = 0;                      // where the name goes on if that * takes one more
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++n;
      ++p;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++after;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

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
