#include "checkpoint/pickle/pickle_text.h"

#include <bit>
#include <cstdint>
#include <limits>

namespace onnx_external {
namespace {

void put_utf8(std::string& out, std::uint32_t code) {
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out.push_back(static_cast<char>(0xc0 | (code >> 6)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else if (code < 0x10000) {
    out.push_back(static_cast<char>(0xe0 | (code >> 12)));
    out.push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3f)));
  } else {
    out.push_back(static_cast<char>(0xf0 | ((code >> 18) & 0x07)));
    out.push_back(static_cast<char>(0x80 | ((code >> 12) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | ((code >> 6) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3f)));
  }
}

}  // namespace

std::int64_t float_bits(std::string_view text) {
  return std::bit_cast<std::int64_t>(
      parse_number<double>(text).value_or(std::numeric_limits<double>::quiet_NaN()));
}

std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out.push_back(text[i]);
      continue;
    }
    const char next = text[++i];
    const auto hex = next == 'x' ? parse_number<std::uint32_t>(text.substr(i + 1, 2), 16)
                                 : std::optional<std::uint32_t>();
    if (hex && i + 2 < text.size()) {
      out.push_back(static_cast<char>(*hex));
      i += 2;
    } else if (next == 'n' || next == 't' || next == 'r') {
      out.push_back(next == 'n' ? '\n' : next == 't' ? '\t' : '\r');
    } else if (next == '\\' || next == '\'' || next == '"') {
      out.push_back(next);
    } else {
      out.push_back('\\');
      out.push_back(next);
    }
  }
  return out;
}

std::string unescape_unicode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char kind = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
    const std::size_t digits = kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    if (digits != 0 && text.size() - i - 2 >= digits) {
      if (const auto code = parse_number<std::uint32_t>(text.substr(i + 2, digits), 16)) {
        put_utf8(out, *code);
        i += 1 + digits;
        continue;
      }
    }
    put_utf8(out, static_cast<unsigned char>(text[i]));
  }
  return out;
}

std::optional<std::string> latin1_bytes(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      out.push_back(text[i]);
      continue;
    }
    const bool pair = (byte == 0xc2 || byte == 0xc3) && i + 1 < text.size() &&
                      (static_cast<unsigned char>(text[i + 1]) & 0xc0) == 0x80;
    if (!pair) {
      return std::nullopt;
    }
    out.push_back(
        static_cast<char>(((byte & 0x03) << 6) | (static_cast<unsigned char>(text[++i]) & 0x3f)));
  }
  return out;
}

}  // namespace onnx_external
