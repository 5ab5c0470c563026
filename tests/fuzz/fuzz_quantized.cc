// A config, the header of a safetensors file and its data, with a zero byte between them: weights
// as quantization libraries store them, their floats, and their codes as a save keeps them.
#include <string_view>

#include "base/json.h"
#include "checkpoint/formats/safetensors.h"
#include "checkpoint/quantized/quantized_tensors.h"
#include "fuzz/memory_file.h"
#include "fuzz/read_part.h"
#include "fuzz/seeds.h"
#include "save/kept_rows.h"

namespace {

using namespace onnx_external;

constexpr std::size_t kDepth = 16;

QuantSettings settings_of(std::string_view text) {
  QuantSettings settings;
  auto config = parse_json(text, kDepth);
  if (config && config->object() != nullptr) {
    settings.place = "config.json";
    settings.config = *std::move(config);
    settings.method = settings.text("quant_method");
  }
  return settings;
}

void keep(const Checkpoint& checkpoint, const TensorView& view) {
  const auto columns = view.shape.empty() ? 0 : static_cast<std::uint64_t>(view.shape.back());
  const auto rows = KeptRows::of(checkpoint, view, columns, DType::kFloat16);
  if (!rows || !*rows) {
    return;
  }
  (void)(*rows)->stored_codes_range(checkpoint);
  IoBuffer tile;
  KeptBuffers buffers;
  const std::uint64_t all =
      element_count(view.shape).value_or(0) / std::max<std::uint64_t>(1, columns);
  (void)(*rows)
      ->make(0, std::min((*rows)->chunk_rows(1), all), KeptCodes::kMade, tile, buffers,
             [](std::uint64_t, const PackedRows&) { return Status(); })
      .has_value();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const auto take = [&] {
    const std::string_view part = rest.substr(0, rest.find('\0'));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    return part;
  };
  const QuantSettings settings = settings_of(take());
  const std::string_view header = take();
  auto part =
      read_safetensors(memory_file(safetensors_file(std::string(header), std::string(rest))),
                       {.selection = Selection::kEverything});
  if (!part) {
    return 0;
  }
  static const std::filesystem::path scratch = std::filesystem::temp_directory_path();
  auto contents = std::make_unique<CheckpointAccess::Contents>(scratch);
  append_contents(contents->all, *std::move(part));
  if (!list_quantized_as_floats(contents->all, 0, contents->inflated, settings)) {
    return 0;
  }
  const Checkpoint checkpoint = CheckpointAccess::make(std::move(contents));
  read_tensors(checkpoint);
  for (const TensorView& view : checkpoint.tensors()) {
    keep(checkpoint, view);
  }
  return 0;
}
