// What the batteries of the kernels run on. Each executable is linked with one bed; tensors and index
// vectors lie in std::pmr's default memory, which the bed sees to it that its kernels can reach.
#pragma once
#include <functional>
#include <memory_resource>
#include <string>
#include <vector>

#include "models/ops/kernels.hpp"

namespace sluice::test {

using Ints = std::pmr::vector<std::int32_t>;

// Calls `work` with the kernels and waits for what it has put on the stream.
void run_on_bed(const std::function<void(const IKernels&, NativeStream)>& work);

template <typename Args>
void run(void (IKernels::*operation)(const Args&, NativeStream) const, const Args& args) {
  run_on_bed(
      [&](const IKernels& kernels, NativeStream stream) { (kernels.*operation)(args, stream); });
}

// Calls `body` once per kind of kernels that the build and the machine have, with its name: on the
// CPU one per instruction set.
void for_each_target(const std::function<void(const std::string&)>& body);

// Whether the kernels dequantise the weights of this product before, each rounded to its type.
bool dequantises(const LinearArgs& args);
// Products of equal families give a row the same bits.
int product_family(const LinearArgs& args);
// How much of a row's result attention may be off by beside its roundings, relative to the sum of its
// terms' sizes.
double attention_error();

}  // namespace sluice::test
