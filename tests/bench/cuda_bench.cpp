// Measures the CUDA device with a synthetic model and prints one JSON object a line: each kernel of
// a decode pass beside the device's copy rate, a prefill beside its matrix products alone, whole
// passes with everything resident. Ratios are to what was measured in the same run.
//
//   cuda_bench [--model NAME] [--shapes DIR] [--encoding native|int8|int4] [--prompt N] [--tokens N]
//              [--batch N] [copy|kernels|prefill|decode]...
//
// The encoding is that of the layers; the head is native.
#include <cuda_runtime.h>
#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "core/device/cuda_device.hpp"
#include "core/device/cuda_error.hpp"
#include "core/engine/resident_provider.hpp"
#include "core/weights/encoding.hpp"
#include "models/generator.hpp"
#include "models/model_plan.hpp"
#include "models/model_source.hpp"
#include "models/ops/cuda_launchers.hpp"
#include "models/ops/cuda_matmul.hpp"

namespace sluice {
namespace {

struct Options {
  std::string model = "qwen3-8b", shapes = "configs/models";
  Encoding encoding = Encoding::native;
  std::uint32_t prompt = 512, tokens = 128, batch = 1;
  std::vector<std::string> parts;

  bool wants(const char* part) const {
    return parts.empty() || std::ranges::find(parts, part) != parts.end();
  }
};

class Timer {
 public:
  Timer() {
    SLUICE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    SLUICE_CUDA_CHECK(cudaEventCreate(&begin_));
    SLUICE_CUDA_CHECK(cudaEventCreate(&end_));
  }
  ~Timer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaStreamDestroy(stream_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  cudaStream_t stream() const { return stream_; }

  // Seconds of one of `calls` calls, the median of several goes after one that does not count.
  double seconds(int calls, const std::function<void(int)>& call) {
    std::vector<double> times;
    for (int go = 0; go < 6; ++go) {
      SLUICE_CUDA_CHECK(cudaEventRecord(begin_, stream_));
      for (int i = 0; i < calls; ++i) call(i);
      SLUICE_CUDA_CHECK(cudaEventRecord(end_, stream_));
      SLUICE_CUDA_CHECK(cudaEventSynchronize(end_));
      float ms = 0;
      SLUICE_CUDA_CHECK(cudaEventElapsedTime(&ms, begin_, end_));
      if (go > 0) times.push_back(static_cast<double>(ms) / 1e3 / calls);
    }
    std::ranges::nth_element(times, times.begin() + 2);
    return times[2];
  }
  // The same as one graph, so that the host's launches do not count.
  double seconds_in_graph(int calls, const std::function<void(int)>& call) {
    for (int i = 0; i < calls; ++i) call(i);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    SLUICE_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < calls; ++i) call(i);
    SLUICE_CUDA_CHECK(cudaStreamEndCapture(stream_, &graph));
    SLUICE_CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
    const double all = seconds(1, [&](int) { SLUICE_CUDA_CHECK(cudaGraphLaunch(exec, stream_)); });
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    return all / calls;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        source_(open_model(SyntheticLocation{options.model}, options.shapes)),
        device_(make_cuda_device()),
        compute_(device_->make_stream(Resource::compute, "compute")),
        weights_(*device_, source_.plan, *source_.tensors, {.encodings = encodings()}),
        resident_(*device_, compute_, weights_, [this](const UnitInfo& unit) {
          const Encoding e = encoding_of(unit.kind);
          return Transfer{e, e};
        }) {}

  // Bytes read and written a second by a copy within the device: what all is compared with.
  void copy() {
    constexpr std::uint64_t kBytes = 4ull << 30;
    const Buffer from(*device_, Buffer::Where::device, kBytes, "copy");
    const Buffer to(*device_, Buffer::Where::device, kBytes, "copy");
    SLUICE_CUDA_CHECK(cudaMemset(from.data(), 1, kBytes));
    const double seconds = timer_.seconds(4, [&](int) {
      SLUICE_CUDA_CHECK(cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice,
                                        timer_.stream()));
    });
    copy_gbps_ = 2 * static_cast<double>(kBytes) / seconds / 1e9;
    fmt::print("{{\"what\": \"device copy\", \"gbps\": {:.0f}}}\n", copy_gbps_);
  }

  // Each kernel of a decode pass over all layers' own weights, so that no cache holds them.
  void kernels() {
    Pieces p = pieces(options_.batch);
    const int layers = source_.config.layers;
    const auto report = [&](std::string_view what, std::uint64_t bytes, auto&& call) {
      const double plain = timer_.seconds(layers, call);
      const double graph = timer_.seconds_in_graph(layers, call);
      fmt::print(
          "{{\"what\": \"{}\", \"model\": \"{}\", \"encoding\": \"{}\", \"rows\": {}, \"us\": "
          "{:.2f}, \"graph_us\": {:.2f}, \"graph_gbps\": {:.0f}, \"of_copy\": {:.3f}}}\n",
          what, options_.model, name_of(options_.encoding), options_.batch, plain * 1e6,
          graph * 1e6, static_cast<double>(bytes) / graph / 1e9,
          copy_gbps_ > 0 ? static_cast<double>(bytes) / graph / 1e9 / copy_gbps_ : 0);
    };
    const auto matrix = [&](const LinearArgs& a) {
      const Encoding e = options_.encoding;
      return e == Encoding::native ? std::uint64_t{2} * a.n * a.k
                                   : a.n * (code_row_bytes(e, a.k) + scale_row_bytes(e, a.k));
    };
    const NativeStream stream = timer_.stream();
    const auto qkv = [&](int i) {
      kernels_->norm_linear({p.norm, of_attention(p.qkv, i, &AttentionTensors::q)}, stream);
    };
    const auto o = [&](int i) {
      kernels_->linear(of_attention(p.o, i, &AttentionTensors::o), stream);
    };
    const auto gated = [&](int i) {
      kernels_->gated({p.norm, of_mlp(p.gate_up, i, &MlpTensors::gate), p.silu}, stream);
    };
    const auto down = [&](int i) {
      kernels_->linear(of_mlp(p.down, i, &MlpTensors::down), stream);
    };
    report("norm_linear qkv", matrix(p.qkv), qkv);
    report("linear o", matrix(p.o), o);
    report("gated", matrix(p.gate_up), gated);
    report("linear down", matrix(p.down), down);
    report("all products of a layer",
           matrix(p.qkv) + matrix(p.o) + matrix(p.gate_up) + matrix(p.down), [&](int i) {
             qkv(i);
             o(i);
             gated(i);
             down(i);
           });
    report("norm_linear head", std::uint64_t{2} * p.head.n * p.head.k, [&](int) {
      kernels_->norm_linear({p.norm, p.head}, stream);
    });
    report("rope_attention",
           std::uint64_t{4} * p.attention.rope.kv.kv_heads * p.attention.rope.kv.head_dim *
               (options_.prompt + 1),
           [&](int) { kernels_->rope_attention(p.attention, stream); });
    report("sample", std::uint64_t{2} * p.sample.vocab,
           [&](int) { kernels_->sample(p.sample, stream); });
  }

  // A prompt's matrix products alone, through the same library and algorithms.
  double products(std::uint32_t rows) {
    CudaMatmul matmul(*device_);
    Pieces p = pieces(rows);
    const int layers = source_.config.layers;
    const auto multiply = [&](const LinearArgs& args) { matmul(args, args.n, timer_.stream()); };
    const auto run = [&](int i) {
      multiply(of_attention(p.qkv, i, &AttentionTensors::q));
      multiply(of_attention(p.o, i, &AttentionTensors::o));
      multiply(of_mlp(p.gate_up, i, &MlpTensors::gate));
      multiply(of_mlp(p.down, i, &MlpTensors::down));
    };
    return timer_.seconds(layers, run) * layers;
  }

  void prefill() {
    for (const std::uint32_t prompt : {512u, 2048u}) {
      const double products_s = products(prompt);
      Run run(*this, prompt + 8);
      run.generate(prompt, 1);
      std::vector<double> times;
      for (int i = 0; i < 5; ++i) times.push_back(run.generate(prompt, 1).prefill_s);
      std::ranges::sort(times);
      const double seconds = times[2];
      fmt::print(
          "{{\"what\": \"prefill\", \"model\": \"{}\", \"prompt\": {}, \"ms\": {:.2f}, \"tok_s\": "
          "{:.0f}, "
          "\"products_ms\": {:.2f}, \"ratio\": {:.3f}}}\n",
          options_.model, prompt, seconds * 1e3, prompt / seconds, products_s * 1e3,
          seconds / products_s);
      parts_of_prefill(prompt);
    }
  }

  void decode() {
    Run run(*this, options_.prompt + options_.tokens);
    run.generate(options_.prompt, options_.tokens);
    for (int i = 0; i < 3; ++i) {
      const double seconds = run.generate(options_.prompt, options_.tokens).decode_s;
      const double pass = seconds / (options_.tokens - 1);
      const ModelConfig& c = source_.config;
      const double kv =
          4.0 * c.layers * c.kv_size() * (options_.prompt + options_.tokens / 2.0) * options_.batch;
      const double bytes = static_cast<double>(resident_.loaded_bytes()) + kv;
      fmt::print(
          "{{\"what\": \"decode\", \"model\": \"{}\", \"prompt\": {}, \"tokens\": {}, \"batch\": "
          "{}, "
          "\"passes_s\": {:.1f}, \"gbps\": {:.0f}, \"of_copy\": {:.3f}}}\n",
          options_.model, options_.prompt, options_.tokens, options_.batch, 1 / pass,
          bytes / pass / 1e9, copy_gbps_ > 0 ? bytes / pass / 1e9 / copy_gbps_ : 0);
    }
  }

 private:
  // A decoder and what runs it.
  class Run {
   public:
    struct Times {
      double prefill_s = 0, decode_s = 0;
    };
    Run(Bench& bench, std::uint32_t context)
        : bench_(bench),
          decoder_(*bench.device_, bench.compute_, bench.source_.config, bench.weights_,
                   DType::bf16, {.context = context, .sequences = bench.options_.batch}),
          generator_(*bench.device_, decoder_, bench.resident_, {}) {}

    Times generate(std::uint32_t prompt, std::uint32_t tokens) {
      GenerationRequest request;
      request.prompt.resize(prompt);
      std::iota(request.prompt.begin(), request.prompt.end(), 1);
      request.max_new_tokens = tokens;
      request.ignore_eos = true;
      const std::vector<GenerationRequest> requests(bench_.options_.batch, request);
      generator_.run(requests, bench_.options_.batch);
      const GenerationTimes& times = generator_.times();
      return {static_cast<double>(times.prefill_ns) / 1e9,
              static_cast<double>(times.decode_ns) / 1e9};
    }

   private:
    Bench& bench_;
    Decoder decoder_;
    Generator generator_;
  };

  // The operands of a layer's operations, in memory of their own.
  struct Pieces {
    std::vector<Buffer> memory;
    RmsNormArgs norm;
    LinearArgs qkv, o, gate_up, down, head;
    SiluMulArgs silu;
    RopeAttentionArgs attention;
    SampleArgs sample;
  };

  Pieces pieces(std::uint32_t rows) {
    const ModelConfig& c = source_.config;
    const auto size = [](std::int32_t n) { return static_cast<std::uint32_t>(n); };
    const std::uint32_t hidden = size(c.hidden), inter = size(c.intermediate),
                        vocab = size(c.vocab);
    const std::uint32_t q = size(c.q_size()), kv = size(c.kv_size());
    Pieces p;
    const auto room = [&](std::uint64_t bytes) {
      p.memory.emplace_back(*device_, Buffer::Where::device, bytes, "operands");
      SLUICE_CUDA_CHECK(cudaMemset(p.memory.back().data(), 0, bytes));
      return p.memory.back().data();
    };
    const auto values = [&](std::uint64_t count) {
      std::vector<std::uint16_t> host(count);
      std::uint32_t state = 1;
      for (auto& v : host) {
        state = state * 1664525u + 1013904223u;
        v = static_cast<std::uint16_t>(0x3f00u | (state >> 31 << 15) | (state >> 24 & 0x7f));
      }
      std::byte* to = room(2 * count);
      SLUICE_CUDA_CHECK(cudaMemcpy(to, host.data(), 2 * count, cudaMemcpyHostToDevice));
      return to;
    };
    std::byte* const normed = values(std::uint64_t{rows} * hidden);
    std::byte* const wide = values(std::uint64_t{rows} * std::max(q + 2 * kv, 2 * inter));
    std::byte* const narrow = values(std::uint64_t{rows} * std::max(q, inter));
    p.norm = {.x = values(std::uint64_t{rows} * hidden),
              .weight = values(hidden),
              .out = normed,
              .rows = rows,
              .cols = hidden,
              .eps = 1e-6f};
    const auto linear = [&](const void* x, void* out, std::uint32_t n, std::uint32_t k) {
      return LinearArgs{.x = x, .out = out, .rows = rows, .n = n, .k = k};
    };
    p.qkv = linear(normed, wide, q + 2 * kv, hidden);
    p.o = linear(narrow, normed, hidden, q);
    p.o.residual = room(std::uint64_t{2} * rows * hidden);
    p.gate_up = linear(normed, wide, 2 * inter, hidden);
    p.silu = {.gate_up = wide, .out = narrow, .rows = rows, .inter = inter};
    p.down = linear(narrow, normed, hidden, inter);
    p.down.residual = p.o.residual;
    p.head = linear(normed, room(std::uint64_t{2} * rows * vocab), vocab, hidden);
    p.head.weight = weights_of(static_cast<UnitId>(weights_.plan().units.size() - 1));

    const std::uint32_t context = std::max(options_.prompt + 1, rows);
    const std::uint32_t pages = (context + kPageTokens - 1) / kPageTokens;
    const bool consecutive = rows > kFewRows;
    const std::uint32_t sequences = consecutive ? 1 : rows;
    std::vector<std::int32_t> table(std::size_t{sequences} * pages), owners(rows), positions(rows);
    std::iota(table.begin(), table.end(), 0);
    for (std::uint32_t r = 0; r < rows; ++r) {
      owners[r] = consecutive ? 0 : static_cast<std::int32_t>(r);
      positions[r] = static_cast<std::int32_t>(consecutive ? r : options_.prompt);
    }
    const auto ints = [&](const std::vector<std::int32_t>& host) {
      std::byte* to = room(4 * host.size());
      SLUICE_CUDA_CHECK(cudaMemcpy(to, host.data(), 4 * host.size(), cudaMemcpyHostToDevice));
      return reinterpret_cast<std::int32_t*>(to);
    };
    KvLayer layer;
    layer.page_bytes = std::uint64_t{4} * kPageTokens * kv;
    layer.page_count = table.size();
    layer.pages = values(layer.page_count * layer.page_bytes / 2);
    layer.page_table = ints(table);
    layer.sequences = sequences;
    layer.pages_per_sequence = pages;
    layer.kv_heads = size(c.kv_heads);
    layer.head_dim = size(c.head_dim);
    const RowIndex index{nullptr, ints(owners), ints(positions), rows};
    const std::byte* weight = values(layer.head_dim);
    const std::uint64_t angles = std::uint64_t{context} * layer.head_dim / 2;
    p.attention.rope = {.qkv = wide,
                        .rows = index,
                        .heads = size(c.heads),
                        .q_norm = weight,
                        .k_norm = weight,
                        .eps = 1e-6f,
                        .cos = reinterpret_cast<const float*>(room(4 * angles)),
                        .sin = reinterpret_cast<const float*>(room(4 * angles)),
                        .context = context,
                        .kv = layer};
    p.attention.attention = {.qkv = wide,
                             .rows = index,
                             .heads = size(c.heads),
                             .scale = 0.1f,
                             .kv = layer,
                             .out = narrow,
                             .consecutive = consecutive,
                             .longest = context};
    p.sample = {
        .logits = p.head.out,
        .rows = std::min(rows, kFewRows),
        .vocab = vocab,
        .sequences = index.sequences,
        .params = reinterpret_cast<const SamplingParams*>(room(rows * sizeof(SamplingParams))),
        .next_tokens = ints(positions),
        .lengths = ints(positions),
        .generated = ints(positions),
        .chosen = ints(positions)};
    return p;
  }

  void parts_of_prefill(std::uint32_t rows) {
    Pieces p = pieces(rows);
    const int layers = source_.config.layers;
    const NativeStream stream = timer_.stream();
    const auto report = [&](const char* what, auto&& call) {
      fmt::print("{{\"what\": \"{}\", \"model\": \"{}\", \"rows\": {}, \"us\": {:.2f}}}\n", what,
                 options_.model, rows, timer_.seconds(layers, call) * 1e6);
    };
    report("product qkv",
           [&](int i) { kernels_->linear(of_attention(p.qkv, i, &AttentionTensors::q), stream); });
    report("product gate_up",
           [&](int i) { kernels_->linear(of_mlp(p.gate_up, i, &MlpTensors::gate), stream); });
    report("product o and residual",
           [&](int i) { kernels_->linear(of_attention(p.o, i, &AttentionTensors::o), stream); });
    report("product down and residual",
           [&](int i) { kernels_->linear(of_mlp(p.down, i, &MlpTensors::down), stream); });
    report("finish", [&](int) {
      cuda_add_residual(p.o, {.stream = timer_.stream(), .overlap = true, .processors = 1});
    });
    report("rms_norm", [&](int) { kernels_->rms_norm(p.norm, stream); });
    report("rope_store", [&](int) { kernels_->rope_store(p.attention.rope, stream); });
    report("attention", [&](int) { kernels_->attention(p.attention.attention, stream); });
    report("silu_mul", [&](int) { kernels_->silu_mul(p.silu, stream); });
  }

  Encoding encoding_of(UnitKind kind) const {
    return kind == UnitKind::head || kind == UnitKind::embedding ? Encoding::native
                                                                 : options_.encoding;
  }
  std::vector<EncodingSet> encodings() const {
    std::vector<EncodingSet> out;
    for (const UnitSpec& unit : source_.plan.units) out.emplace_back(encoding_of(unit.kind));
    return out;
  }

  const std::byte* weights_of(UnitId unit) {
    return resident_.acquire({.index = 0, .needs = {&unit, 1}}).use(0).data;
  }
  // The matrix that begins with `tensor` of a layer's attention or MLP.
  LinearArgs of_attention(LinearArgs args, int layer, std::size_t AttentionTensors::*tensor) {
    return of_unit(args, 2 * layer, attention_tensors(source_.config, layer).*tensor);
  }
  LinearArgs of_mlp(LinearArgs args, int layer, std::size_t MlpTensors::*tensor) {
    return of_unit(args, 2 * layer + 1, mlp_tensors(source_.config).*tensor);
  }
  LinearArgs of_unit(LinearArgs args, int place, std::size_t tensor) {
    const UnitId unit = weights_.view().order[static_cast<std::size_t>(place)];
    const std::byte* slab = weights_of(unit);
    const TensorPlace& at = weights_.layout().place(unit, tensor, options_.encoding);
    args.encoding = options_.encoding;
    args.weight = slab + at.data;
    if (at.quantised) args.scales = slab + at.scales;
    return args;
  }

  Options options_;
  ModelSource source_;
  std::unique_ptr<IDevice> device_;
  StreamId compute_;
  WeightStore weights_;
  ResidentProvider resident_;
  std::unique_ptr<IKernels> kernels_ = make_kernels(*device_);
  Timer timer_;
  double copy_gbps_ = 0;
};

Encoding encoding_named(std::string_view name) {
  for (const Encoding e : {Encoding::native, Encoding::int8, Encoding::int4})
    if (name_of(e) == name) return e;
  throw InputError("--encoding {} is not native, int8 or int4", name);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.starts_with("--") && i + 1 == argc) throw InputError("{} needs a value", arg);
    if (arg == "--model")
      options.model = argv[++i];
    else if (arg == "--shapes")
      options.shapes = argv[++i];
    else if (arg == "--encoding")
      options.encoding = encoding_named(argv[++i]);
    else if (arg == "--prompt")
      options.prompt = static_cast<std::uint32_t>(std::stoul(argv[++i]));
    else if (arg == "--tokens")
      options.tokens = static_cast<std::uint32_t>(std::stoul(argv[++i]));
    else if (arg == "--batch")
      options.batch = static_cast<std::uint32_t>(std::stoul(argv[++i]));
    else
      options.parts.push_back(arg);
  }
  return options;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  try {
    const sluice::Options options = sluice::parse(argc, argv);
    sluice::Bench bench(options);
    if (options.wants("copy")) bench.copy();
    if (options.wants("kernels")) bench.kernels();
    if (options.wants("prefill")) bench.prefill();
    if (options.wants("decode")) bench.decode();
  } catch (const std::exception& error) {
    fmt::print(stderr, "cuda_bench: {}\n", error.what());
    return 1;
  }
}
