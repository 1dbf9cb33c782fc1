#include "models/sequence_book.hpp"

#include <algorithm>
#include <array>

namespace sluice {
namespace {

std::uint64_t book_bytes(const PageTable& pages) {
  return pages.sequences() * (sizeof(SamplingParams) + 3 * sizeof(std::int32_t)) +
         pages.entries().size_bytes();
}

}  // namespace

SequenceBook::SequenceBook(Ops& ops, PageTable& pages, const WorkspaceLayout& device,
                           std::uint32_t passes_ahead)
    : pages_(pages),
      device_(device.params),
      uploader_(ops, passes_ahead + 2, book_bytes(pages), "the sequences' state"),
      states_(pages.sequences(), State::none),
      params_(pages.sequences()),
      lengths_(pages.sequences()),
      generated_(pages.sequences()),
      active_(pages.sequences()) {}

void SequenceBook::start(std::uint32_t sequence, const SamplingParams& sampling) {
  expect(sequence, State::none);
  states_[sequence] = State::begun;
  params_[sequence] = sampling;
  lengths_[sequence] = generated_[sequence] = 0;
  changed_ = true;
}

void SequenceBook::finish(std::uint32_t sequence) {
  if (sequence < states_.size() && states_[sequence] == State::begun) {
    states_[sequence] = State::none;
    return;
  }
  expect(sequence, State::filled);
  states_[sequence] = State::none;
  pages_.release(sequence);
  changed_ = true;
}

void SequenceBook::fill(std::uint32_t sequence, std::uint32_t prompt_tokens) {
  expect(sequence, State::begun);
  pages_.reserve(sequence, prompt_tokens);
  states_[sequence] = State::filled;
  // Sampling moves on by one, to the place of the token that it chooses.
  lengths_[sequence] = static_cast<std::int32_t>(prompt_tokens) - 1;
  changed_ = true;
}

void SequenceBook::extend(std::uint32_t sequence) {
  expect(sequence, State::filled);
  if (pages_.reserve(sequence, length(sequence) + 1)) changed_ = true;
}

void SequenceBook::upload(std::span<const std::uint32_t> active) {
  const auto same = [](std::uint32_t a, std::int32_t b) {
    return static_cast<std::int32_t>(a) == b;
  };
  if (!std::equal(active.begin(), active.end(), active_.begin(), same)) {
    std::copy(active.begin(), active.end(), active_.begin());
    changed_ = true;
  }
  if (!changed_) return;
  changed_ = false;
  uploader_.send(device_, {std::as_bytes(std::span(params_)), std::as_bytes(std::span(lengths_)),
                           std::as_bytes(std::span(generated_)), std::as_bytes(std::span(active_)),
                           std::as_bytes(pages_.entries())});
}

void SequenceBook::moved_on(std::span<const std::uint32_t> sequences) {
  for (const std::uint32_t sequence : sequences) {
    ++lengths_[sequence];
    ++generated_[sequence];
  }
}

void SequenceBook::expect(std::uint32_t sequence, State state) const {
  constexpr std::array<const char*, 3> kNames{"not started", "started", "filled by its prompt"};
  if (sequence >= states_.size())
    throw Error("there is no sequence {}: the decoder was made for {}", sequence, states_.size());
  if (states_[sequence] != state)
    throw Error("sequence {} is {}, it should be {}", sequence,
                kNames[static_cast<std::size_t>(states_[sequence])],
                kNames[static_cast<std::size_t>(state)]);
}

}  // namespace sluice
