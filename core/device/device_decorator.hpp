// Forwards to a device below; a decorator overrides what it watches.
#pragma once
#include "core/device/device.hpp"

namespace sluice {

template <typename Base>
class DeviceDecorator : public Base {
 public:
  explicit DeviceDecorator(IDevice& below) : below_(below) {}

  const DeviceInfo& info() const override { return below_.info(); }
  StreamId make_stream(Resource resource, const char* name) override {
    return below_.make_stream(resource, name);
  }
  void enqueue(StreamId stream, const Op& op, const Body& body) override {
    below_.enqueue(stream, op, body);
  }
  void copy(StreamId stream, const Op& op, void* to, const void* from,
            std::uint64_t bytes) override {
    below_.copy(stream, op, to, from, bytes);
  }
  std::unique_ptr<Repeated> make_repeated(StreamId stream) override {
    return below_.make_repeated(stream);
  }
  Event record(StreamId stream) override { return below_.record(stream); }
  void wait(StreamId stream, Event event, WaitFor why) override { below_.wait(stream, event, why); }
  void sync(Event event) override { below_.sync(event); }
  void await(StreamId stream, const Signal& signal) override { below_.await(stream, signal); }
  bool reached(Event event) override { return below_.reached(event); }
  void host(const Op& op) override { below_.host(op); }
  std::uint64_t now_ns() override { return below_.now_ns(); }
  std::uint64_t stall_ns(StreamId stream) override { return below_.stall_ns(stream); }
  void keep_times(StreamId stream) override { below_.keep_times(stream); }
  std::vector<OpTimes> take_times(StreamId stream) override { return below_.take_times(stream); }
  void* allocate(std::uint64_t bytes, std::string_view what) override {
    return below_.allocate(bytes, what);
  }
  void release(void* memory) noexcept override { below_.release(memory); }
  void* allocate_pinned(std::uint64_t bytes, std::string_view what) override {
    return below_.allocate_pinned(bytes, what);
  }
  void release_pinned(void* memory) noexcept override { below_.release_pinned(memory); }
  MemoryUse memory_use() const override { return below_.memory_use(); }

 protected:
  IDevice& below_;
};

}  // namespace sluice
