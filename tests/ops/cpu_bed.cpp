#include "models/ops/cpu_targets.hpp"
//
#include <hwy/highway.h>
#include <hwy/targets.h>

#include "models/ops/cpu_kernels.hpp"
#include "tests/ops/bed.hpp"
#include "tests/ops/cpu_targets.hpp"

namespace sluice::test {
namespace {

struct RestoreTargets {
  ~RestoreTargets() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
};

}  // namespace

void run_on_bed(const std::function<void(const IKernels&, NativeStream)>& work) {
  work(CpuKernels(), nullptr);
}

void for_each_target(const std::function<void(const std::string&)>& body) {
  const RestoreTargets restore;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
    body(hwy::TargetName(target));
  }
}

void on_old_processor(const std::function<void()>& body) {
  const RestoreTargets restore;
  hwy::SetSupportedTargetsForTest(HWY_SCALAR);
  body();
}

bool dequantises(const LinearArgs&) { return false; }

int product_family(const LinearArgs&) { return 0; }

// Scores up to about 10 err by a few units of 2^-24 of themselves, and so do the weights.
double attention_error() { return 0x1p-24 * 64; }

}  // namespace sluice::test
