// A model calibrated with a text: what is watched is what matrices multiply, and the outputs that come
// of it are nearer to the model's than with weights rounded to nearest.
#include "models/calibration/calibrate.hpp"

#include <cmath>
#include <cstring>

#include "core/engine/resident_provider.hpp"
#include "core/weights/convert.hpp"
#include "core/weights/encoding.hpp"
#include "models/calibration/unit_runner.hpp"
#include "models/decoder.hpp"
#include "tests/catch.hpp"
#include "tests/messages.hpp"
#include "tests/models/rig.hpp"
#include "tests/weights/encodings.hpp"

namespace sluice::test {
namespace {

constexpr std::uint32_t kWindow = 96;

CalibrationWindows windows_of(std::size_t count, std::uint64_t seed, std::int32_t vocab) {
  CalibrationWindows out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(made_up_prompt(kWindow, seed + i, vocab));
  return out;
}

// The logits of a window with every unit but the embedding in `encoding`.
std::vector<float> logits(const ModelSource& model, const ITensorSource& source, Encoding encoding,
                          const Ids& tokens) {
  const std::unique_ptr<IDevice> device = make_cpu_device();
  const StreamId stream = device->make_stream(Resource::compute, "compute");
  WeightStore::Options options;
  options.dtype = model.config.dtype;
  options.encodings = all_in(model.plan, encoding);
  // The head is natively in both.
  options.encodings.back() = Encoding::native;
  const WeightStore weights(*device, model.plan, source, options);
  const auto as_stored = [&](const UnitInfo& unit) {
    const Encoding its = unit.kind == UnitKind::head ? Encoding::native : encoding;
    return Transfer{its, its};
  };
  ResidentProvider provider(*device, stream, weights, as_stored);
  Decoder decoder(*device, stream, model.config, weights, model.config.dtype, {.context = kWindow});
  std::vector<float> out;
  decoder.score(provider, 0, tokens, true, [&](const LogitRows& rows) {
    const std::size_t count = rows.count * static_cast<std::size_t>(decoder.vocab());
    out.resize(out.size() + count);
    convert(model.config.dtype, rows.values.data(), DType::f32,
            reinterpret_cast<std::byte*>(out.data() + out.size() - count), count);
  });
  return out;
}

double squared_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
  return sum;
}

std::vector<std::byte> int4_of(const ITensorSource& source, const TensorSpec& matrix) {
  const std::uint64_t codes = matrix.shape[0] * code_row_bytes(Encoding::int4, matrix.shape[1]);
  const std::uint64_t scales = matrix.shape[0] * scale_row_bytes(Encoding::int4, matrix.shape[1]);
  std::vector<std::byte> out(codes + scales);
  source.read_quantised(matrix, Encoding::int4, 0, matrix.shape[0], out.data(), out.data() + codes);
  return out;
}

TEST_CASE("units run one by one give the hidden states of a pass, and show what products read",
          "[calibration]") {
  for (const auto& path : dense_checkpoints()) {
    INFO(path);
    ModelRig rig(path);
    const ModelConfig& config = rig.config();
    const Ids tokens = made_up_prompt(kWindow, 5, config.vocab);
    std::vector<std::vector<float>> seen;
    UnitRunner runner(
        rig.device(), config, rig.weights(), rig.dtype(), kWindow, [&](const LinearArgs& args) {
          seen.emplace_back(std::size_t{args.rows} * args.k);
          convert(args.type, static_cast<const std::byte*>(args.x), DType::f32,
                  reinterpret_cast<std::byte*>(seen.back().data()), seen.back().size());
          return true;
        });
    const auto hidden_size = static_cast<std::size_t>(config.hidden);
    std::vector<std::byte> hidden(kWindow * hidden_size * size_of(rig.dtype()));
    runner.embed(tokens, hidden.data());
    for (const UnitId unit : rig.weights().view().order) {
      seen.clear();
      const std::vector<std::byte> before = hidden;
      runner.run(unit, Encoding::native, rig.weights().slab(unit, Encoding::native), hidden.data(),
                 kWindow);
      REQUIRE(seen.size() == 2);
      CHECK(hidden != before);

      // What the first product reads: the normalised rows.
      const bool attention = rig.weights().spec(unit).kind == UnitKind::attention;
      const std::size_t norm =
          attention ? attention_tensors(config, rig.weights().spec(unit).layer).input_norm
                    : mlp_tensors(config).post_attention_norm;
      const auto widened = [&](DType type, const std::byte* from, std::size_t n) {
        std::vector<float> out(n);
        convert(type, from, DType::f32, reinterpret_cast<std::byte*>(out.data()), n);
        return out;
      };
      const std::vector<float> weight =
          widened(rig.weights().spec(unit).tensors[norm].dtype,
                  rig.weights().slab(unit, Encoding::native) +
                      rig.weights().layout().place(unit, norm, Encoding::native).data,
                  hidden_size);
      const std::vector<float> rows = widened(rig.dtype(), before.data(), kWindow * hidden_size);
      for (std::size_t t = 0; t < kWindow; ++t) {
        double squares = 0;
        for (std::size_t i = 0; i < hidden_size; ++i)
          squares += static_cast<double>(rows[t * hidden_size + i]) * rows[t * hidden_size + i];
        const double root = std::sqrt(squares / static_cast<double>(hidden_size) + config.rms_eps);
        for (std::size_t i = 0; i < hidden_size; ++i) {
          const double expected = rows[t * hidden_size + i] / root * weight[i];
          REQUIRE(std::abs(seen[0][t * hidden_size + i] - expected) <=
                  0.02 * std::abs(expected) + 1e-6);
        }
      }
    }
    // The last unit's rows, normalised and multiplied with the head, are the decoder's logits.
    ResidentProvider provider(rig.device(), rig.compute(), rig.weights());
    DecoderLimits limits;
    limits.context = kWindow;
    const auto decoder = rig.decoder(limits);
    std::vector<float> row;
    decoder->score(provider, 0, tokens, true, [&](const LogitRows& rows) {
      row.resize(static_cast<std::size_t>(config.vocab));
      convert(rig.dtype(), rows.values.data(), DType::f32, reinterpret_cast<std::byte*>(row.data()),
              row.size());
    });
    const UnitId head = static_cast<UnitId>(rig.weights().plan().units.size() - 1);
    const std::byte* slab = rig.weights().slab(head, Encoding::native);
    const auto tensor = [&](std::size_t at) {
      const TensorSpec& spec = rig.weights().spec(head).tensors[at];
      std::vector<float> out(spec.elements());
      convert(spec.dtype, slab + rig.weights().layout().place(head, at, Encoding::native).data,
              DType::f32, reinterpret_cast<std::byte*>(out.data()), out.size());
      return out;
    };
    const std::vector<float> matrix = tensor(head_tensors().weight),
                             norm = tensor(head_tensors().norm);
    std::vector<float> last(hidden_size);
    convert(rig.dtype(), hidden.data() + (kWindow - 1) * hidden_size * size_of(rig.dtype()),
            DType::f32, reinterpret_cast<std::byte*>(last.data()), hidden_size);
    double squares = 0, largest = 0;
    for (const float x : last) squares += static_cast<double>(x) * x;
    const double root = std::sqrt(squares / static_cast<double>(hidden_size) + config.rms_eps);
    for (const float logit : row) largest = std::max(largest, std::abs(static_cast<double>(logit)));
    for (std::size_t token = 0; token < row.size(); ++token) {
      double expected = 0;
      for (std::size_t i = 0; i < hidden_size; ++i)
        expected += last[i] / root * norm[i] * matrix[token * hidden_size + i];
      REQUIRE(std::abs(row[token] - expected) < 0.02 * largest);
    }
  }
}

// Random weights have few directions that matter more than others, so that a single model has little to
// win, and the order of sums, which differs between builds, decides about a percent of it: what must be
// won is won over all of them.
TEST_CASE("calibrated models are nearer to themselves than those rounded to nearest",
          "[calibration]") {
  double ratios = 1;
  std::size_t models = 0;
  for (const auto& path : dense_checkpoints()) {
    INFO(path);
    const ModelSource model = open_checkpoint(path);
    const CalibrationWindows windows = windows_of(12, 40, model.config.vocab);
    std::vector<std::size_t> steps;
    const auto calibrated =
        calibrate_int4(model, windows, [&](std::size_t done, std::size_t total) {
          CHECK(total == model.plan.units.size() - 2);
          steps.push_back(done);
        });
    CHECK(steps.size() == model.plan.units.size() - 1);
    CHECK(std::ranges::is_sorted(steps));
    double of_calibrated = 0, of_nearest = 0;
    for (const Ids& tokens : windows_of(4, 900, model.config.vocab)) {
      const std::vector<float> native = logits(model, *model.tensors, Encoding::native, tokens);
      of_calibrated +=
          squared_difference(logits(model, *calibrated, Encoding::int4, tokens), native);
      of_nearest +=
          squared_difference(logits(model, *model.tensors, Encoding::int4, tokens), native);
    }
    INFO("calibrated " << of_calibrated << ", to nearest " << of_nearest);
    CHECK(of_calibrated < 1.05 * of_nearest);
    ratios *= of_calibrated / of_nearest;
    ++models;
  }
  const double mean = std::pow(ratios, 1.0 / static_cast<double>(models));
  INFO("on average " << mean << " of what rounding to nearest is off by");
  CHECK(mean < 0.93);
}

TEST_CASE("the same text gives the same codes; all matrices but the head's have some",
          "[calibration]") {
  const ModelSource model = open_checkpoint(checkpoint("llama-tiny"));
  const CalibrationWindows windows = windows_of(8, 7, model.config.vocab);
  const auto first = calibrate_int4(model, windows, nullptr);
  const auto second = calibrate_int4(model, windows, nullptr);
  const auto other = calibrate_int4(model, windows_of(8, 70, model.config.vocab), nullptr);
  bool differs = false;
  for (const UnitSpec& unit : model.plan.units)
    for (const TensorSpec& tensor : unit.tensors) {
      const bool of_layer =
          tensor.is_matrix && unit.kind != UnitKind::head && unit.kind != UnitKind::embedding;
      REQUIRE(first->is_quantised(tensor, Encoding::int4) == of_layer);
      CHECK_FALSE(first->is_quantised(tensor, Encoding::int8));
      if (!of_layer) continue;
      CHECK(int4_of(*first, tensor) == int4_of(*second, tensor));
      differs = differs || int4_of(*first, tensor) != int4_of(*other, tensor);
    }
  CHECK(differs);
}

TEST_CASE("models and texts that cannot be calibrated are refused", "[calibration]") {
  const ModelSource experts = open_checkpoint(checkpoint("qwen3moe-tiny"));
  CHECK_THROWS_WITH(calibrate_int4(experts, {{1, 2, 3}}, nullptr),
                    Contains("calibration is for dense models"));
  const ModelSource model = open_checkpoint(checkpoint("llama-tiny"));
  CHECK_THROWS_WITH(calibrate_int4(model, {}, nullptr), Contains("no text to calibrate with"));
  CHECK_THROWS_WITH(calibrate_int4(model, {{1, model.config.vocab}}, nullptr),
                    Contains("is not one of the model's"));
}

}  // namespace
}  // namespace sluice::test
