#include "base/foreign_format.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/text.h"
#include "base/try.h"

namespace onnx_external {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kFetchAgain =
    "download it again, after logging in if the file is gated or private";
constexpr std::string_view kConvertedFrom = "use the checkpoint that it was converted from";
constexpr std::string_view kMadeFrom = "use the model that it was made from";
constexpr std::string_view kTorchWeights =
    "use the PyTorch weights (model.safetensors), or load it with the library that wrote it, and "
    "save its tensors as safetensors";
constexpr std::string_view kModelsOwnFile = "use the data file that belongs to the model";
constexpr std::string_view kMarkOfUtf8 = "\xef\xbb\xbf";

// CTranslate2: a version of four bytes, then the name of a class with its length: "WhisperSpec".
bool is_ctranslate2(std::string_view head) {
  constexpr std::size_t kName = 6;
  constexpr std::string_view kEnd = "Spec\0"sv;
  if (head.size() < kName || head[2] != '\0' || head[3] != '\0' || head[kName - 1] != '\0') {
    return false;
  }
  const std::string_view name = head.substr(kName, static_cast<unsigned char>(head[kName - 2]));
  return name.ends_with(kEnd) || name.ends_with(kEnd.substr(0, kEnd.size() - 1));
}

// MessagePack, as Flax writes it: a map whose first key is a short text.
bool is_msgpack(std::string_view head) {
  if (head.size() < 8) {
    return false;
  }
  const auto first = static_cast<unsigned char>(head[0]);
  const std::size_t key = first == 0xde ? 3 : first == 0xdf ? 5 : 1;
  const bool is_map = (first > 0x80 && first <= 0x8f) || key > 1;
  const auto mark = static_cast<unsigned char>(head[key]);
  const std::string_view text = head.substr(key + 1, mark & 0x1fU);
  return is_map && mark > 0xa0 && mark <= 0xbf &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// A flatbuffer has the name of its schema at byte 4, and its root less than 16 MiB away.
template <char a, char b, char c, char d>
bool is_flatbuffer(std::string_view head) {
  constexpr char kSchema[] = {'\0', a, b, c, d};
  return head.size() > 3 && head.substr(3).starts_with(std::string_view(kSchema, 5));
}

using enum ForeignKind;

// A format, recognized by how its files begin or by their names.
struct Format {
  ForeignKind kind;
  std::string_view what;
  std::string_view advice;
  std::string_view magic = "";                   // the first bytes
  std::string_view names = "";                   // patterns of first_fit()
  std::string_view beside = "";                  // patterns of another entry that must also exist
  bool (*is_begun)(std::string_view) = nullptr;  // for a format without a magic number

  [[nodiscard]] bool begins(std::string_view head) const {
    return magic.empty() ? is_begun != nullptr && is_begun(head) : head.starts_with(magic);
  }
};

constexpr std::array kFormats = {
    Format{kPacked, "compressed with gzip", "unpack it first: gzip -d", "\x1f\x8b"sv},
    Format{kPacked, "compressed with xz", "unpack it first: xz -d", "\xfd\x37zXZ\0"sv},
    Format{kPacked, "compressed with zstd", "unpack it first: zstd -d", "\x28\xb5\x2f\xfd"sv},
    Format{kPacked, "a 7z archive", "unpack it first: 7z x", "\x37\x7a\xbc\xaf\x27\x1c"sv},

    Format{kPointer, "a Git LFS pointer, not the file itself", "fetch it with `git lfs pull`",
           "version https://git-lfs"},
    Format{kPointer, "a Xet pointer, not the file itself",
           "download the file: `hf download`, or `git xet` in a clone", "# xet version"},
    Format{kPointer, "a DVC pointer, not the file itself", "fetch it with `dvc pull`", "outs:\n- "},

    Format{kCheckpoint, "a GGUF file, the format of llama.cpp",
           "it is a checkpoint: pass it after the graph, or export it without a graph", "GGUF",
           "*.gguf"},
    Format{kWeights, "a NumPy array (.npy)",
           "give it a name: safetensors.numpy.save_file({name: numpy.load(file)}, ...)",
           "\x93NUMPY"sv},
    Format{kWeights, "MLX weights (.npz)", kConvertedFrom, "", "weights*.npz"},
    Format{kWeights, "an HDF5 file, perhaps with Keras or TensorFlow weights", kTorchWeights,
           "\x89HDF\r\n\x1a\n"sv, "*.h5|*.hdf5"},
    Format{kWeights, "a Keras model", kTorchWeights, "", "*.keras"},
    Format{kWeights, "a TensorFlow SavedModel", kTorchWeights, "", "saved_model.pb"},
    Format{kWeights, "a TensorFlow checkpoint", kTorchWeights, "",
           "*.data-00000-of-*|*.ckpt.index"},
    Format{kWeights, "MessagePack, perhaps with Flax weights", kTorchWeights, "", "*.msgpack", "",
           &is_msgpack},
    Format{kWeights, "a CTranslate2 model", kConvertedFrom, "", "model.bin",
           "*vocabulary.json|*vocabulary.txt", &is_ctranslate2},

    Format{kModel, "a model in ONNX Runtime's own format (.ort)", kMadeFrom, "", "*.ort", "",
           &is_flatbuffer<'O', 'R', 'T', 'M'>},
    Format{kModel, "a TensorFlow Lite model (.tflite)", kMadeFrom, "", "*.tflite", "",
           &is_flatbuffer<'T', 'F', 'L', '3'>},
    Format{kModel, "a PyTorch mobile module as a flatbuffer (.ptl)", kMadeFrom, "", "", "",
           &is_flatbuffer<'P', 'T', 'M', 'F'>},
    Format{kModel, "a TensorRT engine", kMadeFrom, "ftrt", "*.engine|*.plan|*.trt"},
    Format{kModel, "an OpenVINO model", kMadeFrom, "", "*.xml", "*.bin"},
    Format{kModel, "a Core ML model", kMadeFrom, "", "*.mlpackage/|*.mlmodelc/|*.mlmodel"},
};

bool fits(std::string_view name, std::string_view pattern) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) {
    return name == pattern;
  }
  const std::string_view start = pattern.substr(0, star);
  const std::string_view end = pattern.substr(star + 1);
  return name.size() >= start.size() + end.size() && name.starts_with(start) && name.ends_with(end);
}

bool is_text(std::string_view head) {
  // The text may end in the middle of a character.
  std::string_view whole = head;
  for (int cut = 0; cut < 3 && !whole.empty() && !is_utf8(whole); ++cut) {
    whole.remove_suffix(1);
  }
  return !whole.empty() && is_utf8(whole) && std::all_of(head.begin(), head.end(), [](char c) {
    const auto code = static_cast<unsigned char>(c);
    return (code >= ' ' && code != 0x7f) || kBlanks.find(c) != std::string_view::npos;
  });
}

std::string_view without_blanks(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kBlanks), text.size()));
}

std::optional<ForeignFormat> markup(std::string_view low) {
  constexpr std::array kPages = {"<!doctype html"sv, "<html"sv, "<head"sv, "<body"sv,
                                 "<script"sv,        "<!--"sv,  "<meta"sv, "<title"sv};
  if (low.starts_with("<?xml") || low.starts_with("<error") || low.starts_with("<net ")) {
    if (low.find("<net ") != std::string_view::npos) {
      return ForeignFormat{kModel, "an OpenVINO graph (.xml)", std::string(kMadeFrom)};
    }
    if (low.find("<error") != std::string_view::npos) {
      return ForeignFormat{kMessage, "a server's error message (XML)", std::string(kFetchAgain)};
    }
    const bool is_page = low.find("<html") != std::string_view::npos;
    return is_page ? ForeignFormat{kMessage, "a web page", std::string(kFetchAgain)}
                   : ForeignFormat{kOther, "XML", "pass the file with the weights or the graph"};
  }
  if (std::any_of(kPages.begin(), kPages.end(),
                  [&](std::string_view start) { return low.starts_with(start); })) {
    return ForeignFormat{kMessage, "a web page", std::string(kFetchAgain)};
  }
  return std::nullopt;
}

std::optional<ForeignFormat> plain_text(std::string_view head) {
  if (!is_text(head)) {
    return std::nullopt;
  }
  constexpr std::size_t kShown = 60;
  const std::string_view text = without_blanks(head);
  std::string_view line = text.substr(0, text.find_first_of("\r\n"));
  while (line.size() > kShown || !is_utf8(line)) {
    line.remove_suffix(1);
  }
  if (line.empty()) {
    return ForeignFormat{kOther, "blanks", std::string(kFetchAgain)};
  }
  return ForeignFormat{
      kMessage, "text that begins with " + quote(line) + ", perhaps an error message from a server",
      std::string(kFetchAgain)};
}

}  // namespace

std::optional<ForeignFormat> foreign_format(std::string_view head) {
  for (const Format& format : kFormats) {
    if (format.begins(head)) {
      return ForeignFormat{format.kind, std::string(format.what), std::string(format.advice)};
    }
  }
  const std::string_view text = without_blanks(head);
  if (text.starts_with('{') || text.starts_with('[')) {
    return std::nullopt;  // JSON
  }
  auto found = markup(ascii_lower(text));
  return found ? found : plain_text(head);
}

std::optional<std::string> foreign_data(std::string_view head) {
  constexpr std::size_t kLeastMagic = 4;  // in random bytes, shorter texts occur by chance
  constexpr std::string_view kDvcOutputs = "outs:\n- ";
  for (const Format& format : kFormats) {
    if (format.kind == kCheckpoint || format.magic.size() < kLeastMagic || !format.begins(head)) {
      continue;
    }
    const bool says_what_to_do = format.kind == kPacked || format.kind == kPointer;
    return std::string(format.what) + "; " +
           std::string(says_what_to_do ? format.advice : kModelsOwnFile);
  }
  if (!is_text(head)) {
    return std::nullopt;
  }
  if (head.find(kDvcOutputs) != std::string_view::npos) {
    return "a DVC pointer, not the file itself; fetch it with `dvc pull`";
  }
  head.remove_prefix(head.starts_with(kMarkOfUtf8) ? kMarkOfUtf8.size() : 0);
  const std::string text = ascii_lower(without_blanks(head));
  if (is_error_document(text)) {
    return "a server's error message (JSON); " + std::string(kFetchAgain);
  }
  const auto page = markup(text);
  if (!page) {
    return std::nullopt;
  }
  return page->what + "; " + std::string(page->kind == kMessage ? kFetchAgain : kModelsOwnFile);
}

const std::string* first_fit(std::span<const std::string> names, std::string_view patterns) {
  while (!patterns.empty()) {
    const std::string_view pattern = patterns.substr(0, patterns.find('|'));
    const auto found = std::find_if(names.begin(), names.end(),
                                    [&](const std::string& name) { return fits(name, pattern); });
    if (found != names.end()) {
      return &*found;
    }
    patterns.remove_prefix(std::min(pattern.size() + 1, patterns.size()));
  }
  return nullptr;
}

std::optional<std::string> foreign_name(std::span<const std::string> names) {
  for (const Format& format : kFormats) {
    const std::string* name = first_fit(names, format.names);
    if (name != nullptr && (format.beside.empty() || first_fit(names, format.beside) != nullptr)) {
      return named_text(*name, format.what, format.advice);
    }
  }
  return std::nullopt;
}

std::string named_text(std::string_view name, std::string_view what, std::string_view advice) {
  name.remove_suffix(name.ends_with('/') ? 1 : 0);
  return quote(name) + " is " + std::string(what) + "; " + std::string(advice);
}

std::string short_data_text(const SourceFile& file) {
  if (file.size() == 0) {
    return "; the file is empty: download or copy it again";
  }
  const auto head = head_of(file);
  const auto found = head ? foreign_format(*head) : std::nullopt;
  return found ? "; the file is " + found->text()
               : "; if the download or copy of the file was not completed, repeat it";
}

Result<std::string> head_of(const SourceFile& file) {
  std::string head(static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), kForeignBytes)),
                   '\0');
  TRY(file.read(0, std::as_writable_bytes(std::span(head))));
  return head;
}

bool is_all_zeros(std::string_view head) {
  return !head.empty() && head.find_first_not_of('\0') == std::string_view::npos;
}

bool begins_like_onnx(std::string_view head) {
  constexpr char kMostVersion = 32;
  constexpr std::string_view kTags = "\x12\x1a\x22\x28\x32\x3a\x42\x72";
  return head.size() > 2 && head[0] == '\x08' && head[1] > 0 && head[1] < kMostVersion &&
         kTags.find(head[2]) != std::string_view::npos;
}

bool is_error_document(std::string_view json) {
  constexpr std::array kKeys = {"\"error\""sv, "\"errors\""sv, "\"message\""sv, "\"detail\""sv};
  std::string_view text = without_blanks(json);
  if (!text.starts_with('{')) {
    return false;
  }
  text = without_blanks(text.substr(1));
  return std::any_of(kKeys.begin(), kKeys.end(),
                     [&](std::string_view key) { return text.starts_with(key); });
}

}  // namespace onnx_external
