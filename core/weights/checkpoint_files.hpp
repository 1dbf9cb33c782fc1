// The names of the files that hold a checkpoint's weights.
#pragma once

namespace sluice {

inline constexpr const char* kWeightsName = "model.safetensors";
// Which of several files has which tensor; needed only where there are several.
inline constexpr const char* kIndexName = "model.safetensors.index.json";

}  // namespace sluice
