// Where a router's choice may come from instead of the router, and who may look at it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "sluice/policy.hpp"

namespace sluice {

// Measured on Qwen3-30B-A3B: so much of what a layer will choose is named by its router when it is shown
// the hidden states of the layer before.
inline constexpr double kForesight = 0.886;

// A token in a layer of so many experts.
struct RoutedToken {
  std::uint32_t sequence = 0, position = 0;
  std::int32_t layer = 0;
  std::uint32_t experts = 0;
};

// Fills `ids` with experts, each once, whose places are alike: it is one of `chosen` with probability
// `accuracy`, as long as there are any left, else another one, that `other` draws. `random` is uniform
// in [0, 1).
void mix_guesses(std::span<const std::int32_t> chosen, std::uint32_t experts, double accuracy,
                 const std::function<double()>& random, const std::function<std::int32_t()>& other,
                 std::span<std::int32_t> ids);

// Chooses experts without looking at hidden states: for devices that compute nothing, and for loads
// whose reuse is to be that of another model.
class IRouting {
 public:
  virtual ~IRouting() = default;
  // Fills `ids` with the experts of `layer` for the token at `position` of sequence slot `sequence`,
  // each once, ascending. For a slot and a layer the positions ascend; 0 begins another sequence.
  virtual void choose(std::uint32_t sequence, std::uint32_t position, std::int32_t layer,
                      std::span<std::int32_t> ids) = 0;
  // What the layer's router would have named one layer early, of up to all its experts, best first:
  // guesses at `chosen`, which choose() has given for that token, and as often right as kForesight. Here
  // the others are any; a function of the arguments.
  virtual void foresee(const RoutedToken& token, std::span<const std::int32_t> chosen,
                       std::span<std::int32_t> ids);
};

// Any set of a layer's `experts` as likely as any other: a function of the seed and the arguments.
std::unique_ptr<IRouting> make_uniform_routing(std::uint32_t experts, std::uint64_t seed);

// What one layer chose in one pass.
struct RoutedRows {
  std::uint64_t step = 0;  // index of the step that acquired the router
  Phase phase = Phase::decode;
  std::int32_t layer = 0;
  std::uint32_t per_token = 0;
  std::span<const std::int32_t> ids{};         // [rows, per_token], ascending in each row
  std::span<const float> weights{};            // the same; empty where the device does not execute
  std::span<const std::uint32_t> sequences{};  // [rows]
};

class IRoutingSink {
 public:
  virtual ~IRoutingSink() = default;
  // Once per layer of experts and pass, in order. What it is given is valid until it returns.
  virtual void routed(const RoutedRows& rows) = 0;
};

// Both must outlive the decoder that they are given to.
struct RoutingHooks {
  IRouting* given = nullptr;     // null: the router's own; where nothing is computed, uniform
  IRoutingSink* sink = nullptr;  // with one the host waits in every layer, whatever lies where
};

}  // namespace sluice
