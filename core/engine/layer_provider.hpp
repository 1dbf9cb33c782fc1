// What a forward pass sees of offloading: the weights of one step, readable while its lease is open.
// Called from the one host thread that enqueues the pass.
#pragma once
#include <optional>
#include <span>
#include <utility>

#include "core/device/op.hpp"
#include "core/engine/counters.hpp"
#include "sluice/policy.hpp"

namespace sluice {

// One unit's slab where kernels read it, valid for operations enqueued on the compute stream before
// the lease closes.
struct Weights {
  const std::byte* data = nullptr;  // aligned to 256 bytes in a slot
  Range range;                      // what an operation that reads it must declare
  Encoding encoding = Encoding::native;
};

class ILayerProvider;

// Closing a lease marks the last read of its units on the compute stream: enqueue every operation
// that reads them first. The provider and the step's spans must outlive it. At most one is open at a
// time. Closing throws nothing: what fails then comes out of the provider's next call.
class [[nodiscard]] Lease {
 public:
  Lease(ILayerProvider& from, const Step& step) : from_(&from), step_(step) {}
  Lease(Lease&& other) noexcept : from_(std::exchange(other.from_, nullptr)), step_(other.step_) {}
  Lease& operator=(Lease&&) = delete;
  ~Lease();

  // The i-th of `Step::needs`. Throws Error beyond them, and once the lease is closed by a failure.
  // The first call makes the compute stream wait for that unit, so call it just before its first
  // reader is enqueued: a unit that is here never waits for one that is not. The address is the same
  // until the lease closes.
  Weights use(std::size_t i);

  // Whether use(i) surely makes the compute stream wait for nothing, as an earlier step has read that
  // unit where it lies: what is here may be read together, before what is still to come. Asked before
  // use(i). It comes from the provider's book, never from how far a copy got: the same on every device.
  bool was_here(std::size_t i) const;

 private:
  ILayerProvider* from_;
  Step step_;
};

class ILayerProvider {
 public:
  virtual ~ILayerProvider() = default;

  // Gives every unit of `step.needs` a slot and issues its copy; the host does not wait for it, unless
  // the policy's layout is blocking. A step that cannot be is an Error and changes nothing.
  virtual Lease acquire(const Step& step) = 0;
  // Of how many experts of the next layer, for each token, routed() is to be told behind `step`, which was
  // acquired last and whose layer has a router.
  virtual std::uint32_t wanted_guesses(const Step&) { return 0; }
  // A router's guess at later needs, best first; read during the call only. Nothing is promised.
  virtual void routed(std::span<const UnitId> units) = 0;
  // The weights of a unit that lies on the device for good, readable at any time without a lease; none
  // where it moves.
  virtual std::optional<Weights> kept(UnitId) const { return std::nullopt; }
  // How many units of a kind one step may need. 0 for the embedding.
  virtual std::uint32_t capacity(UnitKind kind) const = 0;
  // Up to the last call; lives as long as the provider, and goes on counting.
  virtual const Counters& counters() const = 0;
  // True when every unit lies in one place for good and using it never waits, so that passes which
  // are alike put the same operations on the compute stream. What use() gave is valid for all later
  // operations then, without another lease.
  virtual bool is_fixed() const { return false; }

 private:
  friend class Lease;
  virtual Weights use(const Step& step, std::size_t i) = 0;
  virtual void close(const Step& step) noexcept = 0;
  // False says nothing.
  virtual bool was_here(const Step&, std::size_t) const { return false; }
};

inline Lease::~Lease() {
  if (from_) from_->close(step_);
}

inline Weights Lease::use(std::size_t i) { return from_->use(step_, i); }

inline bool Lease::was_here(std::size_t i) const { return from_->was_here(step_, i); }

}  // namespace sluice
