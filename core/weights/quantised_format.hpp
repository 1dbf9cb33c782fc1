// How checkpoints that come quantised store a matrix: a class for each format.
#pragma once
#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/weights/checkpoint.hpp"
#include "core/weights/encoding.hpp"

namespace sluice {

enum class QuantisedFormat : std::uint8_t { gptq, gptq_v2, awq, int8_channel };

// Of a matrix MODULE.weight, [n, k], the file has parts MODULE.PART.
class IQuantisedFormat {
 public:
  virtual ~IQuantisedFormat() = default;
  // What the matrix can be had in without loss.
  virtual Encoding encoding() const = 0;
  virtual std::span<const std::string_view> parts() const = 0;
  // Whether this matrix is stored in the format, if perhaps not well: others are there as values.
  virtual bool stores(const Checkpoint& checkpoint, const TensorSpec& matrix) const = 0;
  // Throws InputError, file and tensor named, for a part that is missing, of another type or shape.
  // Reads nothing of the parts.
  virtual void check(const Checkpoint& checkpoint, const TensorSpec& matrix) const = 0;
  // As ITensorSource::read_quantised(), of a matrix that check() lets pass. Throws InputError for a
  // scale that is not finite and for groups that are not in order.
  virtual void read(const Checkpoint& checkpoint, const TensorSpec& matrix, std::uint64_t first,
                    std::uint64_t rows, std::byte* codes, std::byte* scales) const = 0;
};

std::unique_ptr<IQuantisedFormat> make_quantised_format(QuantisedFormat format);

// For the formats.
std::unique_ptr<IQuantisedFormat> make_gptq_format(std::uint32_t added_to_zeros);
std::unique_ptr<IQuantisedFormat> make_awq_format();
std::unique_ptr<IQuantisedFormat> make_int8_channel_format();

// Codes of 4 bits in a word, and what those formats store words and scales as.
inline constexpr std::uint64_t kInWord = kNibbleOrder.size();
inline constexpr std::array<std::string_view, 1> kWords{"I32"}, kHalves{"F16"};

// "MODULE." of MODULE.weight.
std::string module_of(const TensorSpec& matrix);

// Whether the checkpoint has any of these parts.
bool has_any_part(const Checkpoint& checkpoint, const TensorSpec& matrix,
                  std::span<const std::string_view> parts);

// A part, of one of these types and of this shape. Throws InputError, file and tensor named.
RawTensor part_of(const Checkpoint& checkpoint, const TensorSpec& matrix, std::string_view part,
                  std::span<const std::string_view> types, const std::vector<std::uint64_t>& shape);

// Whether a matrix, whose columns are a file's rows, has been read to its end, so that the pages of
// its parts may go: pieces of it take a part of every page, and whatever another thread still reads
// comes back from the page cache.
void forget_if_last(const Checkpoint& checkpoint, const TensorSpec& matrix, std::uint64_t end,
                    std::span<const std::string_view> parts);

// Element `i` of 32 bits, at any address.
std::uint32_t word_at(std::span<const std::byte> words, std::uint64_t i);

// The scales and zero points of columns [first, first + rows), from f16 [groups, n] and words of
// eight zero points [groups, n / 8]. `nibble_of` has the place in the word of each of the eight.
struct GroupParts {
  RawTensor scales, zeros;
  std::span<const std::uint32_t, 8> nibble_of;
  std::uint32_t added_to_zeros = 0;
};
void read_group_scales(const Checkpoint& checkpoint, const TensorSpec& matrix,
                       const GroupParts& parts, std::uint64_t first, std::uint64_t rows,
                       std::byte* to);

}  // namespace sluice
