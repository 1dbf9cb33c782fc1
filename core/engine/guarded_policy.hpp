// A policy behind a guard: whatever comes out of a hook becomes an Error with its name.
#pragma once
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "core/error.hpp"
#include "sluice/policy.hpp"

namespace sluice {

class GuardedPolicy {
 public:
  GuardedPolicy(IOffloadPolicy& policy, std::string name)
      : policy_(policy), name_(std::move(name)) {}

  const std::string& name() const { return name_; }

  Layout layout(const ModelView& model, const Budget& budget) {
    return before_run("layout", [&] { return policy_.layout(model, budget); });
  }
  Transfer transfer(const ModelView& model, const UnitInfo& unit) {
    return before_run("transfer", [&] { return policy_.transfer(model, unit); });
  }
  void before(const Step& step, Actions& actions) {
    call("before", [&] { policy_.before(step, actions); });
  }
  std::uint32_t wanted_guesses(const Step& step) {
    return call("wanted_guesses", [&] { return policy_.wanted_guesses(step); });
  }
  void routed(std::span<const UnitId> units, Actions& actions) {
    call("routed", [&] { policy_.routed(units, actions); });
  }
  UnitId victim(const UnitInfo& incoming, const Candidates& candidates) {
    return call("victim", [&] { return policy_.victim(incoming, candidates); });
  }
  Place place(const UnitInfo& unit, const Step& step) {
    return call("place", [&] { return policy_.place(unit, step); });
  }

  // The engine's own work on behalf of a hook. Its failure is not the policy's: it comes out of the
  // hook as it was, even if the policy swallows it.
  template <typename F>
  std::invoke_result_t<F> on_behalf(const F& work) {
    try {
      return work();
    } catch (...) {
      if (!engine_failure_) engine_failure_ = std::current_exception();
      throw;
    }
  }

 private:
  template <typename F>
  std::invoke_result_t<F> call(const char* hook, const F& body) {
    std::string what;
    try {
      if constexpr (std::is_void_v<std::invoke_result_t<F>>) {
        body();
        if (!engine_failure_) return;
      } else {
        auto result = body();
        if (!engine_failure_) return result;
      }
    } catch (const std::exception& e) {
      what = e.what();  // copied: the text may lie in the plugin's library
    } catch (...) {
      what = "something that is not a std::exception";
    }
    if (engine_failure_) std::rethrow_exception(std::exchange(engine_failure_, nullptr));
    throw Error("policy {} threw in {}: {}", name_, hook, what);
  }

  // What its parameters mean may turn out to make no sense only when the model is there: the user's
  // mistake, not the policy's.
  template <typename F>
  std::invoke_result_t<F> before_run(const char* hook, const F& body) {
    std::string what;
    const auto kept = [&]() -> std::optional<std::invoke_result_t<F>> {
      try {
        return body();
      } catch (const std::invalid_argument& e) {
        what = e.what();
        return std::nullopt;
      }
    };
    if (auto result = call(hook, kept)) return *std::move(result);
    throw InputError("policy {}: {}", name_, what);
  }

  IOffloadPolicy& policy_;
  std::string name_;
  std::exception_ptr engine_failure_;
};

}  // namespace sluice
