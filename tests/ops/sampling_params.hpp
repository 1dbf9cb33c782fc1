// Parameters of sampling in one line.
#pragma once
#include "models/ops/sampling.hpp"

namespace sluice::test {

inline SamplingParams with(float temperature, std::int32_t top_k = 0, float top_p = 1,
                           float min_p = 0) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_k = top_k;
  params.top_p = top_p;
  params.min_p = min_p;
  return params;
}

}  // namespace sluice::test
