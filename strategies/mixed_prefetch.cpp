// The ring over units in encodings of their own: `encodings` is a list of WHERE=ENCODING, of which the
// last that names a unit counts. WHERE is all, first, last, a layer, a range of layers (3-5), a kind
// of unit, or layers and a kind (first.mlp).
#include <charconv>
#include <stdexcept>
#include <string>

#include "sluice/ring.hpp"

namespace {

using namespace sluice;

constexpr std::array kParams{
    kRingDepth, kRingLanes,
    ParamSpec{
        "encodings", ParamType::text, 0, 0, 0,
        "WHERE=bf16|int8|int4, separated by commas; WHERE: all, first, last, a layer, a range "
        "3-5, attention, mlp, expert, head, or layers.kind",
        "attention=int4,mlp=int4,expert=int4,first=bf16,last=bf16"},
    ParamSpec{"resident", ParamType::text, 0, 0, 0,
              "how a unit lies in its slot: as it came (wire), or dequantised (bf16)", "wire",
              "bf16|wire"}};

struct Rule {
  std::int32_t from = 0, to = -1;  // layers; counted from the end where negative
  std::string_view kind;           // empty: all that stream
  Encoding encoding = Encoding::native;
};

[[noreturn]] void refuse(std::string_view rule, const char* why) {
  throw std::invalid_argument("encodings: '" + std::string(rule) + "' " + why);
}

std::string_view cut(std::string_view& text, char at) {
  const std::string_view before = text.substr(0, text.find(at));
  text.remove_prefix(std::min(before.size() + 1, text.size()));
  return before;
}

std::int32_t layer_of(std::string_view text, std::string_view rule) {
  std::int32_t layer = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), layer);
  if (error != std::errc{} || end != text.data() + text.size() || layer < 0)
    refuse(rule, "names neither layers nor a kind of unit");
  return layer;
}

bool is_kind(std::string_view text) {
  return text == "attention" || text == "mlp" || text == "expert" || text == "head";
}

Rule rule_of(std::string_view text) {
  std::string_view rest = text;
  std::string_view where = cut(rest, '=');
  Rule rule;
  if (rest != "bf16" && rest != "int8" && rest != "int4")
    refuse(text, "does not end in =bf16, =int8 or =int4");
  if (rest != "bf16") rule.encoding = rest == "int8" ? Encoding::int8 : Encoding::int4;
  const bool has_point = where.find('.') != std::string_view::npos;
  std::string_view layers = cut(where, '.');
  if (has_point && !is_kind(where)) refuse(text, "names no kind of unit behind the point");
  if (has_point && where == "head") refuse(text, "names layers of the head, which is in none");
  rule.kind = has_point ? where : is_kind(layers) ? layers : std::string_view{};
  if (layers == "all" || (!has_point && is_kind(layers))) return rule;
  if (layers == "first" || layers == "last") {
    rule.from = rule.to = layers == "first" ? 0 : -1;
    return rule;
  }
  const bool is_range = layers.find('-') != std::string_view::npos;
  rule.from = layer_of(cut(layers, '-'), text);
  rule.to = is_range ? layer_of(layers, text) : rule.from;
  if (rule.to < rule.from) refuse(text, "ends before it begins");
  return rule;
}

class MixedPrefetch final : public RingPolicy {
 public:
  explicit MixedPrefetch(const Params& params)
      : RingPolicy(params), dequantises_(params.text("resident") == "bf16") {
    for (std::string_view rest = params.text("encodings"); !rest.empty();)
      rules_.push_back(rule_of(cut(rest, ',')));
  }

  Transfer transfer(const ModelView& model, const UnitInfo& unit) const override {
    Encoding wire = Encoding::native;
    for (const Rule& rule : rules_)
      if (names(rule, model, unit)) wire = rule.encoding;
    const bool stays = !dequantises_ || unit.kind == UnitKind::head;
    return {wire, stays ? wire : Encoding::native};
  }

 private:
  static bool names(const Rule& rule, const ModelView& model, const UnitInfo& unit) {
    if (rule.to >= model.layers)
      throw std::invalid_argument("encodings: the model has no layer " + std::to_string(rule.to));
    if (rule.kind.empty() ? !is_streamed(unit.kind) : rule.kind != name_of(unit.kind)) return false;
    const auto layer = [&](std::int32_t i) { return i < 0 ? model.layers + i : i; };
    return unit.kind == UnitKind::head ||
           (unit.layer >= layer(rule.from) && unit.layer <= layer(rule.to));
  }

  std::vector<Rule> rules_;
  bool dequantises_;
};

}  // namespace

SLUICE_POLICY(MixedPrefetch, mixed_prefetch, "1.0", "the ring over units in encodings of their own",
              kParams);
