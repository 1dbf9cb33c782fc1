// Any bytes as a safetensors file: refused, or every tensor lies in the data and fits its shape.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/error.hpp"
#include "core/weights/safetensors.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

// Reads every byte that the file gives out.
void check(const sluice::SafetensorsFile& file) {
  unsigned sum = 0;
  for (const auto& [name, entry] : file.header().tensors) {
    const sluice::StoredTensor tensor = file.tensor(name);
    std::uint64_t elements = 1;
    for (const std::uint64_t extent : tensor.shape) elements *= extent;
    require(tensor.data.size() == elements * size_of(tensor.dtype));
    require(entry.end <= file.data().size());
    for (const std::byte b : tensor.data) sum += static_cast<unsigned>(b);
    file.forget(tensor.data);
  }
  for (const auto& [name, entry] : file.header().unsupported) {
    const sluice::RawTensor tensor = file.raw(name);
    std::uint64_t elements = 1;
    for (const std::uint64_t extent : tensor.shape) elements *= extent;
    if (tensor.type == "I32") require(tensor.data.size() == elements * 4);
    if (tensor.type == "I8") require(tensor.data.size() == elements);
    require(entry.end <= file.data().size());
    for (const std::byte b : tensor.data) sum += static_cast<unsigned>(b);
  }
  [[maybe_unused]] static volatile unsigned sink = 0;  // the reads must happen
  sink = sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int memory = ::memfd_create("fuzz", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(memory);
  require(::ftruncate(memory, 0) == 0);
  require(::pwrite(memory, data, size, 0) == static_cast<::ssize_t>(size));
  try {
    check(sluice::SafetensorsFile(path));
  } catch (const sluice::InputError&) {
  }
  return 0;
}
