#include "checkpoint/gguf/codebooks.h"

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace onnx_external {
namespace {

// A codebook is a set of vectors in the order of their digits, the first of which changes fastest.
// So one bit for each possible vector describes it: whether the codebook has the vector. Six bits
// make a character of base64, the first in the lowest; bits missing at the end are 0. In some
// codebooks all vectors have an even sum of digits, and only such vectors have a bit.
constexpr std::string_view kCharacters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::size_t kBitsOfCharacter = 6;

constexpr std::string_view kIq2Xxs =
    "/ZPpZCipABAIIYACAACAMhZBhJILIQAMEAMABAIApJoZAIAIAIAAAACBAAAAgJEBIIFIBBICBAAAhAAAAJogAIAAABAQAA"
    "IQAAAAAMBIAgAAFAAAAABAAgAAAYCABEDAAAEBAAADAAAAAgJABCAAIAgAIAAAAAAAIAIIAAAIAAAAAAAAAABAAAMpJRhJ"
    "ABIAgoAgIAICBAIBBAABEACBAAAABAAAAAgJAFAAAIAAAFCAAAgAAIApMAAIBABACAAABAAAAgAAAAAAYAQAAAAAgAAABA"
    "AIkAAIAAAAIAAAAIAAAAAAJABABAIAAgAAAAIAABAAFAAAAAAYAAAIAAAAAAAAAAQAAAAAAAAAAAAAAAAAYCgAACAIIIAA"
    "AAgAAAAAgpABIAAIAACAABgAIABAACAAAAAABAAAAAAEAAAAAIBJAAAEACAAIAAAAEAAAIACBAAAAAAEAAAAAAAAAAAAAA"
    "EAAABAAAAAAAAAAACAABgAAEAAAAAIAAAAAAAIAAAAAAAAAAAAAAAAAAAAAIAAAI";
constexpr std::string_view kIq2Xs =
    "//9v5th/PvJNB4NhpARA8v5dhJAvJMhIAgJQDAIA4PlJBBIOBIAgEABIBAAQh/NvJOB4NhJABDcBIABAAvJsBJAgJABAAA"
    "IIAEAAAMDIIACAFAAACAAAAgAAA8PhJABIMBIBEAABQAAIAoJgBAAAIAgQAAEEQAAAAQZIAEABCAAAABBABBAAaA8v5PlJ"
    "AvJMBoAiZgBAAA4thJABBMBJAAACRAIBAAgJAFRAAIEAJgAAIAAAAAAvJNBIAgpADAAAIAABAAAOhIAhAEJAAAIBAAEAAB"
    "gIIgIAAEAQYAAAAAAAAgAgJABRQAMAAAAAAAABCAQABCAAAAAIAFAAABAAAAAAEAAAQAAAgAAAAACAARAA4NxJADAfBIkA"
    "AABIAAYAp5ABIgAIAABAAgAIAAQAAJgAQYAICAAAAAAACAAJCNBIQABABQAABAAAAACgAoAAJBAAAAEAAYAAAEAAAAAAgA"
    "AACAAEAAAAEAABAAbICAAABAAgEAAaBQAABIAAIAAgAAAAAAAAAAAgAIACLAAAIJAAAADAAADAAEQ";
constexpr std::string_view kIq2S =
    "//9v/N1/NvvNn5NxvAVR8v//nvN/v9v5NhvAtJMB491/NFBOvoNhIAhRDBAgg/dv/dt5/v/NvBslpMgJAvv9v5Nh/NvJMB"
    "oNhJABA+t4NhBAvJMBEACJABCAA4915IRBOn4MhJARQLBADovNvJMBoNhJQBAMBIgAAAlBMBACwJAAAAEACCAIYA8/7/np"
    "Nv/8v5Nh5JtJMA4/v/NvJ8v5NxJAvJMBIAk9NvJIB4NhJABCMBIAAAAv/9v5Ng/NvJMBoNhJgBA8v5NhJAvJMBIAgJQBAA"
    "A4NhJCBAMBIAAAABEAAgAo7NtJIB4NhJABEIBIQAAEtJMBIAgJARABCIAAAAABMBAAEABBACAAAAAACAAg4tl5FlBsv5Ng"
    "Jg1BMBAAg/FvJMB4NhJARAMBMAAAAlBMBAAiBABgAAAACADCQsP5NhJAlBMRAAgJABAAA6NhJABCMBIAAAFBAQABAgJQBA"
    "AAMAAUAAAAAAAAIAVROBAASAABgAAQCaAAaANBIAAEIBEAAAAAAAgAAAACIAAAQAAAIACAYYBAABQ";
constexpr std::string_view kIq3Xxs =
    "3OhAgNTNBBxFzCJQ5QAAQACgECWCgACAAAEAEANACEwMzhBATMAAAMTEAAyARgACFAAEAAQBIABBAAAAAIQAAMzGCAwNRA"
    "gGTOYQAEFAAAFAABCACgQAABAAAAwgAQAAxMAEkMQEMAwEEACIQACAAAAEIASCCAEAABIACAAIAEAhADKAAAAAABQgBkAC"
    "AQAAEAAEEAABCABAAAAA0ABAAACABARCIAEAABCAgIAAgAAEKAAICABAAAAAQAAAEIAAAQADEAQAAEAgAAABAAJAAAAAEA"
    "ABAACAAACAAIQAAAgHgACAAgQAAACAkAQQgAQAAEQAAMABAAAAQ";
constexpr std::string_view kIq3S =
    "ne1IIUqCFI5FjkoIQAgIEMaSiEBpKAQCIISBKBRBAKSAIKBBJIAABQBAFhgoAAECApAACAABAIQFAUECAEBAAcxqFIFAQJ"
    "ABLFhAJIQBAEUAkGBBJASAEIZCCGhAAQQAoQBAKQUEAAgAJIQBAIAAAAAARCAUAAAAKUgAgIAAEEwqVpYBqUAgpUQikIBB"
    "CAAASCgCBKAiAIRJCQhCEEAQAIIAJQiAAAAJQIABAGACAEQhAIAAAAiAAAiAAFACBAAAEoKBqQpAIIgKQoAABAQAEFABBQ"
    "BABAAACEhiBoIIAgACCRgAAQQEAIQBgQAEABACAAEAAIAAAAgCAUAIAAAAAEBBRSgABAQAEqABhggIAAgChIACBAIBBAhC"
    "FICAAAAAFAAEAGAAAIAoAIAAAAABAAACAABAAEAAAECABggAAAABRQAARSAQQoCBCQAAAAABBIACBBACAAAhBAIAQIAIII"
    "BABQAQAAAAAQAQAAgCAAAAAAAAEAAAAQBAEAAAAAAAAoCAKAAABAQAAEIAAAAEAAABAABBgQQABAhAAEAAAAAAAACAIAAB"
    "AkAAAABAAEAAgAAAAEAAAAAAKAAAAAAAAEJAFAUAQQAAEIAEAgCAAAgEBJQAAIAAAQAAAQCAIAAAigQAAAQAAAAAAQAAEA"
    "AAAQAAAIAAAAAAB";
constexpr std::string_view kIq1 =
    "VVCFFCqACFFCFFDqGCiiiqBCqACFFCFFCCCRFVSFFAqACCCiYAACCC6AqAKi7qqCQq6CAICAKoKjCCKCAFFCFFCiACFFCF"
    "FCKCDCYCKCAqCCFFCFFCCSCVFCFFALCDKIKaCAqQCqqKKCi/KCIgCKAAqAChiqoACqACiCbiQu6iKIK7aii6qq6w36qr7u"
    "C6AuioryT7gkCICAiACqKqrCCKACAoiSgL6OiAyKiCQgAFoqKiCCiEAFFCVFCCSCFFCVFCKCCMCq6AChCCCVCFFCiCCCVC"
    "FFCoCC4iqgACKSCACCCKKaiKAKrqCCFCCCCCDCFBEAFFCFFCKACFFAFFQKCCgiCqCChCDFFAFFCiCCFFCFFCiACAiqqAAI"
    "SEriuiCq6GqqoCHACqACCgiICQIACCASACq6wqiqCDyi6Ki6af6iL6GqSCrKqK3iKSEDqACSECEKKqCCqCCyMLqIi+qmgi"
    "OqCAgAAoCqICAIAC6iiKKK6CKgCKjC66Lu66/6iC6KiigiKgi6iCQoyIAD6Tq6e/+Ko6Sj+6366f/f/aef66da7fy//ai+"
    "Ske4KKCEq6rDEqKCyi6CC66/6SS6DCIBixCayjqCkuCACoCCIIuqSAgACqiCmCSyCmIkCiCAiCAjAOBACiACAwmiqq6uCY"
    "qvKCqyCA4aX6C0ymOECChLq6NKVEdpEAgCCCgiCCCCBEKICqaO6KiMECaCAiBAKKqYCEIFEFFAFFCrCCFFCFFCqCCKqeoC"
    "SoCCFFCFFAKCCFFCFFAICAKQiKCAICACiigaK6GuqqKgAAiCCKOyiECCEBFFCFVCKCSFFCFFGqACqqiKACgCCFFCFFCqAA"
    "FFCFFCiDCiCqAGCqCCqKqqKC7iCogKqCCKCCoqKgCCoAQqIKgIg67CogLCKq7Sy66/6SK+uqKIShCa2CKMmDoCCgCCiomY"
    "ACiCCoqqroq6imKoiiACQACoKKCAC6AAFFCFFCqCAFFCFFSqGAgSqKAClCAENQEFCiCCFFCFFAACCKIryDCAAAgqKgiC6C"
    "i6iKAACiUCokOFAExSFFFAFFAqCAFFCFFCISCCIiiCAhAAFFAFFAqAAFFCFF";

struct Codebook {
  std::string_view bits;
  bool even = false;
  std::size_t length = 0;  // of a vector
  std::size_t size = 0;    // vectors
};

constexpr std::size_t kMostDigits = 8;
constexpr std::array<std::int8_t, 3> kTernary = {-8, 0, 8};
constexpr std::array<std::int8_t, 3> kThree = {8, 25, 43};
constexpr std::array<std::int8_t, 8> kFourToSixtyTwo = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr std::array<std::int8_t, 8> kOdd = {1, 3, 5, 7, 9, 11, 13, 15};

bool has_bit(std::string_view bits, std::size_t at) {
  const std::size_t character = at / kBitsOfCharacter;
  return character < bits.size() &&
         ((kCharacters.find(bits[character]) >> (at % kBitsOfCharacter)) & 1U) != 0;
}

std::vector<std::int8_t> entries(const Codebook& book, std::span<const std::int8_t> values) {
  std::vector<std::int8_t> all;
  all.reserve(book.length * book.size);
  std::size_t at = 0;
  for (std::size_t vector = 0; all.size() < book.length * book.size; ++vector) {
    std::array<std::size_t, kMostDigits> digits{};
    std::size_t sum = 0;
    std::size_t rest = vector;
    for (std::size_t i = 0; i < book.length; ++i, rest /= values.size()) {
      digits[i] = rest % values.size();
      sum += digits[i];
    }
    if ((book.even && sum % 2 != 0) || !has_bit(book.bits, at++)) {
      continue;
    }
    for (std::size_t i = 0; i < book.length; ++i) {
      all.push_back(values[digits[i]]);
    }
  }
  return all;
}

}  // namespace

const std::int8_t* iq1_entries() {
  static const std::vector<std::int8_t> kAll = entries({kIq1, false, 8, 2048}, kTernary);
  return kAll.data();
}

const std::int8_t* iq2_xxs_entries() {
  static const std::vector<std::int8_t> kAll = entries({kIq2Xxs, true, 8, 256}, kThree);
  return kAll.data();
}

const std::int8_t* iq2_xs_entries() {
  static const std::vector<std::int8_t> kAll = entries({kIq2Xs, true, 8, 512}, kThree);
  return kAll.data();
}

const std::int8_t* iq2_s_entries() {
  static const std::vector<std::int8_t> kAll = entries({kIq2S, true, 8, 1024}, kThree);
  return kAll.data();
}

const std::int8_t* iq3_xxs_entries() {
  static const std::vector<std::int8_t> kAll = entries({kIq3Xxs, true, 4, 256}, kFourToSixtyTwo);
  return kAll.data();
}

const std::int8_t* iq3_s_entries() {
  static const std::vector<std::int8_t> kAll = entries({kIq3S, false, 4, 512}, kOdd);
  return kAll.data();
}

}  // namespace onnx_external
