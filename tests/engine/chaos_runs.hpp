// A policy that wishes for anything, legal or not, on models and budgets of all sorts.
#pragma once
#include "tests/engine/rig.hpp"

namespace sluice::test {

struct ChaosCase {
  Shape shape;
  BudgetSpec budget;
  EngineOptions options;
};
ChaosCase chaos_case(std::uint64_t seed);

// Runs each seed on threads and in virtual time and requires, under the audit: every byte read on the
// threads is right and the digest is the resident run's; decisions, line by line, and counters are
// the same on both. Returns the counters of all runs together.
Counters chaos_on_cpu_and_sim(std::uint64_t first_seed, std::uint64_t runs);

}  // namespace sluice::test
