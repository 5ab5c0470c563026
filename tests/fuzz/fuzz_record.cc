// Any lines as the record of a save that was killed, each with the check sum that it needs.
#include <algorithm>
#include <cstdlib>

#include "base/digest.h"
#include "base/text.h"
#include "fuzz/seeds.h"
#include "save/record.h"
#include "support/temp_dir.h"

namespace {

using namespace onnx_external;

// What a record says, written again, says the same.
void write_again(const SaveRecord& record, const WrittenRanges& written) {
  static const TempDir folder;
  static const auto staging = Directory::open(folder.path());
  auto writer = RecordWriter::start(*staging, record.job, written);
  const bool is_written =
      writer && (!record.publication || writer->publish(*record.publication, Sync::kNone));
  const auto again = read_record(*staging);
  if (!is_written || !again || !*again || (*again)->job != record.job ||
      (*again)->written(kRecordedParts) != written || (*again)->publication != record.publication) {
    std::abort();
  }
}

std::string with_checks(std::string_view text) {
  std::string record;
  while (!text.empty()) {
    const std::string_view members = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(members.size() + 1, text.size()));
    Crc32 crc;
    crc.update(std::as_bytes(std::span(members)));
    record.append(members).append(", \"check\": \"").append(hex_text(crc.value())).append("\"}\n");
  }
  return record;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const TempDir folder;
  static const auto staging = Directory::open(folder.path());
  static const auto file = OutputFile::create(*staging, std::string(kRecordName));
  const std::string text = with_checks({reinterpret_cast<const char*>(data), size});
  if (!file || ::ftruncate(file->fd(), static_cast<off_t>(text.size())) != 0 ||
      !file->write(0, std::as_bytes(std::span(text)))) {
    std::abort();
  }
  const auto record = read_record(*staging);
  if (!record || !*record) {
    return 0;
  }
  static std::size_t turn = 0;
  if (++turn % 16 == 0) {  // every time would cost more than all else
    write_again(**record, (*record)->written(kRecordedParts));
  }
  return 0;
}
