#include "models/calibration/observed_kernels.hpp"

#include <utility>

namespace sluice {
namespace {

class ObservedKernels final : public IKernels {
 public:
  ObservedKernels(std::unique_ptr<IKernels> inner, LinearObserver observer)
      : inner_(std::move(inner)), observer_(std::move(observer)) {}

  void embed(const EmbedArgs& args, NativeStream stream) const override {
    inner_->embed(args, stream);
  }
  void rms_norm(const RmsNormArgs& args, NativeStream stream) const override {
    inner_->rms_norm(args, stream);
  }
  void linear(const LinearArgs& args, NativeStream stream) const override {
    if (observer_(args)) inner_->linear(args, stream);
  }
  void rope_store(const RopeStoreArgs& args, NativeStream stream) const override {
    inner_->rope_store(args, stream);
  }
  void attention(const AttentionArgs& args, NativeStream stream) const override {
    inner_->attention(args, stream);
  }
  void silu_mul(const SiluMulArgs& args, NativeStream stream) const override {
    inner_->silu_mul(args, stream);
  }
  void sample(const SampleArgs& args, NativeStream stream) const override {
    inner_->sample(args, stream);
  }
  void decode_rows(const DecodeRowsArgs& args, NativeStream stream) const override {
    inner_->decode_rows(args, stream);
  }
  void route(const RouteArgs& args, NativeStream stream) const override {
    inner_->route(args, stream);
  }
  void place_experts(const PlaceExpertsArgs& args, NativeStream stream) const override {
    inner_->place_experts(args, stream);
  }
  void expert_pairs(const ExpertPairsArgs& args, NativeStream stream) const override {
    inner_->expert_pairs(args, stream);
  }
  void combine(const CombineArgs& args, NativeStream stream) const override {
    inner_->combine(args, stream);
  }
  void gather_rows(const GatherRowsArgs& args, NativeStream stream) const override {
    inner_->gather_rows(args, stream);
  }
  void add_rows(const AddRowsArgs& args, NativeStream stream) const override {
    inner_->add_rows(args, stream);
  }
  void clear_sums(const ClearSumsArgs& args, NativeStream stream) const override {
    inner_->clear_sums(args, stream);
  }
  void add_sums(const AddSumsArgs& args, NativeStream stream) const override {
    inner_->add_sums(args, stream);
  }
  void prepare(const KernelShapes& shapes) override { inner_->prepare(shapes); }

 private:
  std::unique_ptr<IKernels> inner_;
  LinearObserver observer_;
};

}  // namespace

std::unique_ptr<IKernels> observe(std::unique_ptr<IKernels> inner, LinearObserver observer) {
  return std::make_unique<ObservedKernels>(std::move(inner), std::move(observer));
}

}  // namespace sluice
