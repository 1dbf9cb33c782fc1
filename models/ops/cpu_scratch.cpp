#include "models/ops/cpu_scratch.hpp"

#include <array>
#include <memory>
#include <new>

namespace sluice::cpu {
namespace {

constexpr std::size_t kAlignment = 128;

struct Free {
  void operator()(float* data) const { operator delete[](data, std::align_val_t{kAlignment}); }
};

struct Block {
  std::unique_ptr<float[], Free> data;
  std::size_t floats = 0;
};

}  // namespace

float* scratch(Scratch purpose, std::size_t floats) {
  thread_local std::array<Block, static_cast<std::size_t>(Scratch::count)> blocks;
  Block& block = blocks[static_cast<std::size_t>(purpose)];
  if (block.floats < floats) {
    block = {};
    block.data.reset(new (std::align_val_t{kAlignment}) float[floats]);
    block.floats = floats;
  }
  return block.data.get();
}

}  // namespace sluice::cpu
