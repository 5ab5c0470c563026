#include <fmt/format.h>

#include <fstream>
#include <utility>

#include "faults/experiment.h"
#include "faults/scene.h"
#include "onnx_external/model.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

namespace fs = std::filesystem;

// A run of bytes of a file that verification answers for.
struct Range {
  fs::path file;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// The model, and each tensor's bytes; not the zeros between tensors, which mean nothing.
std::vector<Range> ranges_of(const fs::path& out) {
  std::vector<Range> ranges{{out / "model.onnx", 0, fs::file_size(out / "model.onnx")}};
  const auto model = Model::load(out / "model.onnx");
  for (const ExternalTensor& tensor : model->external_tensors()) {
    ranges.push_back({out / tensor.location, tensor.offset, tensor.length});
  }
  return ranges;
}

void flip(const fs::path& file, std::uint64_t place, unsigned int bit) {
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekg(static_cast<std::streamoff>(place));
  const int byte = stream.get();
  stream.seekp(static_cast<std::streamoff>(place));
  stream.put(static_cast<char>(byte ^ (1 << bit)));
}

}  // namespace

Tally flip_bits(const Settings& settings) {
  const Scene scene(settings.folder);
  const fs::path out = settings.folder / "out";
  std::vector<Range> ranges;
  for (const Form& form : all_forms()) {
    const fs::path folder = out / form.name;
    (void)scene.save({folder, 1, form});
    for (Range& range : ranges_of(folder)) {
      ranges.push_back(std::move(range));
    }
  }
  Tally tally;
  std::mt19937 chance(settings.seed);
  for (std::size_t i = 0; i < settings.count; ++i) {
    const Range& range =
        ranges[std::uniform_int_distribution<std::size_t>(0, ranges.size() - 1)(chance)];
    const auto place =
        range.offset + std::uniform_int_distribution<std::uint64_t>(0, range.bytes - 1)(chance);
    const auto bit = std::uniform_int_distribution<unsigned int>(0, 7)(chance);
    const bool is_model = range.file.filename() == "model.onnx";
    fs::path folder = is_model ? range.file.parent_path() : range.file;
    while (!fs::exists(folder / "model.onnx")) {
      folder = folder.parent_path();
    }
    const bool flips = settings.control.empty();
    tally.run();
    tally.count(is_model ? "in a model" : "in data");
    if (flips) {
      flip(range.file, place, bit);
    }
    tally.check(fmt::format("{}: byte {}, bit {}", range.file.string(), place, bit),
                fault_of_model(folder).empty() ? "verification finds nothing" : "");
    if (flips) {
      flip(range.file, place, bit);
    }
  }
  return tally;
}

}  // namespace onnx_external
