#include "checkpoint/torch/pickle_bytes.h"

#include "base/bad_input.h"
#include "checkpoint/pickle/pickle_text.h"
#include "checkpoint/torch/torch_symbols.h"

namespace onnx_external {

std::optional<SpelledBytes> spelled_bytes(const Pickle& pickle, NodeId id) {
  if (pickle.bytes_place(id) || pickle.string(id)) {
    return SpelledBytes{.node = id};
  }
  const Call call = call_of(pickle, id);
  if (call != Call::kBytes && call != Call::kEncode) {
    return std::nullopt;
  }
  const Arguments arguments = pickle.tuple(pickle.arguments(id));
  if (call == Call::kBytes) {
    return arguments.empty() ? std::optional(SpelledBytes{.node = id}) : std::nullopt;
  }
  const auto encoding = arguments.size() == 2 ? pickle.string(arguments[1]) : std::nullopt;
  const bool is_latin1 = encoding == "latin1" || encoding == "latin-1";
  return is_latin1 && pickle.string(arguments[0])
             ? std::optional(SpelledBytes{.node = arguments[0], .is_latin1 = true})
             : std::nullopt;
}

std::uint64_t most_bytes(const Pickle& pickle, const SpelledBytes& spelled) {
  const auto bytes = pickle.bytes(spelled.node);
  return bytes ? bytes->size() : pickle.string(spelled.node).value_or("").size();
}

Result<std::string> copy_bytes(const Pickle& pickle, const SpelledBytes& spelled) {
  if (const auto bytes = pickle.bytes(spelled.node)) {
    return std::string(*bytes);
  }
  const auto text = pickle.string(spelled.node);
  if (!text) {
    return pickle.bytes_place(spelled.node) ? corrupt("its data is a whole torch file")
                                            : Result<std::string>(std::string());
  }
  auto bytes = spelled.is_latin1 ? latin1_bytes(*text) : std::string(*text);
  return bytes ? Result<std::string>(*std::move(bytes)) : corrupt("its bytes are not latin-1 text");
}

}  // namespace onnx_external
