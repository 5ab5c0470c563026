// What names say of a slot and a key, beside their bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onnx_external/model.h"

namespace onnx_external {

// A name as exporters write it: dots as underscores, without wrappers.
[[nodiscard]] std::string canonical_name(std::string_view name);

// Of `keys`, the one whose name shares the longest end with the slot's: one of the two is the other
// behind a prefix. Nothing when there is none, or several share the longest.
[[nodiscard]] std::optional<std::uint32_t> key_by_ending(std::string_view slot,
                                                         std::span<const std::uint32_t> keys,
                                                         std::span<const std::string_view> names);

// Of `keys`, the only one that belongs to the module whose node uses the slot: torch calls nodes
// "/layers.0/fc/MatMul", and the parameters of that module "layers.0.fc.weight", behind the prefix
// of a wrapping module or not. Nothing when several nodes use it.
[[nodiscard]] std::optional<std::uint32_t> key_by_module(const Slot& slot,
                                                         std::span<const std::uint32_t> keys,
                                                         std::span<const std::string_view> names);

// "layers.0.fc" for "/layers.0/fc/MatMul", "net.0" for "/net/net.0/Relu"; "" where a node's name
// says no module.
[[nodiscard]] std::string module_of_node(std::string_view node);

}  // namespace onnx_external
