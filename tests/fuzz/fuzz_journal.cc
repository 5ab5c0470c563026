// Any bytes as the journal of a save that was killed.
#include <algorithm>
#include <cstdlib>

#include "fuzz/seeds.h"
#include "save/journal.h"
#include "support/temp_dir.h"

namespace {

using namespace onnx_external;

// What is claimed, written as a journal, claims the same.
void write_again(const WrittenParts& written) {
  static const TempDir folder;
  static const auto staging = Directory::open(folder.path());
  if (!Journal::start(*staging, kJournalJob, written) ||
      read_journal(*staging, kJournalJob, kJournalParts) != written) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const TempDir folder;
  static const auto staging = Directory::open(folder.path());
  static const auto file = OutputFile::create(*staging, std::string(kJournalName));
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  if (!file || ::ftruncate(file->fd(), static_cast<off_t>(size)) != 0 || !file->write(0, bytes)) {
    std::abort();
  }
  const auto written = read_journal(*staging, kJournalJob, kJournalParts);
  if (!written) {
    return 0;
  }
  if (!has_journal_of(*staging, kJournalJob)) {
    std::abort();
  }
  static std::size_t turn = 0;
  if (++turn % 16 == 0) {  // every time would cost more than all else
    write_again(*written);
  }
  return 0;
}
