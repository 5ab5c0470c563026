// Evidence from names that a slot and a key belong together, in addition to their bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace onnx_external {

// A name as exporters write it: dots become underscores, and wrappers are dropped.
[[nodiscard]] std::string canonical_name(std::string_view name);

// The key whose name shares the longest suffix with the slot's name, where one name must be the
// other with a prefix. nullopt if there is none, or if several share the longest.
[[nodiscard]] std::optional<std::uint32_t> key_by_ending(std::string_view slot,
                                                         std::span<const std::uint32_t> keys,
                                                         std::span<const std::string_view> names);

// The only key that belongs to the module, whose name may have the prefix of a wrapping module on
// one side.
[[nodiscard]] std::optional<std::uint32_t> key_by_module(std::string_view module,
                                                         std::span<const std::uint32_t> keys,
                                                         std::span<const std::string_view> names);

// The module that torch named a node after: "layers.0.fc" for "/layers.0/fc/MatMul", whose
// parameters are "layers.0.fc.weight" and so on; "net.0" for "/net/net.0/Relu". "" if the name
// contains no module.
[[nodiscard]] std::string module_of_node(std::string_view node);

}  // namespace onnx_external
