#include "models/route_trace.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "sluice/line_reader.hpp"

namespace sluice {
namespace {

constexpr std::string_view kTitle = "# route_trace v1";
constexpr std::string_view kColumns =
    "turn,phase,step,layer,slot,expert,weight,residency,expert_bytes";
enum Column : std::size_t {
  turn,
  phase,
  step,
  layer,
  slot,
  expert,
  weight,
  residency,
  bytes,
  columns
};

constexpr std::uint64_t kMost = 1 << 20;

class TraceReader : private LineReader {
 public:
  explicit TraceReader(std::string_view text) : LineReader(text) {}

  Routing read() {
    take_line();
    while (next_begins_with('#')) read_comment(take_line());
    RoutingShape& shape = routing_.shape;
    if (shape.layers == 0 || shape.experts == 0 || shape.per_token == 0 || shape.expert_bytes == 0)
      fail("n_layer, n_expert, n_expert_used and expert_bytes must stand above the columns");
    if (shape.per_token > shape.experts) fail("more experts are used than there are");
    if (take_line() != kColumns) fail("the columns must be " + std::string(kColumns));
    while (!at_end()) read_row(take_line());
    check_complete();
    return std::move(routing_);
  }

 private:
  void read_comment(std::string_view line) {
    RoutingShape& shape = routing_.shape;
    while (!line.empty()) {
      std::string_view value = cut(line, ' ');
      const std::string_view name = cut(value, '=');
      if (name == "n_layer") shape.layers = static_cast<std::int32_t>(number(value, name, kMost));
      if (name == "n_expert") shape.experts = static_cast<std::int32_t>(number(value, name, kMost));
      if (name == "n_expert_used")
        shape.per_token = static_cast<std::int32_t>(number(value, name, kMost));
      if (name == "expert_bytes")
        shape.expert_bytes =
            std::max(shape.expert_bytes, number(value, name, std::uint64_t{1} << 40));
    }
  }

  void read_row(std::string_view text) {
    const RoutingShape& shape = routing_.shape;
    std::array<std::string_view, columns> fields;
    for (std::string_view& field : fields) field = cut(text, ',');
    if (!text.empty() || fields[bytes].empty()) fail("a row has nine fields");
    const std::uint64_t its_turn = number(fields[turn], "turn", kMost),
                        its_step = number(fields[step], "step", kMost);
    const Phase its_phase = number(fields[phase], "phase", 1) == 0 ? Phase::prefill : Phase::decode;
    const auto its_layer = static_cast<std::int32_t>(
        number(fields[layer], "layer", static_cast<std::uint64_t>(shape.layers) - 1));
    const auto id = static_cast<std::int32_t>(
        number(fields[expert], "expert", static_cast<std::uint64_t>(shape.experts) - 1));

    if (begins_pass(its_turn, its_phase, its_step)) {
      check_complete();
      if (its_turn < turn_) fail("turn " + std::to_string(its_turn) + " behind a later one");
      routing_.passes.push_back({.phase = its_phase, .layers = {}});
    }
    std::vector<RoutedLayer>& layers = routing_.passes.back().layers;
    const bool begins_layer = layers.empty() || layers.back().layer != its_layer;
    if (begins_layer || its_step != step_) {
      check_complete();
      if (!begins_layer && its_step < step_)
        fail("step " + std::to_string(its_step) + " behind a later one");
      if (begins_layer && !layers.empty() && its_layer < layers.back().layer)
        fail("layer " + std::to_string(its_layer) + " behind a later one");
      token_.clear();
    }
    if (begins_layer) layers.push_back({its_layer, {}});
    turn_ = its_turn;
    step_ = its_step;
    if (number(fields[slot], "slot", kMost) != token_.size())
      fail("the slots of a token count from 0 on");
    if (std::ranges::find(token_, id) != token_.end())
      fail("expert " + std::to_string(id) + " is named twice");
    token_.push_back(id);
    layers.back().ids.push_back(id);
  }

  // A step is a token; those of a turn's prefill passed together, each layer over all of them.
  bool begins_pass(std::uint64_t its_turn, Phase its_phase, std::uint64_t its_step) const {
    if (routing_.passes.empty() || its_turn != turn_ || its_phase != routing_.passes.back().phase)
      return true;
    return its_phase == Phase::decode && its_step != step_;
  }

  void check_complete() const {
    if (!token_.empty() && token_.size() != static_cast<std::size_t>(routing_.shape.per_token))
      fail("the token before has " + std::to_string(token_.size()) + " experts, not " +
           std::to_string(routing_.shape.per_token));
  }

  std::uint64_t turn_ = 0, step_ = 0;
  std::vector<std::int32_t> token_;  // the experts of the last one
  Routing routing_;
};

}  // namespace

bool is_route_trace(std::string_view text) {
  return text.substr(0, text.find_first_of("\r\n")) == kTitle;
}

Routing parse_route_trace(std::string_view text) { return TraceReader(text).read(); }

}  // namespace sluice
