// Instruction sets that are not there.
#pragma once
#include <functional>

namespace sluice::test {

// Calls `body` as if the processor had none of the instruction sets that the build has.
void on_old_processor(const std::function<void()>& body);

}  // namespace sluice::test
