#include "core/weights/pack.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "core/weights/convert.hpp"
#include "core/weights/encoding.hpp"

namespace sluice {
namespace {

constexpr std::uint64_t kPackedAtOnce = 2ull << 20;

// A part of one tensor, small enough to balance threads and large enough not to matter: whole rows
// where it is quantised.
struct Piece {
  const TensorSpec* tensor = nullptr;
  DType stored = DType::f32;
  Encoding encoding = Encoding::native;
  std::uint64_t first = 0, n = 0;  // elements
  std::byte* to = nullptr;         // values or codes
  std::byte* scales = nullptr;
  std::uint64_t bytes = 0;  // that it writes
};

void add_values(const TensorSpec& tensor, DType stored, std::byte* to, std::vector<Piece>& pieces) {
  const std::uint64_t elements = tensor.elements(), size = size_of(tensor.dtype);
  for (std::uint64_t first = 0; first < elements; first += kPackedAtOnce) {
    const std::uint64_t n = std::min(kPackedAtOnce, elements - first);
    pieces.push_back(
        {&tensor, stored, Encoding::native, first, n, to + first * size, nullptr, n * size});
  }
}

void add_codes(const TensorSpec& tensor, DType stored, Encoding encoding, std::byte* to,
               std::byte* scales, std::vector<Piece>& pieces) {
  const std::uint64_t rows = tensor.shape[0], k = tensor.shape[1];
  const std::uint64_t code_bytes = code_row_bytes(encoding, k);
  const std::uint64_t scale_bytes = scale_row_bytes(encoding, k);
  const std::uint64_t at_once = std::max<std::uint64_t>(1, kPackedAtOnce / k);
  for (std::uint64_t row = 0; row < rows; row += at_once) {
    const std::uint64_t n = std::min(at_once, rows - row);
    pieces.push_back({&tensor, stored, encoding, row * k, n * k, to + row * code_bytes,
                      scales + row * scale_bytes, n * (code_bytes + scale_bytes)});
  }
}

std::vector<Piece> cut(const ModelLayout& layout, std::span<const SlabToFill> slabs,
                       const ITensorSource& source) {
  std::vector<Piece> pieces;
  for (const SlabToFill& slab : slabs) {
    const std::vector<TensorSpec>& tensors = layout.plan().units[slab.unit].tensors;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const TensorPlace& place = layout.place(slab.unit, i, slab.encoding);
      const DType stored = source.stored_type(tensors[i]);
      if (place.quantised)
        add_codes(tensors[i], stored, slab.encoding, slab.data + place.data,
                  slab.data + place.scales, pieces);
      else
        add_values(tensors[i], stored, slab.data + place.data, pieces);
    }
  }
  return pieces;
}

// What a thread reads into before it casts or quantises.
struct Scratch {
  std::vector<std::byte> stored;
  std::vector<float> values;
};

void pack_values(const Piece& piece, const ITensorSource& source, Scratch& scratch) {
  if (piece.stored == piece.tensor->dtype) {
    source.read(*piece.tensor, piece.first, piece.n, piece.to);
    return;
  }
  scratch.stored.resize(piece.n * size_of(piece.stored));
  source.read(*piece.tensor, piece.first, piece.n, scratch.stored.data());
  convert(piece.stored, scratch.stored.data(), piece.tensor->dtype, piece.to, piece.n);
}

void pack_codes(const Piece& piece, const ITensorSource& source, Scratch& scratch) {
  const std::uint64_t k = piece.tensor->shape[1], rows = piece.n / k;
  if (source.is_quantised(*piece.tensor, piece.encoding)) {
    source.read_quantised(*piece.tensor, piece.encoding, piece.first / k, rows, piece.to,
                          piece.scales);
    return;
  }
  scratch.stored.resize(piece.n * size_of(piece.stored));
  scratch.values.resize(piece.n);
  source.read(*piece.tensor, piece.first, piece.n, scratch.stored.data());
  convert(piece.stored, scratch.stored.data(), DType::f32,
          reinterpret_cast<std::byte*>(scratch.values.data()), piece.n);
  if (!quantise_rows(piece.encoding, scratch.values.data(), rows, k, piece.to, piece.scales))
    throw InputError(
        "{}: {} has values between rows {} and {} that cannot be stored as {}: they are not "
        "finite, "
        "or too large",
        source.describe(), piece.tensor->name, piece.first / k, piece.first / k + rows - 1,
        name_of(piece.encoding));
}

void pack(const std::vector<Piece>& pieces, const ITensorSource& source, unsigned threads,
          const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  std::uint64_t total = 0;
  for (const Piece& piece : pieces) total += piece.bytes;

  std::atomic<std::size_t> next{0};
  std::atomic<std::uint64_t> done{0};
  std::mutex guard;
  std::exception_ptr failure;
  const auto work = [&](bool reports) {
    Scratch scratch;
    try {
      for (std::size_t i; (i = next.fetch_add(1)) < pieces.size();) {
        const Piece& piece = pieces[i];
        piece.encoding == Encoding::native ? pack_values(piece, source, scratch)
                                           : pack_codes(piece, source, scratch);
        done += piece.bytes;
        if (reports && progress) progress(done, total);
      }
    } catch (...) {
      next = pieces.size();  // the others stop as well
      const std::scoped_lock lock(guard);
      if (!failure) failure = std::current_exception();
    }
  };
  {
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    const std::size_t all = std::min<std::size_t>(threads ? threads : cores, pieces.size());
    std::vector<std::jthread> helpers;
    for (std::size_t i = 1; i < all; ++i) helpers.emplace_back(work, false);
    work(true);
  }
  if (failure) std::rethrow_exception(failure);
  if (progress) progress(total, total);
}

}  // namespace

void pack_slabs(const ModelLayout& layout, std::span<const SlabToFill> slabs,
                const ITensorSource& source, unsigned threads,
                const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  pack(cut(layout, slabs, source), source, threads, progress);
}

void pack_matrices(std::span<const MatrixToFill> matrices, const ITensorSource& source,
                   unsigned threads,
                   const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  std::vector<Piece> pieces;
  for (const auto& [tensor, encoding, codes, scales] : matrices)
    add_codes(*tensor, source.stored_type(*tensor), encoding, codes, scales, pieces);
  pack(pieces, source, threads, progress);
}

}  // namespace sluice
