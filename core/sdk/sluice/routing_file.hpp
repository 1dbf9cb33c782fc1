// Which experts a run's routers chose, as text:
//
//   # sluice routing 1: layers=48 experts=128 per_token=8 expert_bytes=9437184
//   step,phase,layer,experts,weights
//   0,prefill,0,3 17 40 51 66 90 101 127,0.31 0.22 0.13 0.1 0.09 0.06 0.05 0.04
//
// A step is one pass over the model. Steps ascend, within each the layers; a line is one token's
// choice, and lines of one step and layer are the tokens that passed together. Weights may be missing.
#pragma once
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sluice/line_reader.hpp"
#include "sluice/policy.hpp"

namespace sluice {

struct RoutingShape {
  std::int32_t layers = 0, experts = 0, per_token = 0;
  std::uint64_t expert_bytes = 0;  // the largest one's, as it is stored natively

  friend bool operator==(const RoutingShape&, const RoutingShape&) = default;
};

struct RoutingLine {
  std::uint64_t step = 0;
  Phase phase = Phase::decode;
  std::int32_t layer = 0;
  std::vector<std::int32_t> experts;  // RoutingShape::per_token, each once
  std::vector<float> weights;         // as many, or none
};

inline constexpr std::string_view kRoutingTitle = "# sluice routing 1:";
inline constexpr std::string_view kRoutingColumns = "step,phase,layer,experts,weights";

// Reads such a text line by line. Whatever is wrong is a std::invalid_argument that begins with the
// line: "line 7: layer 48 of 48".
class RoutingReader : private LineReader {
 public:
  // `text` must outlive the reader.
  explicit RoutingReader(std::string_view text) : LineReader(text) {
    std::string_view head = take_line();
    if (!head.starts_with(kRoutingTitle))
      fail("it does not begin with '" + str(kRoutingTitle) + "'");
    head.remove_prefix(kRoutingTitle.size());
    shape_.layers = static_cast<std::int32_t>(field(head, "layers", 1, kMost));
    shape_.experts = static_cast<std::int32_t>(field(head, "experts", 1, kMost));
    shape_.per_token = static_cast<std::int32_t>(
        field(head, "per_token", 1, static_cast<std::uint64_t>(shape_.experts)));
    shape_.expert_bytes = field(head, "expert_bytes", 1, std::uint64_t{1} << 40);
    if (!head.empty()) fail("'" + str(head) + "' behind the shape");
    if (take_line() != kRoutingColumns) fail("the columns must be " + str(kRoutingColumns));
    seen_.assign(static_cast<std::size_t>(shape_.experts), 0);
  }

  const RoutingShape& shape() const { return shape_; }

  // False at the end, and `line` is as it was.
  bool next(RoutingLine& line) {
    if (at_end()) return false;
    std::string_view text = take_line();
    RoutingLine read;
    read.step = number(cut(text, ','), "step", ~std::uint64_t{0});
    read.phase = phase(cut(text, ','));
    read.layer = static_cast<std::int32_t>(
        number(cut(text, ','), "layer", static_cast<std::uint64_t>(shape_.layers) - 1));
    read_experts(cut(text, ','), read.experts);
    if (!text.empty()) read_weights(text, read.weights);
    check_order(read);
    last_step_ = read.step;
    last_layer_ = read.layer;
    last_phase_ = read.phase;
    line = std::move(read);
    return true;
  }

 private:
  static constexpr std::uint64_t kMost = 1 << 20;
  static std::string str(std::string_view text) { return std::string(text); }

  std::uint64_t field(std::string_view& head, const std::string& name, std::uint64_t least,
                      std::uint64_t most) const {
    const std::string begin = " " + name + "=";
    if (!head.starts_with(begin)) fail("'" + name + "=' is missing behind the title");
    head.remove_prefix(begin.size());
    const std::string_view text = head.substr(0, head.find(' '));
    head.remove_prefix(text.size());
    const std::uint64_t value = number(text, name, most);
    if (value < least) fail(name + " is 0");
    return value;
  }
  Phase phase(std::string_view text) const {
    for (const Phase phase : {Phase::prefill, Phase::decode, Phase::verify})
      if (text == name_of(phase)) return phase;
    fail("phase " + shown(text) + " is not prefill, decode or verify");
  }

  void read_experts(std::string_view text, std::vector<std::int32_t>& experts) {
    while (!text.empty()) {
      const std::uint64_t expert =
          number(cut(text, ' '), "expert", static_cast<std::uint64_t>(shape_.experts) - 1);
      if (std::exchange(seen_[expert], line()) == line())
        fail("expert " + std::to_string(expert) + " is named twice");
      experts.push_back(static_cast<std::int32_t>(expert));
    }
    if (experts.size() != static_cast<std::size_t>(shape_.per_token))
      fail(std::to_string(experts.size()) + " experts; a token has " +
           std::to_string(shape_.per_token));
  }
  void read_weights(std::string_view text, std::vector<float>& weights) const {
    while (!text.empty()) {
      const std::string_view word = cut(text, ' ');
      float weight = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), weight);
      if (word.empty() || error != std::errc{} || end != word.data() + word.size() ||
          !(weight >= 0 && weight <= 1e9f))
        fail("weight " + shown(word) + " is no number from 0 on");
      weights.push_back(weight);
    }
    if (weights.size() != static_cast<std::size_t>(shape_.per_token))
      fail(std::to_string(weights.size()) + " weights for " + std::to_string(shape_.per_token) +
           " experts");
  }
  void check_order(const RoutingLine& read) const {
    if (last_layer_ < 0) return;
    if (read.step < last_step_) fail("step " + std::to_string(read.step) + " behind a later one");
    if (read.step > last_step_) return;
    if (read.phase != last_phase_) fail("step " + std::to_string(read.step) + " has two phases");
    if (read.layer < last_layer_)
      fail("layer " + std::to_string(read.layer) + " behind a later one of its step");
  }

  RoutingShape shape_;
  std::vector<std::size_t> seen_;  // index: expert; the line that named it last
  std::uint64_t last_step_ = 0;
  std::int32_t last_layer_ = -1;
  Phase last_phase_ = Phase::decode;
};

}  // namespace sluice
