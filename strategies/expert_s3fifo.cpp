// S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi: "FIFO queues are all you need for cache eviction", SOSP
// 2023): experts enter a small queue, and only those used again there, or missed soon after leaving
// it, come into the main one.
#include <list>

#include "sluice/expert_cache.hpp"

namespace {

using namespace sluice;

constexpr std::array kParams{
    kExpertScope, kExpertEncoding, kExpertPrefill, kExpertPrefillSlots,
    ParamSpec{"small_percent", ParamType::integer, 10, 1, 90, "of the slots: the small queue's"}};

class ExpertS3Fifo final : public ExpertCache {
 public:
  explicit ExpertS3Fifo(const Params& params)
      : ExpertCache(params), percent_(static_cast<std::size_t>(params.integer("small_percent"))) {}

  Layout layout(const ModelView& model, const Budget& budget) override {
    Layout out = ExpertCache::layout(model, budget);
    queues_.assign(pools() * 3, {});
    entries_.assign(unit_count(), {});
    return out;
  }

 private:
  enum Queue : std::uint8_t { small, main, ghost, none };
  struct Entry {
    Queue in = none;
    std::uint8_t uses = 0;  // since it entered, at most 3
    std::list<UnitId>::iterator at{};
  };

  std::list<UnitId>& queue(std::size_t pool, Queue which) { return queues_[pool * 3 + which]; }

  void move(UnitId unit, Queue to) {
    Entry& entry = entries_[unit];
    if (entry.in != none) queue(pool_of(unit), entry.in).erase(entry.at);
    entry.in = to;
    if (to == none) return;
    std::list<UnitId>& target = queue(pool_of(unit), to);
    entry.at = target.insert(target.end(), unit);
  }

  void used(UnitId unit, bool hit) override {
    Entry& entry = entries_[unit];
    if (hit && entry.uses < 3) ++entry.uses;
  }
  void entered(UnitId unit) override {
    move(unit, entries_[unit].in == ghost ? main : small);
    entries_[unit].uses = 0;
  }
  void left(UnitId unit) override {
    const std::size_t pool = pool_of(unit);
    move(unit, entries_[unit].in == small ? ghost : none);
    if (queue(pool, ghost).size() > share(pool)) move(queue(pool, ghost).front(), none);
  }

  UnitId worst(std::size_t pool, const Candidates& candidates) override {
    const std::size_t target = std::max<std::size_t>(share(pool) * percent_ / 100, 1);
    for (;;) {
      Queue from = queue(pool, small).size() > target ? small : main;
      UnitId unit = first_of(queue(pool, from), candidates);
      if (unit == kNoUnit) {
        from = from == small ? main : small;
        unit = first_of(queue(pool, from), candidates);
      }
      if (unit == kNoUnit) return kNoUnit;
      Entry& entry = entries_[unit];
      if (entry.uses == 0) return unit;
      entry.uses = from == small ? 0 : entry.uses - 1;
      move(unit, main);
    }
  }

  UnitId first_of(const std::list<UnitId>& queue, const Candidates& candidates) const {
    for (const UnitId unit : queue)
      if (may_go(unit, candidates)) return unit;
    return kNoUnit;
  }

  std::size_t percent_;
  std::vector<std::list<UnitId>> queues_;  // three a pool
  std::vector<Entry> entries_;             // index: UnitId
};

}  // namespace

SLUICE_POLICY(ExpertS3Fifo, expert_s3fifo, "1.0",
              "caches experts; S3-FIFO keeps those that were used again", kParams);
