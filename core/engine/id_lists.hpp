// Doubly linked lists over small integers, in place: every operation is O(1) and allocates nothing.
#pragma once
#include <cstdint>
#include <vector>

namespace sluice {

// An id is in at most one of the lists.
class IdLists {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  IdLists(std::size_t ids, std::size_t lists) : nodes_(ids), lists_(lists) {}

  std::uint32_t first(std::size_t list) const { return lists_[list].first; }
  std::uint32_t size(std::size_t list) const { return lists_[list].size; }
  std::uint32_t next(std::uint32_t id) const { return nodes_[id].next; }
  // The list that holds `id`, or kNone.
  std::uint32_t list_of(std::uint32_t id) const { return nodes_[id].list; }

  void push_back(std::size_t list, std::uint32_t id) {
    List& l = lists_[list];
    nodes_[id] = {l.last, kNone, static_cast<std::uint32_t>(list)};
    (l.last == kNone ? l.first : nodes_[l.last].next) = id;
    l.last = id;
    ++l.size;
  }

  // `id` must be in a list.
  void remove(std::uint32_t id) {
    const Node n = nodes_[id];
    List& l = lists_[n.list];
    (n.previous == kNone ? l.first : nodes_[n.previous].next) = n.next;
    (n.next == kNone ? l.last : nodes_[n.next].previous) = n.previous;
    nodes_[id] = {};
    --l.size;
  }

 private:
  struct Node {
    std::uint32_t previous = kNone, next = kNone, list = kNone;
  };
  struct List {
    std::uint32_t first = kNone, last = kNone, size = 0;
  };

  std::vector<Node> nodes_;
  std::vector<List> lists_;
};

}  // namespace sluice
