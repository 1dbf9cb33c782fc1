// An environment variable for as long as this lives.
#pragma once
#include <cstdlib>
#include <string>

namespace sluice::test {

class ScopedEnv {
 public:
  ScopedEnv(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~ScopedEnv() { before_.empty() ? unsetenv(name_) : setenv(name_, before_.c_str(), 1); }
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  const char* name_;
  std::string before_;
};

}  // namespace sluice::test
