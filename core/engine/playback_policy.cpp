#include "core/engine/playback_policy.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/engine/decision_names.hpp"
#include "core/error.hpp"
#include "core/json.hpp"
#include "core/json_node.hpp"

namespace sluice {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMostUnits = 1 << 24;
constexpr std::int64_t kMost32 = 0xffffffff;

// One line of a log, each value checked.
class Line {
 public:
  Line(const Json& value, const std::string& place) : line_(value, place) {}

  bool has(const char* key) const { return line_.has(key); }
  std::string where(const char* key) const { return line_.where(key); }
  UnitId unit(const char* key) const {
    return static_cast<UnitId>(line_.at(key).integer(0, kMost32));
  }
  UnitId unit_or_none(const char* key) const { return has(key) ? unit(key) : kNoUnit; }
  std::uint64_t count(const char* key, std::int64_t most) const {
    return static_cast<std::uint64_t>(line_.at(key).integer(0, most));
  }
  bool flag(const char* key) const { return line_.at(key).boolean(); }
  Line object(const char* key) const { return Line(line_.at(key)); }

  std::vector<UnitId> units(const char* key) const {
    const JsonNode list = line_.at(key);
    std::vector<UnitId> out;
    for (const Json& one : list.raw()) {
      if (!one.is_number_unsigned() || one.get<std::uint64_t>() > kMost32)
        throw InputError("{} has {} in it; units are numbers", line_.where(key), shown(one));
      out.push_back(one.get<UnitId>());
    }
    return out;
  }

  template <typename E, std::size_t N>
  E word(const char* key, const std::array<std::string_view, N>& words) const {
    const std::string text = line_.at(key).string();
    const auto found = std::find(words.begin(), words.end(), text);
    if (found == words.end())
      throw InputError("{} is '{}'; it may be: {}", line_.where(key), text, fmt::join(words, ", "));
    return static_cast<E>(found - words.begin());
  }

 private:
  explicit Line(JsonNode line) : line_(std::move(line)) {}
  JsonNode line_;
};

constexpr std::array<std::string_view, kEncodings> kEncodingNames{
    name_of(Encoding::native), name_of(Encoding::int8), name_of(Encoding::int4)};

void read_transfer(const Line& line, Decisions& out) {
  const Line transfer = line.object("transfer");
  const std::vector<UnitId> units = line.units("units");
  if (units.size() != 2 || units[0] > units[1] || units[1] >= kMostUnits)
    throw InputError("{} is {}; the first and the last of a run are needed", line.where("units"),
                     list_text(units));
  if (out.transfers.size() <= units[1]) out.transfers.resize(units[1] + std::size_t{1});
  for (UnitId unit = units[0]; unit <= units[1]; ++unit)
    out.transfers[unit] = {transfer.word<Encoding>("wire", kEncodingNames),
                           transfer.word<Encoding>("resident", kEncodingNames)};
}

Layout read_layout(const Line& line) {
  const Line rotating = line.object("rotating");
  Layout out{.keep = line.units("keep"),
             .rotating = {},
             .lanes = static_cast<std::uint32_t>(line.count("lanes", kMost32)),
             .blocking = line.flag("blocking")};
  for (std::size_t i = 0; i < kUnitKinds; ++i) {
    const auto kind = static_cast<UnitKind>(i);
    const std::string name(name_of(kind));
    if (rotating.has(name.c_str()))
      out.rotating[kind] = static_cast<std::uint32_t>(rotating.count(name.c_str(), kMost32));
  }
  return out;
}

void read_hook_line(const Line& line, Decisions& out) {
  using Act = Decisions::Act;
  if (line.has("needs")) {
    out.hooks.push_back({.step = line.count("step", std::int64_t{1} << 62),
                         .phase = line.word<Phase>("phase", kPhases),
                         .tokens = static_cast<std::uint32_t>(line.count("tokens", kMost32)),
                         .units = line.units("needs")});
    return;
  }
  if (line.has("routed")) {
    out.hooks.push_back({.is_routed = true, .units = line.units("routed")});
    return;
  }
  if (out.hooks.empty())
    throw InputError("{}: no step stands before this decision", line.where("step"));
  Decisions::Hook& hook = out.hooks.back();
  if (line.has("wish"))
    hook.acts.push_back(Act{true, line.unit("wish"), line.word<Asked>("answer", kAnswers)});
  else if (line.has("drop"))
    hook.acts.push_back(Act{false, line.unit("drop")});
  else if (line.has("refused") && line.has("for"))
    hook.victims.push_back({line.unit_or_none("victim"), line.unit("for")});
  else if (line.has("place"))
    hook.on_host.push_back(line.unit("place"));
  else if (line.has("guesses"))
    hook.guesses = static_cast<std::uint32_t>(line.count("guesses", kMost32));
  else if (!line.has("evicted"))
    throw InputError("{}: this line is no decision", line.where("step"));
}

}  // namespace

Decisions read_decisions(const std::string& text, const std::string& file) {
  Decisions out;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const Json value =
        parse_json(std::string_view(text).substr(begin, end - begin), file, ++number);
    begin = end + 1;
    const Line line(value, fmt::format("{}:{}", file, number));
    if (line.has("transfer"))
      read_transfer(line, out);
    else if (line.has("layout"))
      out.layout = read_layout(line.object("layout"));
    else if (line.has("step"))
      read_hook_line(line, out);
  }
  return out;
}

Layout PlaybackPolicy::layout(const ModelView&, const Budget&) { return decisions_.layout; }

Transfer PlaybackPolicy::transfer(const ModelView&, const UnitInfo& unit) const {
  return unit.id < decisions_.transfers.size() ? decisions_.transfers[unit.id] : Transfer{};
}

void PlaybackPolicy::before(const Step& step, Actions& actions) {
  step_ = step.index;
  play({.step = step.index,
        .phase = step.phase,
        .tokens = step.tokens,
        .units = {step.needs.begin(), step.needs.end()}},
       actions);
}

std::uint32_t PlaybackPolicy::wanted_guesses(const Step&) {
  return difference_.empty() && next_ != 0 ? decisions_.hooks[next_ - 1].guesses : 0;
}

void PlaybackPolicy::routed(std::span<const UnitId> units, Actions& actions) {
  play({.is_routed = true, .units = {units.begin(), units.end()}}, actions);
}

void PlaybackPolicy::play(const Decisions::Hook& asked, Actions& actions) {
  const auto text = [](const Decisions::Hook& hook) {
    return hook.is_routed ? fmt::format("a router names {}", list_text(hook.units))
                          : fmt::format("step {} ({}, {} tokens) needs {}", hook.step,
                                        name_of(hook.phase), hook.tokens, list_text(hook.units));
  };
  if (!difference_.empty()) return;
  if (next_ == decisions_.hooks.size())
    return differ(text(asked) + ", and the record has ended before");
  const Decisions::Hook& hook = decisions_.hooks[next_++];
  if (text(hook) != text(asked)) return differ(text(asked) + "; in the record " + text(hook));
  for (const Decisions::Act& act : hook.acts) {
    if (!act.is_wish) {
      actions.drop(act.unit);
      continue;
    }
    const Asked answer = actions.prefetch(act.unit);
    if (answer != act.answer)
      return differ(fmt::format("the wish for unit {} is answered {}, in the record {}", act.unit,
                                name_of(answer), name_of(act.answer)));
  }
}

UnitId PlaybackPolicy::victim(const UnitInfo& incoming, const Candidates& candidates) {
  if (!difference_.empty()) return candidates.oldest();
  auto& victims = decisions_.hooks.at(next_ - 1).victims;
  if (victims.empty() || victims.front().incoming != incoming.id) {
    differ(fmt::format(
        "unit {} needs a slot, in the record {}", incoming.id,
        victims.empty() ? "none does" : fmt::format("unit {}", victims.front().incoming)));
    return candidates.oldest();
  }
  const UnitId named = victims.front().named;
  victims.pop_front();
  return named;
}

Place PlaybackPolicy::place(const UnitInfo& unit, const Step&) {
  if (!difference_.empty() || next_ == 0) return Place::device;
  const auto& on_host = decisions_.hooks[next_ - 1].on_host;
  return std::find(on_host.begin(), on_host.end(), unit.id) != on_host.end() ? Place::host
                                                                             : Place::device;
}

std::string PlaybackPolicy::difference_at_end() const {
  const std::size_t left = decisions_.hooks.size() - next_;
  if (!difference_.empty() || left == 0) return difference_;
  return fmt::format("the run ends after step {}, the record has {} more", step_, left);
}

void PlaybackPolicy::differ(std::string what) {
  if (difference_.empty()) difference_ = fmt::format("step {}: {}", step_, what);
}

}  // namespace sluice
