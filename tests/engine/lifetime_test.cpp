// Engines that end early, engines side by side, and what a step costs.
#include <array>
#include <atomic>
#include <cstdlib>
#include <new>

#include "core/device/make_device.hpp"
#include "core/engine/resident_provider.hpp"
#include "tests/catch.hpp"
#include "tests/engine/rig.hpp"

namespace {

std::atomic<std::uint64_t> allocations{0};

void* counted(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// Not inlined: g++ would see a free() of what a new gave, and warn.
[[gnu::noinline]] void* operator new(std::size_t bytes) { return counted(bytes); }
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return counted(bytes); }
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace sluice::test {
namespace {

// Does nothing, and nothing on the heap.
class IdleDevice final : public IDevice {
 public:
  const DeviceInfo& info() const override { return info_; }
  StreamId make_stream(Resource, const char*) override { return ++streams_; }
  void enqueue(StreamId, const Op&, const Body&) override {}
  void copy(StreamId, const Op&, void*, const void*, std::uint64_t) override {}
  Event record(StreamId stream) override { return {stream, ++events_}; }
  void wait(StreamId, Event, WaitFor) override {}
  void sync(Event) override {}
  bool reached(Event) override { return ++events_ % 3 == 0; }
  void host(const Op&) override {}
  std::uint64_t now_ns() override { return 0; }
  std::uint64_t stall_ns(StreamId) override { return 0; }
  void keep_times(StreamId) override {}
  std::vector<OpTimes> take_times(StreamId) override { return {}; }
  void* allocate(std::uint64_t bytes, std::string_view) override { return place(bytes); }
  void release(void*) noexcept override {}
  void* allocate_pinned(std::uint64_t bytes, std::string_view) override { return place(bytes); }
  void release_pinned(void*) noexcept override {}
  MemoryUse memory_use() const override { return {}; }

 private:
  void* place(std::uint64_t bytes) {
    next_ += bytes + 4096;
    return reinterpret_cast<void*>(next_ - bytes - 4096);
  }
  DeviceInfo info_{DeviceKind::sim, "idle", 1ull << 40, 1ull << 40, false};
  StreamId streams_ = 0;
  std::uint64_t events_ = 0, next_ = 1ull << 32;
};

// Certain wishes, guesses, hints, evictions of both: every path that a steady state takes.
class BusyPolicy final : public IOffloadPolicy {
 public:
  void before(const Step& step, Actions& actions) override {
    for (UnitId unit : step.soon.first(std::min<std::size_t>(2, step.soon.size())))
      static_cast<void>(actions.prefetch(unit));
    static_cast<void>(actions.prefetch(static_cast<UnitId>(step.index * 7 % 40)));
    actions.drop(static_cast<UnitId>(step.index * 5 % 40));
  }
  void routed(std::span<const UnitId> units, Actions& actions) override {
    for (UnitId unit : units) static_cast<void>(actions.prefetch(unit));
  }
};

}  // namespace

TEST_CASE("a step allocates nothing once the run is under way") {
  IdleDevice device;
  Bench bench(device, {.layers = 4, .experts = 8, .experts_per_token = 2});
  BusyPolicy policy;
  // Not through the audit, which keeps a book of its own on the heap.
  Engine engine(device, bench.compute, bench.store, policy, "busy", LayerBudget{2},
                {.chunk_bytes = 300, .guess_window_bytes = 900});
  const std::vector<UnitId> walk{1, 2, 3, 10, 11, 12, 19, 20, 21, 28, 29, 30, 37};
  const auto token = [&](std::uint64_t t) {
    for (std::size_t i = 0; i < walk.size(); ++i) {
      const std::span<const UnitId> all(walk);
      engine.routed(all.first(3));
      Lease lease = engine.acquire(
          {.index = t * walk.size() + i, .needs = all.subspan(i, 1), .soon = all.subspan(i + 1)});
      static_cast<void>(lease.use(0));
    }
  };
  for (std::uint64_t t = 0; t < 50; ++t) token(t);
  const std::uint64_t before = allocations;
  for (std::uint64_t t = 50; t < 250; ++t) token(t);
  CHECK(allocations - before == 0);
  CHECK(engine.counters().loads > 1000);
}

TEST_CASE("an engine that ends in the middle of a run drains before its memory goes") {
  for (std::size_t steps = 0; steps < 12; ++steps)
    for (const std::uint32_t lanes : {0u, 1u, 2u}) {
      CAPTURE(steps, lanes);
      RecordingDevice device;
      const auto threads = make_device({DeviceKind::cpu, 16 << 20, 0.02});
      for (IDevice* on : std::array<IDevice*, 2>{&device, threads.get()}) {
        Bench bench(*on, {.layers = 3});
        Walker walker(bench);
        PrefetchPolicy policy(2, lanes);
        auto engine =
            std::make_unique<Engine>(bench.device, bench.compute, bench.store, policy, "tested",
                                     LayerBudget{2}, EngineOptions{.chunk_bytes = 100});
        const std::vector<UnitId> walk{1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6, 7};
        const std::span<const UnitId> all(walk);
        for (std::size_t i = 0; i < steps; ++i)
          walker.step(*engine, {walk[i]},
                      {walk.begin() + static_cast<std::ptrdiff_t>(i) + 1, walk.end()});
        // A lease that is open when the engine goes, and never closed.
        alignas(Lease) std::array<std::byte, sizeof(Lease)> storage;
        auto* lease = new (storage.data()) Lease(engine->acquire(
            {.index = steps, .needs = all.subspan(steps, 1), .soon = all.subspan(steps + 1)}));
        if (steps % 2) walker.read(lease->use(0), walk[steps]);
        engine.reset();
        CHECK(on->memory_use().device_bytes == 0);
        CHECK(walker.wrong_reads() == 0);
      }
    }
}

TEST_CASE("a lease whose forward pass throws is closed and the run goes on") {
  RecordingDevice device;
  Bench bench(device, {.layers = 3});
  Walker walker(bench);
  PrefetchPolicy policy;
  {
    Engine engine(bench.device, bench.compute, bench.store, policy, "tested", LayerBudget{1});
    const std::vector<UnitId> needs{1, 2};
    try {
      Lease lease = engine.acquire({.index = 0, .needs = needs});
      walker.read(lease.use(0), 1);
      throw Error("the forward pass failed");
    } catch (const Error&) {
    }
    walker.next_index = 1;
    walker.run(engine, 2);
    CHECK(walker.wrong_reads() == 0);
  }
}

TEST_CASE("an operation that throws on its stream ends the run but not the process") {
  const auto device = make_device({DeviceKind::cpu, 16 << 20, {}});
  Bench bench(*device, {.layers = 3});
  NaivePolicy policy;
  Engine engine(bench.device, bench.compute, bench.store, policy, "tested", LayerBudget{1});
  const auto run = [&](std::uint64_t index) {
    const std::vector<UnitId> needs{1 + static_cast<UnitId>(index % 6)};
    Lease lease = engine.acquire({.index = index, .needs = needs});
    static_cast<void>(lease.use(0));
    device->enqueue(bench.compute, {.name = "fails"},
                    [](NativeStream) { throw std::runtime_error("out of luck"); });
  };
  std::string what;
  try {
    for (std::uint64_t i = 0; i < 50; ++i) run(i);
    device->sync(device->record(bench.compute));
  } catch (const std::exception& e) {
    what = e.what();
  }
  CHECK(what == "out of luck");
}

TEST_CASE("two engines work side by side on one device and on two") {
  const auto first = make_device({DeviceKind::cpu, 16 << 20, {}});
  const auto second = make_device({DeviceKind::cpu, 16 << 20, {}});
  for (IDevice* other : {first.get(), second.get()}) {
    Bench a(*first, {.layers = 5}), b(*other, {.layers = 3, .experts = 4, .experts_per_token = 2});
    Walker walk_a(a), walk_b(b);
    KeepPolicy keep(2, 2);
    ChaosPolicy chaos(11);
    Engine engine_a(a.device, a.compute, a.store, keep, "keep", LayerBudget{3}, {.poison = true});
    Engine engine_b(b.device, b.compute, b.store, chaos, "chaos", LayerBudget{2}, {.poison = true});
    for (int i = 0; i < 5; ++i) {
      walk_a.run(engine_a, 2);
      walk_b.run(engine_b, 2);
    }
    CHECK(walk_a.wrong_reads() == 0);
    CHECK(walk_b.wrong_reads() == 0);
  }
}

}  // namespace sluice::test
