#include "models/calibration/calibrate.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "core/device/cpu_device.hpp"
#include "core/error.hpp"
#include "core/parallel.hpp"
#include "core/weights/convert.hpp"
#include "core/weights/pack.hpp"
#include "core/weights/weight_store.hpp"
#include "models/calibration/calibrated_source.hpp"
#include "models/calibration/int4_solver.hpp"
#include "models/calibration/moments.hpp"
#include "models/calibration/unit_runner.hpp"
#include "models/model_plan.hpp"

namespace sluice {
namespace {

// How many times the first token of a window counts.
constexpr float kFirstToken = 128;

// A unit's products: qkv and o, or gate/up and down.
constexpr std::size_t kProducts = 2;
constexpr bool writes_residual(std::size_t product) { return product + 1 == kProducts; }
using Inputs = std::array<Matrix, kProducts>;

Matrix widened(DType type, const void* from, std::uint64_t rows, std::uint64_t columns) {
  Matrix out(rows, columns);
  convert(type, static_cast<const std::byte*>(from), DType::f32,
          reinterpret_cast<std::byte*>(out.row(0)), rows * columns);
  return out;
}

Matrix difference(Matrix a, const Matrix& b) {
  std::ranges::transform(a.values, b.values, a.values.begin(), std::minus());
  return a;
}

WeightStore::Options native_options(DType type) {
  WeightStore::Options options;
  options.dtype = type;
  return options;
}

class Calibrator {
 public:
  Calibrator(const ModelSource& model, const CalibrationWindows& windows);

  void run(UnitId unit, CalibratedSource& to);
  std::span<const UnitId> order() const { return view_.order; }

 private:
  using Hidden = std::vector<std::byte>;  // of a window, [tokens, hidden]

  // The unit's product `at` in an int4 slab.
  void quantise(UnitId unit, std::size_t at, std::byte* slab);
  Inputs pass(UnitId unit, Encoding encoding, const std::byte* slab, Hidden& hidden,
              std::size_t computed);
  std::vector<float> weights_of_tokens(std::size_t at, const Matrix& residual) const;
  std::size_t tensor_of(UnitId unit, std::size_t at) const;
  const std::byte* native(UnitId unit) const { return store_.slab(unit, Encoding::native); }
  Matrix residual(const Hidden& hidden) const {
    return widened(type_, hidden.data(), tokens_, hidden_size_);
  }
  void keep(UnitId unit, const std::byte* slab, CalibratedSource& to) const;

  const ModelSource& model_;
  DType type_;
  std::uint64_t tokens_, hidden_size_;  // of a window
  std::unique_ptr<IDevice> device_;
  WeightStore store_;
  const ModelView view_;
  std::vector<Matrix> seen_;  // inputs of the products since a pass began
  std::size_t computed_ = 0;  // products of a pass that are computed
  UnitRunner runner_;
  // By window: before the unit at hand and behind it natively, and before it in int4.
  std::vector<Hidden> before_, behind_, quantised_;
  std::vector<Inputs> inputs_;  // by window, of the unit at hand natively
};

Calibrator::Calibrator(const ModelSource& model, const CalibrationWindows& windows)
    : model_(model),
      type_(model.config.dtype),
      tokens_(windows.front().size()),
      hidden_size_(static_cast<std::uint64_t>(model.config.hidden)),
      device_(make_cpu_device()),
      store_(*device_, model.plan, *model.tensors, native_options(type_)),
      view_(store_.view()),
      runner_(*device_, model_.config, store_, type_, static_cast<std::uint32_t>(tokens_),
              [this](const LinearArgs& args) {
                seen_.push_back(widened(args.type, args.x, args.rows, args.k));
                return seen_.size() <= computed_;
              }),
      behind_(windows.size()),
      inputs_(windows.size()) {
  for (const std::vector<std::int32_t>& window : windows) {
    Hidden& hidden = before_.emplace_back(tokens_ * hidden_size_ * size_of(type_));
    runner_.embed(window, hidden.data());
  }
  quantised_ = before_;
}

void Calibrator::run(UnitId unit, CalibratedSource& to) {
  behind_ = before_;
  for (std::size_t w = 0; w < before_.size(); ++w)
    inputs_[w] = pass(unit, Encoding::native, native(unit), behind_[w], kProducts);

  // What is not a matrix is there from the start; codes are filled in.
  std::vector<std::byte> slab(view_.units[unit].size(Encoding::int4));
  const SlabToFill whole{unit, Encoding::int4, slab.data()};
  pack_slabs(store_.layout(), {&whole, 1}, *model_.tensors, 0, nullptr);
  for (std::size_t at = 0; at < kProducts; ++at) quantise(unit, at, slab.data());

  for (Hidden& hidden : quantised_) pass(unit, Encoding::int4, slab.data(), hidden, kProducts);
  std::swap(before_, behind_);
  keep(unit, slab.data(), to);
}

void Calibrator::quantise(UnitId unit, std::size_t at, std::byte* slab) {
  const std::size_t tensor = tensor_of(unit, at);
  const std::uint64_t n = store_.layout().rows_of_matrix(unit, tensor);
  const TensorSpec& spec = store_.spec(unit).tensors[tensor];
  const Matrix weights =
      widened(spec.dtype, native(unit) + store_.layout().place(unit, tensor, Encoding::native).data,
              n, spec.shape[1]);

  Moments moments;
  for (std::size_t w = 0; w < before_.size(); ++w) {
    Hidden scratch = quantised_[w];
    const Inputs inputs = pass(unit, Encoding::int4, slab, scratch, at);
    const Matrix missed = difference(std::move(inputs_[w][at]), inputs[at]);
    std::optional<Matrix> behind;
    if (writes_residual(at)) behind = difference(residual(before_[w]), residual(quantised_[w]));
    moments.add(inputs[at], missed, behind ? &*behind : nullptr,
                weights_of_tokens(at, residual(behind_[w])));
  }

  const Int4Solver solver(moments.inputs());
  Matrix target = solver.solved(moments.owed(weights));
  std::ranges::transform(weights.values, target.values, target.values.begin(), std::plus());
  const TensorPlace& place = store_.layout().place(unit, tensor, Encoding::int4);
  if (!solver.solve(target, slab + place.data, slab + place.scales))
    throw InputError("{}: {} cannot be stored as int4: its values are not finite, or too large",
                     model_.tensors->describe(), spec.name);
}

// The inputs of the unit's products for one window, whose hidden states go through it. Only the first
// `computed` products are: the inputs are right up to the one after, the hidden states if it is all.
Inputs Calibrator::pass(UnitId unit, Encoding encoding, const std::byte* slab, Hidden& hidden,
                        std::size_t computed) {
  computed_ = computed;
  seen_.clear();
  runner_.run(unit, encoding, slab, hidden.data(), static_cast<std::uint32_t>(tokens_));
  if (seen_.size() != kProducts)
    throw Error("unit {} has {} products; {} are calibrated", unit, seen_.size(), kProducts);
  return {std::move(seen_[0]), std::move(seen_[1])};
}

std::vector<float> Calibrator::weights_of_tokens(std::size_t at, const Matrix& residual) const {
  std::vector<float> out(tokens_, 1.0f);
  if (writes_residual(at))
    for (std::uint64_t t = 0; t < tokens_; ++t) {
      double squares = 0;
      for (std::uint64_t i = 0; i < hidden_size_; ++i)
        squares += static_cast<double>(residual.row(t)[i]) * residual.row(t)[i];
      if (squares > 0) out[t] = static_cast<float>(static_cast<double>(hidden_size_) / squares);
    }
  out.front() *= kFirstToken;
  return out;
}

std::size_t Calibrator::tensor_of(UnitId unit, std::size_t at) const {
  if (store_.spec(unit).kind == UnitKind::attention) {
    const AttentionTensors tensors = attention_tensors(model_.config, store_.spec(unit).layer);
    return at == 0 ? tensors.q : tensors.o;
  }
  const MlpTensors tensors = mlp_tensors(model_.config);
  return at == 0 ? tensors.gate : tensors.down;
}

void Calibrator::keep(UnitId unit, const std::byte* slab, CalibratedSource& to) const {
  const std::vector<TensorSpec>& tensors = store_.spec(unit).tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorPlace& place = store_.layout().place(unit, i, Encoding::int4);
    if (!place.quantised) continue;
    const std::uint64_t n = tensors[i].shape[0], k = tensors[i].shape[1];
    const std::byte *codes = slab + place.data, *scales = slab + place.scales;
    to.add(tensors[i].name, {{codes, codes + n * code_row_bytes(Encoding::int4, k)},
                             {scales, scales + n * scale_row_bytes(Encoding::int4, k)}});
  }
}

void check(const ModelSource& model, const CalibrationWindows& windows) {
  if (model.config.experts.count > 0)
    throw InputError("{} has {} experts a layer; calibration is for dense models",
                     name_of(model.config.architecture), model.config.experts.count);
  if (model.config.quantisation)
    throw InputError("{}: its matrices come quantised and are not quantised once more",
                     model.tensors->describe());
  if (windows.empty() || windows.front().empty())
    throw InputError("there is no text to calibrate with");
  for (const std::vector<std::int32_t>& window : windows) {
    if (window.size() != windows.front().size())
      throw Error("windows of {} and {} tokens are calibrated with; they have one length",
                  windows.front().size(), window.size());
    for (const std::int32_t id : window)
      if (id < 0 || id >= model.config.vocab)
        throw InputError("the token id {} is not one of the model's, which are 0 to {}", id,
                         model.config.vocab - 1);
  }
}

}  // namespace

std::unique_ptr<ITensorSource> calibrate_int4(const ModelSource& model,
                                              const CalibrationWindows& windows,
                                              const CalibrationProgress& progress) {
  check(model, windows);
  Calibrator calibrator(model, windows);
  auto out = std::make_unique<CalibratedSource>(*model.tensors);
  const std::span<const UnitId> order = calibrator.order();
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (progress) progress(i, order.size());
    calibrator.run(order[i], *out);
  }
  if (progress) progress(order.size(), order.size());
  return out;
}

}  // namespace sluice
