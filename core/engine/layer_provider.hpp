// What a forward pass sees of offloading: the weights of one step, readable while its lease is open.
#pragma once
#include <span>
#include <utility>

#include "core/device/op.hpp"
#include "core/engine/counters.hpp"
#include "sluice/policy.hpp"

namespace sluice {

// One unit's slab on the device, valid for operations enqueued on the compute stream.
struct Weights {
  const std::byte* data = nullptr;
  Range range;  // what an operation that reads it must declare
  Encoding encoding = Encoding::native;
};

class ILayerProvider;

// Closing a lease marks the last read of its units on the compute stream: enqueue every operation
// that reads them first. The step's spans must outlive it. At most one is open at a time.
class [[nodiscard]] Lease {
 public:
  Lease(ILayerProvider& from, const Step& step) : from_(&from), step_(step) {}
  Lease(Lease&& other) noexcept : from_(std::exchange(other.from_, nullptr)), step_(other.step_) {}
  Lease& operator=(Lease&&) = delete;
  ~Lease();

  // The i-th of `Step::needs`. The first call makes the compute stream wait for that unit, so call
  // it just before its first reader is enqueued: a unit that is here never waits for one that is
  // not.
  Weights use(std::size_t i);

 private:
  ILayerProvider* from_;
  Step step_;
};

class ILayerProvider {
 public:
  virtual ~ILayerProvider() = default;

  // Gives every unit of `step.needs` a slot and issues its copy.
  virtual Lease acquire(const Step& step) = 0;
  virtual void routed(std::span<const UnitId> units) = 0;
  // How many units of a kind one step may need.
  virtual std::uint32_t capacity(UnitKind kind) const = 0;
  virtual const Counters& counters() const = 0;
  // True when every unit lies in one place for good and using it never waits, so that passes which
  // are alike put the same operations on the compute stream.
  virtual bool is_fixed() const { return false; }

 private:
  friend class Lease;
  virtual Weights use(const Step& step, std::size_t i) = 0;
  virtual void close(const Step& step) noexcept = 0;
};

inline Lease::~Lease() {
  if (from_) from_->close(step_);
}

inline Weights Lease::use(std::size_t i) { return from_->use(step_, i); }

}  // namespace sluice
