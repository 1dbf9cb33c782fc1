// What the CPU device promises beyond decoder_batch_test.cpp: a row's result depends on the row alone,
// so the pieces that a prompt is cut into do not matter. And what a decoder takes and refuses.
#include <algorithm>

#include "core/device/device_decorator.hpp"
#include "core/engine/resident_provider.hpp"
#include "tests/catch.hpp"
#include "tests/models/rig.hpp"

namespace sluice::test {
namespace {

TEST_CASE("neither the pieces of a prompt nor their groups matter", "[decoder]") {
  const char* const name = GENERATE("qwen3-tiny", "qwen3moe-tiny");
  ModelRig rig(checkpoint(name));
  const std::vector<Ids> prompts{made_up_prompt(130, 2, rig.config().vocab),
                                 made_up_prompt(300, 3, rig.config().vocab),
                                 made_up_prompt(1, 4, rig.config().vocab)};
  const std::vector<Trace> whole =
      trace_on(rig, prompts, 4, {.context = kTraceContext, .sequences = 3});
  for (const std::uint32_t chunk : {1u, 16u, 100u, 130u}) {
    for (const std::uint32_t rows : {1u, 400u, kPrefillRows}) {
      const std::vector<Trace> pieces = trace_on(
          rig, prompts, 4,
          {.context = kTraceContext, .sequences = 3, .prefill_chunk = chunk, .prefill_rows = rows});
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        CAPTURE(name, chunk, rows, i);
        CHECK(same_bits(pieces[i], whole[i]));
      }
    }
  }
}

// On this device a row's result depends on the row alone, so a token that was decoded and the same
// token at the end of a prompt have the same logits.
TEST_CASE("decoding over the ends of pages and spans is the prefill of a longer prompt",
          "[decoder]") {
  const char* const name = GENERATE("llama-tiny", "qwen3moe-tiny-nonorm");
  ModelRig rig(checkpoint(name));
  for (const std::size_t length : {62, 254}) {
    Ids prompt = made_up_prompt(length, 5, rig.config().vocab);
    const Trace decoded = trace_alone(rig, prompt, 6);
    for (std::size_t token = 0; token < 6; ++token) {
      CAPTURE(name, length, token);
      CHECK(same_bits(decoded.logits[token], trace_alone(rig, prompt, 1).logits[0]));
      prompt.push_back(decoded.tokens[token]);
    }
  }
}

TEST_CASE("device_bytes is what a decoder takes", "[decoder]") {
  ModelRig rig(checkpoint(GENERATE("llama-mqa-linear", "qwen3moe-tiny")));
  for (const DecoderLimits limits :
       {DecoderLimits{.context = 1}, DecoderLimits{.context = 65, .sequences = 3},
        DecoderLimits{.context = 2048, .sequences = 16}}) {
    const std::uint64_t before = rig.device().memory_use().device_bytes;
    const auto decoder = rig.decoder(limits);
    CHECK(rig.device().memory_use().device_bytes - before ==
          Decoder::device_bytes(rig.config(), rig.dtype(), limits));
  }
}

TEST_CASE("a decoder that does not fit its device says so", "[decoder]") {
  ModelRig rig(checkpoint("qwen3-tiny"), {},
               make_cpu_device({.memory_limit = 100000, .link_gbps = {}}));
  CHECK_THROWS_AS(rig.decoder({.context = 4096, .sequences = 8}), MemoryLimitError);
}

TEST_CASE("what cannot be decoded is refused", "[decoder]") {
  ModelRig rig(checkpoint("qwen3-tiny"));
  CHECK_THROWS_AS(rig.decoder({.context = 0}), InputError);
  CHECK_THROWS_AS(rig.decoder({.context = 4097}), InputError);
  CHECK_THROWS_AS(rig.decoder({.context = 8, .sequences = 0}), InputError);

  ResidentProvider provider(rig.device(), rig.compute(), rig.weights());
  const auto decoder = rig.decoder({.context = 8, .sequences = 2});
  const std::vector<std::uint32_t> first{0};
  const auto prefill = [&](const Ids& prompt) {
    decoder->prefill(provider, first, std::vector<std::span<const std::int32_t>>{prompt}, true);
  };
  CHECK_THROWS_AS(prefill({1}), Error);  // not started
  CHECK_THROWS_AS(decoder->chosen(0), Error);
  CHECK_THROWS_AS(decoder->start(2, {}), Error);
  decoder->start(0, {});
  CHECK_THROWS_AS(decoder->start(0, {}), Error);
  CHECK_THROWS_AS(prefill({}), InputError);
  CHECK_THROWS_AS(prefill({320}), InputError);
  CHECK_THROWS_AS(prefill({-1}), InputError);
  CHECK_THROWS_AS(prefill(Ids(9, 1)), InputError);
  CHECK_THROWS_AS(decoder->decode(provider, first, true), Error);
  prefill(Ids(8, 1));
  CHECK_THROWS_AS(decoder->decode(provider, first, true), Error);  // the context is full
  CHECK_THROWS_AS(decoder->force(1, 0), Error);
  CHECK_THROWS_AS(decoder->force(0, 320), InputError);
  CHECK_THROWS_AS(decoder->logits(1), Error);
  CHECK_THROWS_AS(decoder->chosen(1), Error);
  CHECK_THROWS_AS(decoder->set_stop_ids(std::vector<std::int32_t>(65, 1)), InputError);
  CHECK_THROWS_AS(decoder->set_stop_ids(Ids{320}), InputError);
  decoder->finish(0);
  CHECK_THROWS_AS(decoder->finish(0), Error);
}

TEST_CASE("positions end where the model's do", "[decoder]") {
  CHECK(Decoder::max_context(load_model_config(checkpoint("qwen3-tiny"))) == 4096);
  CHECK(Decoder::max_context(load_model_config(checkpoint("qwen3-tiny-yarn"))) == 4096);
  CHECK(Decoder::max_context(load_model_config(checkpoint("qwen2-f16-yarn"))) == 512);
  CHECK(Decoder::max_context(load_model_config(checkpoint("llama-mqa-linear"))) == 2048);
}

// Compares what the runs of each repeated sequence enqueue.
class RepeatsDevice final : public DeviceDecorator<IDevice> {
 public:
  explicit RepeatsDevice(std::unique_ptr<IDevice> below)
      : DeviceDecorator(*below), owned_(std::move(below)) {}

  void enqueue(StreamId stream, const Op& op, const Body& body) override {
    if (running_) now_.push_back(describe(stream, op));
    below_.enqueue(stream, op, body);
  }
  void copy(StreamId stream, const Op& op, void* to, const void* from,
            std::uint64_t bytes) override {
    if (running_) now_.push_back(describe(stream, op));
    below_.copy(stream, op, to, from, bytes);
  }
  void sync(Event event) override {
    CHECK_FALSE(running_);  // the host waits for nothing in between
    below_.sync(event);
  }
  std::unique_ptr<Repeated> make_repeated(StreamId) override {
    ++sequences;
    return std::make_unique<Compared>(*this);
  }

  int sequences = 0, runs = 0;

 private:
  class Compared final : public Repeated {
   public:
    explicit Compared(RepeatsDevice& device) : device_(device) {}
    void run(const std::function<void()>& enqueue) override {
      device_.now_.clear();
      device_.running_ = true;
      enqueue();
      device_.running_ = false;
      if (first_.empty()) first_ = device_.now_;
      CHECK(device_.now_ == first_);
      ++device_.runs;
    }

   private:
    RepeatsDevice& device_;
    std::vector<std::string> first_;
  };

  static std::string describe(StreamId stream, const Op& op) {
    std::string out = fmt::format("{} {}", stream, op.name);
    for (const auto& ranges : {op.reads, op.writes})
      for (const Range& range : ranges) out += fmt::format(" {:x}+{}", range.begin, range.size);
    return out;
  }

  std::unique_ptr<IDevice> owned_;
  bool running_ = false;
  std::vector<std::string> now_;
};

TEST_CASE("decode passes that are alike enqueue the same operations", "[decoder]") {
  for (const char* name : {"qwen3-tiny", "qwen3moe-tiny"}) {
    CAPTURE(name);
    auto made = std::make_unique<RepeatsDevice>(make_test_device());
    RepeatsDevice& device = *made;
    ModelRig rig(checkpoint(name), {}, std::move(made));
    const Ids prompt = made_up_prompt(250, 9, rig.config().vocab);
    trace_on(rig, {prompt, prompt}, 12, {.context = kTraceContext, .sequences = 2});
    CHECK(device.runs == 11);
    CHECK(device.sequences == 2);  // up to 256 positions, and beyond
  }
}

}  // namespace
}  // namespace sluice::test
