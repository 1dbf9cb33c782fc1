// Counts what is asked of a device.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/device/device_decorator.hpp"

namespace sluice::test {

class CountingDevice final : public DeviceDecorator<IDevice> {
 public:
  explicit CountingDevice(std::unique_ptr<IDevice> below)
      : DeviceDecorator(*below), owned_(std::move(below)) {}
  void enqueue(StreamId stream, const Op& op, const Body& body) override {
    ++count[op.name];
    below_.enqueue(stream, op, body);
  }
  void sync(Event event) override {
    ++syncs;
    below_.sync(event);
  }
  void await(StreamId stream, const Signal& signal) override {
    ++syncs;
    below_.await(stream, signal);
  }
  std::map<std::string, std::uint64_t> count;  // of operations, by name
  std::uint64_t syncs = 0;                     // waits of the host

 private:
  std::unique_ptr<IDevice> owned_;
};

}  // namespace sluice::test
