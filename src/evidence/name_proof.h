// Chooses, by name, between several keys (tensors of a checkpoint) that all equal the data of a
// slot (a value of a graph).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace onnx_external {

// Converts a name to the form that exporters write. Dots become underscores, and components of
// wrappers are removed.
[[nodiscard]] std::string canonical_name(std::string_view name);

// Returns the key whose name has the longest suffix in common with the name of the slot. One of the
// two names must be a suffix of the other. Returns nullopt if there is no such key, or if the
// longest suffix belongs to several keys.
[[nodiscard]] std::optional<std::uint32_t> key_by_ending(std::string_view slot,
                                                         std::span<const std::uint32_t> keys,
                                                         std::span<const std::string_view> names);

// Returns the only key that belongs to the module. The name of the module or of the key may have an
// additional prefix from a wrapping module. Returns nullopt if there is no such key, or more than
// one.
[[nodiscard]] std::optional<std::uint32_t> key_by_module(std::string_view module,
                                                         std::span<const std::uint32_t> keys,
                                                         std::span<const std::string_view> names);

// Returns the module after which torch named a node. For "/layers.0/fc/MatMul" this is
// "layers.0.fc", whose parameters are "layers.0.fc.weight" and so on; for "/net/net.0/Relu" it is
// "net.0". Returns "" if the name does not contain a module.
[[nodiscard]] std::string module_of_node(std::string_view node);

}  // namespace onnx_external
