// Element types of weights, activations and KV cache.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice {

enum class DType : std::uint8_t { f32, bf16, f16 };

constexpr std::size_t size_of(DType type) { return type == DType::f32 ? 4 : 2; }

constexpr std::string_view name_of(DType type) {
  switch (type) {
    case DType::f32: return "f32";
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
  }
  return "?";
}

}  // namespace sluice
