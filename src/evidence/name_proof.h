// Chooses, by their names, between several keys (tensors of a checkpoint) whose bytes all equal the
// data of the same slot (a value of a graph).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace onnx_external {

// Converts a name to the form that exporters write: dots become underscores, and wrappers are
// dropped.
[[nodiscard]] std::string canonical_name(std::string_view name);

// Returns the key whose name has the longest suffix in common with the slot's name. One of the two
// names must be a suffix of the other. Nullopt if there is no such key, or if several keys have the
// longest suffix.
[[nodiscard]] std::optional<std::uint32_t> key_by_ending(std::string_view slot,
                                                         std::span<const std::uint32_t> keys,
                                                         std::span<const std::string_view> names);

// Returns the only key that belongs to the module. The name of the module or of the key may have an
// additional prefix from a wrapping module. Nullopt if there is no such key, or more than one.
[[nodiscard]] std::optional<std::uint32_t> key_by_module(std::string_view module,
                                                         std::span<const std::uint32_t> keys,
                                                         std::span<const std::string_view> names);

// Returns the module after which torch named a node: "layers.0.fc" for "/layers.0/fc/MatMul" (the
// parameters of this module are "layers.0.fc.weight" and so on), "net.0" for "/net/net.0/Relu". ""
// if the name contains no module.
[[nodiscard]] std::string module_of_node(std::string_view node);

}  // namespace onnx_external
