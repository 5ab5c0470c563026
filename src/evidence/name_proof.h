// What names say of a slot and a key, beside their bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace onnx_external {

// A name as exporters write it: dots as underscores, without wrappers.
[[nodiscard]] std::string canonical_name(std::string_view name);

// Of `keys`, the one whose name shares the longest end with the slot's: one of the two is the other
// behind a prefix. Nothing when there is none, or several share the longest.
[[nodiscard]] std::optional<std::uint32_t> key_by_ending(std::string_view slot,
                                                         std::span<const std::uint32_t> keys,
                                                         std::span<const std::string_view> names);

// Of `keys`, the only one that belongs to the module, which stands behind the prefix of a wrapping
// module on one side or on neither.
[[nodiscard]] std::optional<std::uint32_t> key_by_module(std::string_view module,
                                                         std::span<const std::uint32_t> keys,
                                                         std::span<const std::string_view> names);

// The module that torch names a node by: "layers.0.fc" for "/layers.0/fc/MatMul", whose parameters
// are "layers.0.fc.weight" and so on; "net.0" for "/net/net.0/Relu". "" where a name says no
// module.
[[nodiscard]] std::string module_of_node(std::string_view node);

}  // namespace onnx_external
