#include "harness/progress.hpp"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "harness/printable.hpp"

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kLivePeriod{100};
constexpr std::chrono::seconds kLogPeriod{10};

// Standard error may be a full disk or closed; what cannot be told must not end the work.
void put(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

std::size_t terminal_width() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20) return 80;
  return size.ws_col;
}

}  // namespace

std::string format_duration(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::max(0.0, seconds) + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

void say(const std::string& line) { put(printable(line) + "\n"); }

Progress::Progress(std::string what, double total, Format format)
    : what_(std::move(what)),
      total_(total),
      format_(std::move(format)),
      terminal_(::isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      last_(start_) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (!terminal_ || !shown_) return;
  put("\r\x1b[K");
  shown_ = false;
}

void Progress::update(double done, const std::string& detail) {
  const Clock::time_point now = Clock::now();
  if (now - last_ < (terminal_ ? Clock::duration(kLivePeriod) : Clock::duration(kLogPeriod)))
    return;
  last_ = now;
  show(done, detail);
}

void Progress::show(double done, const std::string& detail) {
  const double seconds = std::chrono::duration<double>(last_ - start_).count();
  const double rate = seconds > 0 ? done / seconds : 0;
  std::string line = fmt::format("{}: {}", what_, format_(done));
  if (total_ > 0) line += fmt::format(" of {}", format_(total_));
  if (!detail.empty()) line += ", " + detail;
  if (rate > 0) line += fmt::format(", {}/s", format_(rate));
  if (rate > 0 && total_ > done)
    line += fmt::format(", {} left", format_duration((total_ - done) / rate));
  if (!terminal_) return say(line);
  put("\r" + printable(line).substr(0, terminal_width() - 1) + "\x1b[K");
  shown_ = true;
}

}  // namespace sluice
