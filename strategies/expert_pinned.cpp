// Keeps the experts that a recorded run used most, and caches the others in what slots are left, the
// least recently used one going.
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include "sluice/expert_cache.hpp"
#include "sluice/routing_file.hpp"

namespace {

using namespace sluice;

constexpr std::array kParams{
    kExpertScope,
    kExpertEncoding,
    kExpertPrefill,
    kExpertPrefillSlots,
    ParamSpec{"profile", ParamType::text, 0, 0, 0, "needed: a file that `sluice profile` wrote"},
    ParamSpec{"pinned_percent", ParamType::integer, 50, 0, 99, "of the slots: of experts kept"}};

std::string contents_of(const std::string& path) {
  if (path.empty())
    throw std::invalid_argument("profile is missing; give it a file that `sluice profile` wrote");
  std::error_code error;
  std::ifstream in;
  if (std::filesystem::is_regular_file(path, error)) in.open(path, std::ios::binary);
  if (!in) throw std::invalid_argument("profile " + path + ": no such file can be read");
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

class ExpertPinned final : public ExpertCache {
 public:
  explicit ExpertPinned(const Params& params)
      : ExpertCache(params),
        percent_(static_cast<std::uint64_t>(params.integer("pinned_percent"))),
        profile_(params.text("profile")) {
    const std::string text = contents_of(profile_);
    try {
      count(text);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument("profile " + profile_ + ": " + error.what());
    }
  }

 private:
  void count(const std::string& text) {
    RoutingReader reader(text);
    shape_ = reader.shape();
    for (RoutingLine line; reader.next(line);) {
      const auto layer = static_cast<std::size_t>(line.layer);
      const auto width = static_cast<std::size_t>(shape_.experts);
      uses_.resize(std::max(uses_.size(), (layer + 1) * width), 0);
      for (const std::int32_t expert : line.experts)
        ++uses_[layer * width + static_cast<std::size_t>(expert)];
    }
  }

  std::vector<UnitId> pin(const ModelView& model, std::uint32_t slots) override {
    if (shape_.layers != model.layers || shape_.experts != model.experts_per_layer)
      throw std::invalid_argument(
          "profile " + profile_ + " is of " + std::to_string(shape_.layers) + " layers of " +
          std::to_string(shape_.experts) + " experts; the model has " +
          std::to_string(model.layers) + " of " + std::to_string(model.experts_per_layer));
    const auto uses = [&](UnitId unit) {
      const UnitInfo& info = model.units[unit];
      const std::size_t i =
          static_cast<std::size_t>(info.layer) * static_cast<std::size_t>(shape_.experts) +
          static_cast<std::size_t>(info.expert);
      return i < uses_.size() ? uses_[i] : 0;
    };
    std::vector<UnitId> experts = units_of(model, UnitKind::expert);
    std::stable_sort(experts.begin(), experts.end(),
                     [&](UnitId a, UnitId b) { return uses(a) > uses(b); });
    experts.resize(slots * percent_ / 100);
    return experts;
  }

  std::uint64_t percent_;
  std::string profile_;
  RoutingShape shape_;
  std::vector<std::uint64_t> uses_;  // index: layer * experts + expert
};

}  // namespace

SLUICE_POLICY(ExpertPinned, expert_pinned, "1.0",
              "keeps the experts that a profile names most, caches the others", kParams);
