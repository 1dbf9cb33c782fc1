// How far a long piece of work is, on standard error: one live line on a terminal, plain lines in a
// log.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace sluice {

class Progress {
 public:
  // Turns an amount into text: bytes, tokens, cells.
  using Format = std::function<std::string(double)>;

  // `what` begins each line. A total of 0: not known.
  Progress(std::string what, double total, Format format);
  ~Progress();  // ends the live line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of the total so far. Shown at most ten times a second, in a log every ten seconds.
  void update(double done, const std::string& detail = {});
  // Clears the live line, so that other output can stand in its place.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  void show(double done, const std::string& detail);

  std::string what_;
  double total_;
  Format format_;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point start_, last_;
};

// "12 s", "3 min 20 s", "2 h 5 min".
std::string format_duration(double seconds);

// A whole line on standard error, made printable: it may quote what others wrote. Never fails: where
// it cannot be written it is lost.
void say(const std::string& line);

}  // namespace sluice
