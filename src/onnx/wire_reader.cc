#include "onnx/wire_reader.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/size_text.h"

namespace onnx_external {
namespace {

// The first window after a jump is small, because there are only about a hundred bytes between two
// tensors. If reading continues, it doubles.
constexpr std::size_t kFirstWindow = std::size_t{4} << 10;
constexpr std::size_t kMaxWindow = std::size_t{256} << 10;

constexpr std::uint64_t kMaxTag = 0xFFFFFFFF;

}  // namespace

tl::unexpected<Error> message_too_large(std::uint64_t bytes) {
  return fail(ErrorCode::kUnsupported,
              "the model would take " + size_text(bytes) + ", but protobuf cannot read more than " +
                  size_text(kMaxMessageBytes) + "; leave its weights in separate files");
}

std::size_t varint_bytes(std::uint64_t value) {
  std::size_t count = 1;
  for (; value > 0x7F; value >>= 7U) {
    ++count;
  }
  return count;
}

void append_varint(std::string& out, std::uint64_t value) {
  for (; value > 0x7F; value >>= 7U) {
    out += static_cast<char>((value & 0x7FU) | 0x80U);
  }
  out += static_cast<char>(value);
}

void append_length_header(std::string& out, std::uint32_t field, std::uint64_t bytes) {
  append_varint(out, (std::uint64_t{field} << 3U) | static_cast<unsigned>(WireType::kLength));
  append_varint(out, bytes);
}

Status WireInput::read(std::uint64_t offset, std::span<std::byte> out) const {
  if (file_ != nullptr) {
    return file_->read(offset, out);
  }
  if (!out.empty()) {
    std::memcpy(out.data(), text_.data() + offset, out.size());
  }
  return {};
}

void WireReader::enter(std::uint64_t position, std::uint64_t end) {
  position_ = position;
  end_ = end;
}

bool WireReader::stop(ErrorCode code, std::string_view what) {
  if (status_) {
    status_ = fail(code, "byte " + std::to_string(position_) + ": " + std::string(what));
  }
  return false;
}

bool WireReader::fill() {
  if (!status_) {
    return false;
  }
  if (position_ >= end_) {
    return stop(ErrorCode::kCorrupt, "the message ends inside a field");
  }
  const bool goes_on = window_ != nullptr && position_ == window_at_ + window_bytes_;
  step_ = goes_on ? std::min(step_ * 2, kMaxWindow) : kFirstWindow;
  const std::uint64_t left = input_.size() - position_;
  const auto window =
      buffer_.first(step_).first(static_cast<std::size_t>(std::min<std::uint64_t>(left, step_)));
  if (Status read = input_.read(position_, window); !read) {
    status_ = std::move(read);
    return false;
  }
  window_ = window.data();
  window_at_ = position_;
  window_bytes_ = window.size();
  return true;
}

bool WireReader::varint(std::uint64_t& value) {
  value = 0;
  for (int i = 0; i < kMaxVarintBytes; ++i) {
    const bool in_window =
        position_ < end_ && position_ >= window_at_ && position_ - window_at_ < window_bytes_;
    if (!in_window && !fill()) {
      return false;
    }
    const auto byte = std::to_integer<std::uint64_t>(window_[position_ - window_at_]);
    ++position_;
    value |= (byte & 0x7FU) << (7U * static_cast<unsigned>(i));
    if (byte < 0x80) {
      return status_.has_value();
    }
  }
  return stop(ErrorCode::kCorrupt, "a number of more than 10 bytes");
}

bool WireReader::tag(WireTag& tag) {
  std::uint64_t value = 0;
  if (!varint(value)) {
    return false;
  }
  if (value > kMaxTag || (value >> 3U) == 0 || (value & 7U) > 5) {
    return stop(ErrorCode::kCorrupt, "not the tag of a field");
  }
  tag.field = static_cast<std::uint32_t>(value >> 3U);
  tag.type = static_cast<WireType>(value & 7U);
  return true;
}

bool WireReader::length(std::uint64_t& bytes) {
  if (!varint(bytes)) {
    return false;
  }
  if (bytes > end_ - position_) {
    return stop(ErrorCode::kCorrupt, "a field of " + std::to_string(bytes) + " bytes, but only " +
                                         std::to_string(end_ - position_) + " are left");
  }
  return true;
}

bool WireReader::skip(std::uint64_t bytes) {
  if (bytes > end_ - position_) {
    return stop(ErrorCode::kCorrupt, "the message ends inside a field");
  }
  position_ += bytes;
  return true;
}

bool WireReader::skip_value(WireTag tag, int depth) {
  std::uint64_t number = 0;
  switch (tag.type) {
    case WireType::kVarint:
      return varint(number);
    case WireType::kFixed64:
      return skip(8);
    case WireType::kFixed32:
      return skip(4);
    case WireType::kLength:
      return length(number) && skip(number);
    case WireType::kEndGroup:
      return stop(ErrorCode::kCorrupt, "the end of a group that has no start");
    case WireType::kStartGroup:
      break;
  }
  if (depth >= kMaxMessageDepth) {
    return stop(ErrorCode::kUnsupported, "groups are nested too deeply");
  }
  for (WireTag inner; this->tag(inner);) {
    if (inner.type == WireType::kEndGroup) {
      return inner.field == tag.field ||
             stop(ErrorCode::kCorrupt, "the end of a group that has no start");
    }
    if (!skip_value(inner, depth + 1)) {
      return false;
    }
  }
  return false;
}

bool WireReader::bytes(std::span<std::byte> out) {
  while (!out.empty()) {
    if (out.size() > end_ - position_) {
      return stop(ErrorCode::kCorrupt, "the message ends inside a field");
    }
    const bool in_window = position_ >= window_at_ && position_ - window_at_ < window_bytes_;
    if (!in_window && !fill()) {
      return false;
    }
    const auto at = static_cast<std::size_t>(position_ - window_at_);
    const std::size_t count = std::min(out.size(), window_bytes_ - at);
    std::memcpy(out.data(), window_ + at, count);
    position_ += count;
    out = out.subspan(count);
  }
  return status_.has_value();
}

}  // namespace onnx_external
