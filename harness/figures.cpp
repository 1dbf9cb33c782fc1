#include "harness/figures.hpp"

#include <algorithm>
#include <functional>
#include <vector>

namespace sluice {
namespace {

using Json = nlohmann::json;

// A quotient; nothing where it has no meaning.
std::optional<double> over(double a, double b) {
  if (b <= 0) return std::nullopt;
  return a / b;
}

double count(std::uint64_t n) { return static_cast<double>(n); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double moved(const RepeatFigures& r) { return count(r.prefill.h2d_bytes + r.decode.h2d_bytes); }

double decoded(const RepeatFigures& r) { return count(r.tokens - std::min(r.tokens, r.requests)); }

using Rate = std::function<std::optional<double>(const RepeatFigures&)>;

class Writer {
 public:
  explicit Writer(std::span<const RepeatFigures> repeats) : repeats_(repeats) {}

  void rate(const char* name, const Rate& of) {
    std::vector<double> values;
    for (const RepeatFigures& repeat : repeats_)
      if (const auto value = of(repeat)) values.push_back(*value);
    if (values.empty()) {
      figures_[name] = nullptr;
      return;
    }
    figures_[name] = median(values);
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    spread_[name] = {*least, *most};
  }

  // A count stays an integer: the lower of the two middle repeats.
  void total(const char* name, std::uint64_t Counters::*field) {
    std::vector<std::uint64_t> values;
    for (const RepeatFigures& r : repeats_) values.push_back(r.prefill.*field + r.decode.*field);
    std::sort(values.begin(), values.end());
    figures_[name] = values[(values.size() - 1) / 2];
    if (values.front() != values.back()) spread_[name] = {values.front(), values.back()};
  }

  Json take() {
    figures_["spread"] = std::move(spread_);
    return std::move(figures_);
  }

 private:
  std::span<const RepeatFigures> repeats_;
  Json figures_ = Json::object();
  Json spread_ = Json::object();
};

}  // namespace

Json make_figures(std::span<const RepeatFigures> repeats, double link_gbps) {
  using R = const RepeatFigures&;
  Writer out(repeats);
  out.rate("prefill_ms", [](R r) { return over(count(r.prefill_ns) / 1e6, count(r.batches)); });
  out.rate("ttft_ms", [](R r) { return over(count(r.ttft_ns) / 1e6, count(r.requests)); });
  out.rate("prefill_tokens_per_second",
           [](R r) { return over(count(r.prompt_tokens) * 1e9, count(r.prefill_ns)); });
  out.rate("decode_tokens_per_second", [](R r) -> std::optional<double> {
    if (decoded(r) == 0) return std::nullopt;
    return over(decoded(r) * 1e9, count(r.sequence_ns));
  });
  out.rate("decode_throughput_tokens_per_second", [](R r) -> std::optional<double> {
    if (decoded(r) == 0) return std::nullopt;
    return over(decoded(r) * 1e9, count(r.decode_ns));
  });
  out.rate("h2d_bytes_per_token",
           [](R r) { return over(count(r.decode.h2d_bytes), count(r.decode_rows)); });
  const auto gbps = [](R r) { return over(moved(r), count(r.prefill_ns + r.decode_ns)); };
  out.rate("h2d_gbps", gbps);
  out.rate("link_percent", [&](R r) -> std::optional<double> {
    const auto rate = gbps(r);
    return rate ? over(*rate * 100, link_gbps) : std::nullopt;
  });
  out.rate("stall_ms_per_token",
           [](R r) { return over(count(r.decode_stall_ns) / 1e6, decoded(r)); });
  out.rate("transfer_to_compute", [&](R r) -> std::optional<double> {
    const auto transfer_ns = over(count(r.decode.h2d_bytes), link_gbps);
    if (!transfer_ns) return std::nullopt;
    return over(*transfer_ns, count(r.decode_ns) - count(r.decode_stall_ns));
  });
  out.rate("prefill_stall_ms",
           [](R r) { return over(count(r.prefill_stall_ns) / 1e6, count(r.batches)); });
  out.total("hits", &Counters::hits);
  out.total("misses", &Counters::misses);
  out.total("wasted", &Counters::wasted);
  out.total("refused", &Counters::refused);
  out.total("loads", &Counters::loads);
  out.total("h2d_bytes", &Counters::h2d_bytes);
  out.total("cancelled_bytes", &Counters::cancelled_bytes);
  return out.take();
}

}  // namespace sluice
