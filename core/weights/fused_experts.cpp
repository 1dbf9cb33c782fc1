#include "core/weights/fused_experts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "core/error.hpp"

namespace sluice {
namespace {

constexpr std::string_view kExperts = ".experts.", kGateUp = "gate_up_proj", kDown = "down_proj";

// A matrix of an expert: its name beside those of other experts, and its place in a fused tensor.
struct Matrix {
  std::string_view name, fused;
  std::uint64_t part, parts;
};
constexpr std::array kMatrices{Matrix{"gate_proj.weight", kGateUp, 0, 2},
                               Matrix{"up_proj.weight", kGateUp, 1, 2},
                               Matrix{"down_proj.weight", kDown, 0, 1}};

bool is_fused(std::string_view name) {
  return name.ends_with(fmt::format("{}{}", kExperts, kGateUp)) ||
         name.ends_with(fmt::format("{}{}", kExperts, kDown));
}

}  // namespace

FusedExperts::FusedExperts(std::unique_ptr<Checkpoint> checkpoint)
    : checkpoint_(std::move(checkpoint)) {}

bool FusedExperts::are_in(const Checkpoint& checkpoint) {
  return std::ranges::any_of(checkpoint.names(), is_fused);
}

std::optional<FusedExperts::Place> FusedExperts::place_of(const std::string& name) const {
  const std::size_t at = name.find(kExperts);
  if (at == std::string::npos) return std::nullopt;
  const std::string_view prefix = std::string_view(name).substr(0, at + kExperts.size());
  const std::string_view rest = std::string_view(name).substr(prefix.size());
  std::uint64_t expert = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), expert);
  if (error != std::errc{} || end == rest.data() + rest.size() || *end != '.') return std::nullopt;
  const std::string_view matrix = rest.substr(static_cast<std::size_t>(end + 1 - rest.data()));
  for (const Matrix& one : kMatrices) {
    if (matrix != one.name) continue;
    std::string fused = fmt::format("{}{}", prefix, one.fused);
    if (checkpoint_->has(fused)) return Place{std::move(fused), expert, one.part, one.parts};
  }
  return std::nullopt;
}

// 0: it is no tensor of experts. Without data a shape may say anything.
std::uint64_t FusedExperts::experts_in(const std::string& fused) const {
  const StoredTensor stored = checkpoint_->file_of(fused).tensor(fused);
  return stored.shape.size() == 3 && !stored.data.empty() ? stored.shape[0] : 0;
}

DType FusedExperts::stored_type(const TensorSpec& tensor) const {
  const std::optional<Place> place = place_of(tensor.name);
  if (!place) return checkpoint_->stored_type(tensor);
  if (checkpoint_->has(tensor.name))
    throw InputError("{}: {} is there twice, by itself and in {}", checkpoint_->describe(),
                     tensor.name, place->fused);
  const std::uint64_t experts = experts_in(place->fused);
  if (place->expert >= experts)
    throw InputError("{}: no tensor {}: {} has {} experts",
                     checkpoint_->file_of(place->fused).path().string(), tensor.name, place->fused,
                     experts);
  TensorSpec whole = tensor;
  whole.name = place->fused;
  whole.shape = {experts, place->parts * tensor.shape.at(0), tensor.shape.at(1)};
  return checkpoint_->stored_type(whole);
}

bool FusedExperts::has(const std::string& name) const {
  if (checkpoint_->has(name)) return true;
  const std::optional<Place> place = place_of(name);
  return place && place->expert < experts_in(place->fused);
}

void FusedExperts::read(const TensorSpec& tensor, std::uint64_t first, std::uint64_t n,
                        std::byte* to) const {
  const std::optional<Place> place = place_of(tensor.name);
  if (!place) return checkpoint_->read(tensor, first, n, to);
  TensorSpec whole = tensor;
  whole.name = place->fused;
  const std::uint64_t matrix = place->expert * place->parts + place->part;
  checkpoint_->read(whole, matrix * tensor.elements() + first, n, to);
}

std::vector<std::string> FusedExperts::names() const {
  std::vector<std::string> out;
  for (const std::string& name : checkpoint_->names()) {
    if (!is_fused(name)) {
      out.push_back(name);
      continue;
    }
    const std::string_view prefix =
        std::string_view(name).substr(0, name.rfind(kExperts) + kExperts.size());
    for (std::uint64_t expert = 0; expert < experts_in(name); ++expert)
      for (const Matrix& one : kMatrices)
        if (name.substr(prefix.size()) == one.fused)
          out.push_back(fmt::format("{}{}.{}", prefix, expert, one.name));
  }
  return out;
}

}  // namespace sluice
