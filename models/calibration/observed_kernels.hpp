// Kernels whose matrix products somebody watches.
#pragma once
#include <functional>
#include <memory>

#include "models/ops/kernels.hpp"

namespace sluice {

// Told of each product before it is computed, on the thread that computes it. False: it is not to be,
// and what it would write stays as it is.
using LinearObserver = std::function<bool(const LinearArgs&)>;

// A decorator of kernels whose operands the host can read: the CPU's. Operations that follow each
// other are taken apart into their parts, whose results are the same.
std::unique_ptr<IKernels> observe(std::unique_ptr<IKernels> inner, LinearObserver observer);

}  // namespace sluice
