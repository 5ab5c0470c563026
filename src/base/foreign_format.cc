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
constexpr std::string_view kFetchAgain = "download it again; a gated or private file needs a login";
constexpr std::string_view kConvertedFrom = "take the checkpoint that it was converted from";
constexpr std::string_view kMadeFrom = "take the ONNX model that it was made from";
constexpr std::string_view kSaveAgain =
    "load it with the library that wrote it, and save its tensors as safetensors";
constexpr std::string_view kModelsOwnFile = "take the data file that belongs to the model";
constexpr std::string_view kMarkOfUtf8 = "\xef\xbb\xbf";
constexpr std::string_view kExportAgain = "export the model that it was made from to ONNX";

struct Magic {
  std::size_t offset;
  std::string_view bytes;
  ForeignKind kind;
  std::string_view what;
  std::string_view advice;
};

// A flatbuffer has the name of its schema at byte 4.
constexpr std::size_t kSchema = 4;

using enum ForeignKind;

constexpr std::array kMagics = {
    Magic{0, "\x1f\x8b"sv, kPacked, "compressed with gzip", "unpack it first: gzip -d"},
    Magic{0, "\xfd\x37zXZ\0"sv, kPacked, "compressed with xz", "unpack it first: xz -d"},
    Magic{0, "\x28\xb5\x2f\xfd"sv, kPacked, "compressed with zstd", "unpack it first: zstd -d"},
    Magic{4, "1AY&SY"sv, kPacked, "compressed with bzip2", "unpack it first: bzip2 -d"},
    Magic{0, "\x37\x7a\xbc\xaf\x27\x1c"sv, kPacked, "a 7z archive", "unpack it first: 7z x"},
    Magic{0, "Rar!\x1a\x07"sv, kPacked, "a RAR archive", "unpack it first: unrar x"},
    Magic{0, "\x04\x22\x4d\x18"sv, kPacked, "compressed with lz4", "unpack it first: lz4 -d"},
    Magic{0, "\x02\x21\x4c\x18"sv, kPacked, "compressed with lz4", "unpack it first: lz4 -d"},
    Magic{0, "LZIP"sv, kPacked, "compressed with lzip", "unpack it first: lzip -d"},
    Magic{0, "\x5d\0\0"sv, kPacked, "compressed with lzma", "unpack it first: xz -d"},
    Magic{0, "\x1f\x9d"sv, kPacked, "compressed with compress", "unpack it first: gzip -d"},
    Magic{0, "\xff\x06\0\0sNaPpY"sv, kPacked, "compressed with snappy",
          "unpack it first: snzip -d"},
    Magic{0, "\0GITCRYPT\0"sv, kPacked, "encrypted by git-crypt", "unlock it: git-crypt unlock"},
    Magic{0, "age-encryption.org/"sv, kPacked, "encrypted by age", "decrypt it first: age -d"},
    Magic{0, "-----BEGIN PGP"sv, kPacked, "encrypted by PGP", "decrypt it first: gpg -d"},

    Magic{0, "version https://git-lfs"sv, kPointer, "a Git LFS pointer, not the file itself",
          "fetch it with `git lfs pull`"},
    Magic{0, "version https://hawser"sv, kPointer, "a Git LFS pointer, not the file itself",
          "fetch it with `git lfs pull`"},
    Magic{0, "# xet version"sv, kPointer, "a Xet pointer, not the file itself",
          "download the file: `hf download`, or `git xet` in a clone"},
    Magic{0, "outs:\n- "sv, kPointer, "a pointer of DVC, not the file itself",
          "fetch it with `dvc pull`"},
    Magic{0, "/annex/objects/"sv, kPointer, "a pointer of git-annex, not the file itself",
          "fetch it with `git annex get`"},

    Magic{0, "GGUF"sv, kWeights, "a GGUF file, the format of llama.cpp", kConvertedFrom},
    Magic{0, "lmgg"sv, kWeights, "a GGML file, an old format of llama.cpp", kConvertedFrom},
    Magic{0, "fmgg"sv, kWeights, "a GGMF file, an old format of llama.cpp", kConvertedFrom},
    Magic{0, "tjgg"sv, kWeights, "a GGJT file, an old format of llama.cpp", kConvertedFrom},
    Magic{0, "algg"sv, kWeights, "a GGLA file, an adapter of llama.cpp", kConvertedFrom},
    Magic{0, "\x93NUMPY"sv, kWeights, "an array of numpy (.npy)",
          "give it a name: safetensors.numpy.save_file({name: numpy.load(file)}, ...)"},
    Magic{0, "\x89HDF\r\n\x1a\n"sv, kWeights,
          "an HDF5 file, perhaps weights of Keras or TensorFlow (tf_model.h5)", kSaveAgain},
    Magic{0, "PAR1"sv, kWeights, "a Parquet file, a table", kSaveAgain},
    Magic{0, "ARROW1"sv, kWeights, "an Arrow file, a table", kSaveAgain},
    Magic{0, "FEA1"sv, kWeights, "a Feather file, a table", kSaveAgain},

    Magic{kSchema, "ORTM"sv, kModel, "a model in ONNX Runtime's own format (.ort)", kMadeFrom},
    Magic{kSchema, "TFL3"sv, kModel, "a model of TensorFlow Lite (.tflite)", kExportAgain},
    Magic{kSchema, "PTMF"sv, kModel, "a mobile module of PyTorch as a flatbuffer (.ptl)",
          kExportAgain},
    Magic{kSchema, "ET12"sv, kModel, "a program of ExecuTorch (.pte)", kExportAgain},
    Magic{0, "ftrt"sv, kModel, "an engine of TensorRT", kMadeFrom},
    Magic{0, "ptrt"sv, kModel, "an engine of TensorRT", kMadeFrom},
    Magic{0, "RKNN"sv, kModel, "a model of RKNN", kMadeFrom},
    Magic{0, "7767517\n"sv, kModel, "a graph of ncnn (.param)", kExportAgain},

    Magic{0,
          "\x7f"
          "ELF"sv,
          kOther, "a program or a library (ELF)", "name the weights or the graph"},
    Magic{0, "%PDF"sv, kOther, "a PDF document", "name the weights or the graph"},
    Magic{0, "\x89PNG"sv, kOther, "a picture (PNG)", "name the weights or the graph"},
    Magic{0, "\xff\xd8\xff"sv, kOther, "a picture (JPEG)", "name the weights or the graph"},
};

bool has_magic(std::string_view head, const Magic& magic) {
  if (head.size() < magic.offset || !head.substr(magic.offset).starts_with(magic.bytes)) {
    return false;
  }
  // The root of a flatbuffer is never 16 MiB away from its start.
  return magic.kind != kModel || magic.offset != kSchema || head[kSchema - 1] == '\0';
}

// --- formats without a magic -------------------------------------------------------------------

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

bool is_text(std::string_view head) {
  // A character may be cut in two at the end.
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
      return ForeignFormat{kModel, "a graph of OpenVINO (.xml)", std::string(kExportAgain)};
    }
    if (low.find("<error") != std::string_view::npos) {
      return ForeignFormat{kMessage, "the error message of a server (XML)",
                           std::string(kFetchAgain)};
    }
    const bool is_page = low.find("<html") != std::string_view::npos;
    return is_page ? ForeignFormat{kMessage, "a web page", std::string(kFetchAgain)}
                   : ForeignFormat{kOther, "XML", "name the weights or the graph"};
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
  return ForeignFormat{kMessage, "text that begins " + quote(line) + ", perhaps a server's message",
                       std::string(kFetchAgain)};
}

}  // namespace

std::optional<ForeignFormat> foreign_format(std::string_view head) {
  for (const Magic& magic : kMagics) {
    if (has_magic(head, magic)) {
      return ForeignFormat{magic.kind, std::string(magic.what), std::string(magic.advice)};
    }
  }
  if (is_ctranslate2(head)) {
    return ForeignFormat{kWeights, "a model of CTranslate2", std::string(kConvertedFrom)};
  }
  if (is_msgpack(head)) {
    return ForeignFormat{kWeights, "MessagePack, perhaps weights of Flax (flax_model.msgpack)",
                         std::string(kSaveAgain)};
  }
  const std::string_view text = without_blanks(head);
  if (text.starts_with('{') || text.starts_with('[')) {
    return std::nullopt;  // JSON
  }
  auto found = markup(ascii_lower(text));
  return found ? found : plain_text(head);
}

std::optional<std::string> foreign_data(std::string_view head) {
  constexpr std::size_t kLeastMagic = 4;  // random bytes are shorter ones by chance
  constexpr std::string_view kDvcOutputs = "outs:\n- ";
  for (const Magic& magic : kMagics) {
    if (magic.bytes.size() < kLeastMagic || !has_magic(head, magic)) {
      continue;
    }
    const bool says_what_to_do = magic.kind == kPacked || magic.kind == kPointer;
    return std::string(magic.what) + "; " +
           std::string(says_what_to_do ? magic.advice : kModelsOwnFile);
  }
  if (!is_text(head)) {
    return std::nullopt;
  }
  if (head.find(kDvcOutputs) != std::string_view::npos) {
    return "a pointer of DVC, not the file itself; fetch it with `dvc pull`";
  }
  head.remove_prefix(head.starts_with(kMarkOfUtf8) ? kMarkOfUtf8.size() : 0);
  const std::string text = ascii_lower(without_blanks(head));
  if (is_error_document(text)) {
    return "the error message of a server (JSON); " + std::string(kFetchAgain);
  }
  const auto page = markup(text);
  if (!page) {
    return std::nullopt;
  }
  return page->what + "; " + std::string(page->kind == kMessage ? kFetchAgain : kModelsOwnFile);
}

std::string short_data_text(const SourceFile& file) {
  if (file.size() == 0) {
    return "; the file is empty: download or copy it again";
  }
  const auto head = head_of(file);
  const auto found = head ? foreign_format(*head) : std::nullopt;
  return found ? "; the file is " + found->text()
               : "; if the file was not downloaded or copied to its end, do so again";
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
