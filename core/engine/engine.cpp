#include "core/engine/engine.hpp"

#include <algorithm>
#include <exception>
#include <vector>

#include "core/engine/book.hpp"
#include "core/engine/copier.hpp"
#include "core/engine/setup.hpp"
#include "core/engine/step_check.hpp"
#include "core/error.hpp"

namespace sluice {

class Engine::Impl final : private Actions {
 public:
  Impl(IDevice& device, StreamId compute, const WeightStore& weights, IOffloadPolicy& policy,
       std::string policy_name, const BudgetSpec& budget, const EngineOptions& options);

  void acquire(const Step& step);
  std::uint32_t wanted_guesses(const Step& step);
  void routed(std::span<const UnitId> units);
  std::optional<Weights> kept(UnitId unit) const;
  Weights use(std::size_t i);
  void close() noexcept;
  bool was_here(std::size_t i) const {
    return open_ && i < step_.needs.size() && book_.was_read(step_.needs[i]);
  }
  std::uint32_t capacity(UnitKind kind) const;
  bool is_fixed() const { return fixed_; }
  const Counters& counters() const { return counters_; }
  const EngineShape& shape() const { return setup_.shape; }

 private:
  // Actions
  Asked prefetch(UnitId unit) override;
  void drop(UnitId unit) override;
  bool has_slot(UnitId unit) const override { return book_.knows(unit) && book_.has_slot(unit); }
  bool is_kept(UnitId unit) const override { return book_.knows(unit) && book_.is_kept(unit); }
  std::uint32_t rotating_slots(UnitKind kind) const override { return shape().rotating[kind]; }
  std::uint32_t free_slots(UnitKind kind) const override { return book_.free_slots(kind); }

  void load_kept();

  void check(const Step& step);
  void open(const Step& step);
  void bring(UnitId unit);
  Asked wish(UnitId unit);
  bool make_room(UnitId unit, bool needed);
  SlotId load(UnitId unit);
  void prepare(UnitId unit, SlotId slot);
  Weights weights_of(UnitId unit, const Slot& slot) const;
  void evict(UnitId unit, UnitId incoming);
  bool is_certain(UnitId unit) { return book_.is_open(unit) || soon_.place_of(unit) != kNever; }
  void rethrow_failure() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  template <typename F>
  void tell(const F& what);
  template <typename F>
  void with_wishes(const F& hook);
  template <typename F>
  void or_fail(const F& work);

  IDevice& device_;
  const StreamId compute_;
  const WeightStore& weights_;
  const EngineOptions options_;
  GuardedPolicy policy_;
  const ModelView view_;
  const Setup setup_;
  const bool fixed_;  // nothing rotates
  SlotArena slots_;
  Book book_;
  SoonIndex soon_;
  CandidateView candidates_;
  StepCheck steps_;
  Copier copier_;  // after the slots: it drains before they are freed
  Counters counters_;

  bool open_ = false;
  Step step_;                       // the open or the last one
  bool began_ = false;              // there was a step
  PerKind<std::uint32_t> missing_;  // needed units of the open step that have no slot yet
  bool wishes_allowed_ = false;
  std::exception_ptr failure_;  // ends the run
};

Engine::Impl::Impl(IDevice& device, StreamId compute, const WeightStore& weights,
                   IOffloadPolicy& policy, std::string policy_name, const BudgetSpec& budget,
                   const EngineOptions& options)
    : device_(device),
      compute_(compute),
      weights_(weights),
      options_(options),
      policy_(policy, std::move(policy_name)),
      view_(weights.view()),
      setup_(set_up(view_, policy_, budget)),
      fixed_(std::ranges::all_of(kStreamedKinds,
                                 [&](UnitKind kind) { return shape().rotating[kind] == 0; })),
      slots_(allocate_slots(device, view_, setup_)),
      book_(view_.units, slots_),
      soon_(view_.units.size()),
      candidates_(book_, soon_),
      steps_(book_, view_),
      copier_(device, compute, setup_, weights, options, slots_) {
  tell([&](DecisionSink& sink) {
    for (const UnitInfo& unit : view_.units)
      if (unit.kind != UnitKind::embedding) sink.transfer(unit.id, setup_.transfers[unit.id]);
    sink.layout(setup_.layout);
  });
  load_kept();
}

template <typename F>
void Engine::Impl::tell(const F& what) {
  if (options_.decisions) what(*options_.decisions);
}

void Engine::Impl::load_kept() {
  if (options_.poison)
    for (SlotId slot = 0; slot < slots_.size(); ++slot) copier_.poison(slot);
  const auto load_into = [&](UnitId unit, SlotId slot) {
    prepare(unit, slot);
    copier_.issue(slot, false);
  };
  SlotId head = slots_.first_head();
  for (const UnitInfo& unit : view_.units) {
    if (unit.kind != UnitKind::head) continue;
    book_.keep_head(unit.id, head);
    load_into(unit.id, head++);
  }
  for (UnitId unit : setup_.plan.keep) {
    load_into(unit, book_.keep(unit));
    counters_.kept_bytes += view_.units[unit].size(setup_.transfers[unit].wire);
  }
  copier_.settle();
}

void Engine::Impl::check(const Step& step) {
  if (open_)
    throw Error("step {} is acquired while the lease of step {} is open", step.index, step_.index);
  if (began_ && step.index <= step_.index)
    throw Error("step {} is acquired after step {}; the index must grow", step.index, step_.index);
  steps_.check(step, shape().rotating);
}

void Engine::Impl::open(const Step& step) {
  step_ = step;
  began_ = open_ = true;
  soon_.reset(step.soon);
  missing_ = {};
  for (UnitId unit : step.needs) {
    book_.open(unit);
    if (book_.has_slot(unit)) {
      ++counters_.hits;
    } else {
      ++counters_.misses;
      ++missing_[view_.units[unit].kind];
    }
  }
}

// Needs go onto the link before what the hook wished for, in the step's order: the compute stream
// waits for them first.
void Engine::Impl::acquire(const Step& step) {
  rethrow_failure();
  check(step);
  or_fail([&] {
    open(step);
    tell([&](DecisionSink& sink) { sink.step(step_); });
    with_wishes([&] { policy_.before(step_, *this); });
    for (UnitId unit : step_.needs) bring(unit);
    copier_.flush_wishes();
    copier_.top_up();
  });
}

std::uint32_t Engine::Impl::wanted_guesses(const Step& step) {
  rethrow_failure();
  std::uint32_t count = 0;
  or_fail([&] {
    count = policy_.wanted_guesses(step);
    if (count != 0) tell([&](DecisionSink& sink) { sink.wanted_guesses(count); });
  });
  return count;
}

void Engine::Impl::routed(std::span<const UnitId> units) {
  rethrow_failure();
  or_fail([&] {
    tell([&](DecisionSink& sink) { sink.routed(units); });
    with_wishes([&] { policy_.routed(units, *this); });
    copier_.flush_wishes();
    copier_.top_up();
  });
}

void Engine::Impl::bring(UnitId unit) {
  if (!book_.has_slot(unit)) {
    const UnitInfo& info = view_.units[unit];
    const bool asks = info.kind == UnitKind::mlp || info.kind == UnitKind::expert;
    const Place place = asks ? policy_.place(info, step_) : Place::device;
    if (place != Place::device) {
      ++counters_.refused;
      tell([&](DecisionSink& sink) { sink.refused_place(unit, place); });
    }
    make_room(unit, true);
    load(unit);
  }
  copier_.issue(book_.slot_of(unit), true);
}

Weights Engine::Impl::use(std::size_t i) {
  rethrow_failure();
  if (!open_ || i >= step_.needs.size())
    throw Error("unit {} of step {}'s needs is used; {}", i, step_.index,
                open_ ? fmt::format("it has {}", step_.needs.size()) : "its lease is closed");
  const UnitId unit = step_.needs[i];
  const SlotId slot = book_.slot_of(unit);
  or_fail([&] {
    copier_.before_read(slot);
    copier_.top_up();
  });
  book_.read(unit, step_.index);
  return weights_of(unit, slots_[slot]);
}

Weights Engine::Impl::weights_of(UnitId unit, const Slot& slot) const {
  const Encoding resident = setup_.transfers[unit].resident;
  return {slot.data, range_of(slot.data, view_.units[unit].size(resident)), resident};
}

// The host has waited for it when it was loaded.
std::optional<Weights> Engine::Impl::kept(UnitId unit) const {
  if (!book_.knows(unit) || !book_.is_kept(unit)) return std::nullopt;
  return weights_of(unit, slots_[book_.slot_of(unit)]);
}

// What is kept never moves, and its readers need no marks.
void Engine::Impl::close() noexcept {
  if (!open_) return;
  open_ = false;
  try {
    const bool moves =
        !std::ranges::all_of(step_.needs, [&](UnitId unit) { return book_.is_kept(unit); });
    const Event last_reader = moves ? device_.record(compute_) : Event{};
    for (UnitId unit : step_.needs) {
      copier_.after_read(book_.slot_of(unit), last_reader);
      book_.close(unit);
    }
    soon_.reset({});
    copier_.top_up();
  } catch (...) {
    failure_ = std::current_exception();  // the next call reports it
  }
}

std::uint32_t Engine::Impl::capacity(UnitKind kind) const {
  if (!is_streamed(kind)) return kind == UnitKind::head ? 1 : 0;
  return shape().rotating[kind] != 0 ? shape().rotating[kind] : shape().kept[kind];
}

Asked Engine::Impl::prefetch(UnitId unit) {
  return policy_.on_behalf([&] {
    const Asked answer = wish(unit);
    tell([&](DecisionSink& sink) { sink.wish(unit, answer); });
    return answer;
  });
}

Asked Engine::Impl::wish(UnitId unit) {
  if (!wishes_allowed_ || !book_.knows(unit) || view_.units[unit].kind == UnitKind::embedding) {
    ++counters_.refused;
    return Asked::refused;
  }
  if (book_.has_slot(unit)) {
    const SlotId slot = book_.slot_of(unit);
    if (copier_.is_queued_guess(slot) && is_certain(unit)) copier_.queue_wish(slot);
    return Asked::already;
  }
  if (!make_room(unit, book_.is_open(unit))) return Asked::no_slot;
  const SlotId slot = load(unit);
  is_certain(unit) ? copier_.queue_wish(slot) : copier_.queue_guess(slot);
  return Asked::accepted;
}

void Engine::Impl::drop(UnitId unit) {
  policy_.on_behalf([&] {
    const bool refused = !wishes_allowed_ || !book_.knows(unit) ||
                         !is_streamed(view_.units[unit].kind) || book_.is_kept(unit) ||
                         book_.is_open(unit);
    tell([&](DecisionSink& sink) { sink.drop(unit, refused); });
    if (refused)
      ++counters_.refused;
    else if (book_.has_slot(unit))
      evict(unit, kNoUnit);
  });
}

// Sees to it that a slot of the unit's kind is free; false when a wish gets none. Slots that the
// open step still has to fill are not given to wishes: it would take them back at once.
bool Engine::Impl::make_room(UnitId unit, bool needed) {
  const UnitKind kind = view_.units[unit].kind;
  const std::uint32_t free = book_.free_slots(kind);
  if (!needed && free + book_.candidates(kind) <= missing_[kind]) return false;
  if (free != 0) return true;

  candidates_.show(kind);
  const bool allowed = std::exchange(wishes_allowed_, false);
  UnitId victim = policy_.victim(view_.units[unit], candidates_);
  wishes_allowed_ = allowed;
  const bool refused = victim != kNoUnit && !candidates_.contains(victim);
  tell([&](DecisionSink& sink) { sink.victim(victim, unit, refused); });
  if (refused) {
    ++counters_.refused;
    victim = kNoUnit;
  }
  if (victim == kNoUnit) {
    if (!needed) return false;
    victim = candidates_.oldest();
  }
  evict(victim, unit);
  return true;
}

// Gives `unit` a free slot and books its load; the copy is issued by whoever asked.
SlotId Engine::Impl::load(UnitId unit) {
  const SlotId slot = book_.place(unit, step_.index);
  prepare(unit, slot);
  if (book_.is_open(unit)) --missing_[view_.units[unit].kind];
  ++counters_.loads;
  counters_.h2d_bytes += view_.units[unit].size(setup_.transfers[unit].wire);
  return slot;
}

void Engine::Impl::prepare(UnitId unit, SlotId slot) {
  const auto [wire, resident] = setup_.transfers[unit];
  copier_.prepare(slot, {unit, wire, resident, weights_.slab(unit, wire),
                         view_.units[unit].size(wire), weights_.is_pinned(unit, wire)});
}

void Engine::Impl::evict(UnitId unit, UnitId incoming) {
  tell([&](DecisionSink& sink) { sink.evicted(unit, incoming); });
  const SlotId slot = book_.slot_of(unit);
  if (book_.evict(unit)) ++counters_.wasted;
  counters_.cancelled_bytes += copier_.cancel(slot);
  if (options_.poison) copier_.poison(slot);
}

template <typename F>
void Engine::Impl::with_wishes(const F& hook) {
  wishes_allowed_ = true;
  hook();
  wishes_allowed_ = false;
}

template <typename F>
void Engine::Impl::or_fail(const F& work) {
  try {
    work();
  } catch (...) {
    wishes_allowed_ = open_ = false;
    failure_ = std::current_exception();
    throw;
  }
}

Engine::Engine(IDevice& device, StreamId compute, const WeightStore& weights,
               IOffloadPolicy& policy, std::string policy_name, const BudgetSpec& budget,
               EngineOptions options)
    : impl_(std::make_unique<Impl>(device, compute, weights, policy, std::move(policy_name), budget,
                                   options)) {}

Engine::~Engine() = default;

Lease Engine::acquire(const Step& step) {
  impl_->acquire(step);
  return {*this, step};
}

std::uint32_t Engine::wanted_guesses(const Step& step) { return impl_->wanted_guesses(step); }
void Engine::routed(std::span<const UnitId> units) { impl_->routed(units); }
std::optional<Weights> Engine::kept(UnitId unit) const { return impl_->kept(unit); }
std::uint32_t Engine::capacity(UnitKind kind) const { return impl_->capacity(kind); }
bool Engine::is_fixed() const { return impl_->is_fixed(); }
const Counters& Engine::counters() const { return impl_->counters(); }
const EngineShape& Engine::shape() const { return impl_->shape(); }
Weights Engine::use(const Step&, std::size_t i) { return impl_->use(i); }
void Engine::close(const Step&) noexcept { impl_->close(); }
bool Engine::was_here(const Step&, std::size_t i) const { return impl_->was_here(i); }

}  // namespace sluice
