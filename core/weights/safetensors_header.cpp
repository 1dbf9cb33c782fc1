#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

#include "core/error.hpp"
#include "core/json.hpp"
#include "core/weights/safetensors.hpp"

namespace sluice {
namespace {

struct ElementType {
  std::string_view name;
  std::uint64_t bits;
};

// Every type of the format, so that sizes are checked for those too that are not supported.
constexpr ElementType kElementTypes[] = {
    {"F64", 64},    {"I64", 64},    {"U64", 64},        {"C64", 64},        {"F32", 32},
    {"I32", 32},    {"U32", 32},    {"F16", 16},        {"BF16", 16},       {"I16", 16},
    {"U16", 16},    {"F8_E4M3", 8}, {"F8_E5M2", 8},     {"F8_E8M0", 8},     {"I8", 8},
    {"U8", 8},      {"BOOL", 8},    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6},
    {"F6_E3M2", 6}, {"F4", 4},
};

std::optional<std::uint64_t> bits_of(std::string_view type) {
  for (const ElementType& known : kElementTypes) {
    if (known.name == type) return known.bits;
  }
  return std::nullopt;
}

std::optional<DType> supported(std::string_view type) {
  if (type == "F32") return DType::f32;
  if (type == "BF16") return DType::bf16;
  if (type == "F16") return DType::f16;
  return std::nullopt;
}

// Nothing when it does not fit 64 bits.
std::optional<std::uint64_t> product(std::uint64_t a, std::uint64_t b) {
  if (a != 0 && b > std::numeric_limits<std::uint64_t>::max() / a) return std::nullopt;
  return a * b;
}

std::optional<std::uint64_t> size_in_bits(const std::vector<std::uint64_t>& shape,
                                          std::uint64_t bits) {
  std::optional<std::uint64_t> n = bits;
  for (std::uint64_t extent : shape) {
    if (n) n = product(*n, extent);
  }
  return n;
}

// A name as a message shows it.
std::string cut(std::string_view name) {
  return name.size() <= 120 ? std::string(name) : std::string(name.substr(0, 120)) + "...";
}

struct Tensor {
  std::string name, type;
  std::vector<std::uint64_t> shape, offsets;
  bool has_type = false, has_shape = false, has_offsets = false;
};

// Follows the parser's events and keeps only tensors: a hostile header of 100 MB becomes no tree.
// Refuses whatever is not where the format has it, so it never goes deeper than three levels.
class HeaderReader final : public JsonEvents {
 public:
  explicit HeaderReader(const std::string& file) : file_(file) {}

  std::vector<Tensor> take() { return std::move(tensors_); }
  std::map<std::string, std::string> take_metadata() { return std::move(metadata_); }

  bool key(string_t& name) override {
    switch (place_) {
      case Place::top: name_ = name; break;
      case Place::tensor: begin_field(name); break;
      case Place::metadata: metadata_name_ = name; break;
      default: refuse("a key", name);
    }
    return true;
  }
  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::outside: place_ = Place::top; break;
      case Place::top:
        if (name_ == "__metadata__") {
          place_ = Place::metadata;
        } else {
          place_ = Place::tensor;
          tensors_.emplace_back().name = name_;
        }
        break;
      default: refuse("an object", "{");
    }
    return true;
  }
  bool end_object() override {
    if (place_ == Place::tensor) {
      const Tensor& tensor = tensors_.back();
      for (const auto& [given, field] : {std::pair{tensor.has_type, "dtype"},
                                         {tensor.has_shape, "shape"},
                                         {tensor.has_offsets, "data_offsets"}}) {
        if (!given) throw InputError("{}: tensor {} has no {}", file_, cut(tensor.name), field);
      }
    }
    place_ = place_ == Place::top ? Place::outside : Place::top;
    return true;
  }
  bool start_array(std::size_t) override {
    if (place_ != Place::shape_begins && place_ != Place::offsets_begin) refuse("an array", "[");
    place_ = place_ == Place::shape_begins ? Place::shape : Place::offsets;
    return true;
  }
  bool end_array() override {
    if (place_ == Place::offsets && tensors_.back().offsets.size() != 2) {
      throw InputError("{}: tensor {} has {} data_offsets, 2 are needed", file_,
                       cut(tensors_.back().name), tensors_.back().offsets.size());
    }
    place_ = Place::tensor;
    return true;
  }
  bool string(string_t& value) override {
    if (place_ == Place::metadata) {
      metadata_[metadata_name_] = value;
      return true;
    }
    if (place_ != Place::type) refuse("a string", value);
    tensors_.back().type = value;
    place_ = Place::tensor;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::shape) {
      tensors_.back().shape.push_back(value);
    } else if (place_ == Place::offsets) {
      tensors_.back().offsets.push_back(value);
    } else {
      refuse("a number", std::to_string(value));
    }
    return true;
  }
  bool null() override { return refuse("null", "null"); }
  bool boolean(bool) override { return refuse("a boolean", "true or false"); }
  bool number_integer(number_integer_t value) override {
    return refuse("a negative number", std::to_string(value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return refuse("a number that is no unsigned integer", text);
  }
  bool binary(binary_t&) override { return refuse("binary", "?"); }

 private:
  // Where the next event belongs.
  enum class Place {
    outside,
    top,
    metadata,
    tensor,
    type,
    shape_begins,
    shape,
    offsets_begin,
    offsets
  };

  void begin_field(const std::string& field) {
    Tensor& tensor = tensors_.back();
    bool* given = nullptr;
    if (field == "dtype") {
      given = &tensor.has_type;
      place_ = Place::type;
    } else if (field == "shape") {
      given = &tensor.has_shape;
      place_ = Place::shape_begins;
    } else if (field == "data_offsets") {
      given = &tensor.has_offsets;
      place_ = Place::offsets_begin;
    } else {
      throw InputError("{}: tensor {} has a key {}, which the format does not know", file_,
                       cut(tensor.name), cut(field));
    }
    if (*given) throw InputError("{}: tensor {} has {} twice", file_, cut(tensor.name), field);
    *given = true;
  }

  [[noreturn]] bool refuse(std::string_view what, std::string_view value) const {
    throw InputError("{}: the header has {} ({}) out of place, at {}", file_, what, cut(value),
                     name_.empty() ? "its beginning" : cut(name_));
  }

  const std::string& file_;
  Place place_ = Place::outside;
  std::string name_;  // the last key at the top
  std::string metadata_name_;
  std::map<std::string, std::string> metadata_;
  std::vector<Tensor> tensors_;
};

void check_size(const Tensor& tensor, const std::string& file) {
  const std::uint64_t stored = tensor.offsets[1] - tensor.offsets[0];
  const std::optional<std::uint64_t> bits = bits_of(tensor.type);
  if (!bits) return;
  const std::optional<std::uint64_t> size = size_in_bits(tensor.shape, *bits);
  if (!size || *size % 8 != 0 || *size / 8 != stored) {
    throw InputError("{}: tensor {} has {} bytes of data, {} of its shape take {}", file,
                     cut(tensor.name), stored, tensor.type,
                     size ? fmt::format("{} bits", *size) : "more than 2^64 bits");
  }
}

// `tensors` in the order of their data.
void check_offsets(const std::vector<Tensor>& tensors, std::uint64_t data_bytes,
                   const std::string& file) {
  std::uint64_t end = 0;
  for (const Tensor& tensor : tensors) {
    const std::uint64_t first = tensor.offsets[0], last = tensor.offsets[1];
    if (first > last || last > data_bytes) {
      throw InputError(
          "{}: tensor {} has the data offsets {} to {}, out of the file's {} bytes of "
          "data: is the file complete?",
          file, cut(tensor.name), first, last, data_bytes);
    }
    if (first != end) {
      throw InputError(
          "{}: tensor {} begins at byte {} of the data, {} bytes {} the end of the one "
          "before",
          file, cut(tensor.name), first, first < end ? end - first : first - end,
          first < end ? "ahead of" : "after");
    }
    end = last;
  }
  if (end != data_bytes) {
    throw InputError("{}: the tensors take {} bytes of data, the file has {}", file, end,
                     data_bytes);
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view header, std::uint64_t data_bytes,
                                           const std::string& file) {
  HeaderReader reader(file);
  parse_json_events(header, file + ": the header", reader);
  std::vector<Tensor> tensors = reader.take();
  std::sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) {
    return std::tie(a.offsets, a.name) < std::tie(b.offsets, b.name);
  });
  check_offsets(tensors, data_bytes, file);
  SafetensorsHeader parsed;
  parsed.metadata = reader.take_metadata();
  for (Tensor& tensor : tensors) {
    check_size(tensor, file);
    if (parsed.tensors.contains(tensor.name) || parsed.unsupported.contains(tensor.name)) {
      throw InputError("{}: tensor {} is there twice", file, cut(tensor.name));
    }
    if (const std::optional<DType> dtype = supported(tensor.type)) {
      parsed.tensors[std::move(tensor.name)] = {*dtype, std::move(tensor.shape), tensor.offsets[0],
                                                tensor.offsets[1]};
    } else {
      parsed.unsupported[std::move(tensor.name)] = {std::move(tensor.type), std::move(tensor.shape),
                                                    tensor.offsets[0], tensor.offsets[1]};
    }
  }
  return parsed;
}

}  // namespace sluice
