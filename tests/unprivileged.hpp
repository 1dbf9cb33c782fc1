// An ordinary user's rights for as long as this lives: root may read everything.
#pragma once
#include <unistd.h>

#include <stdexcept>

namespace sluice::test {

class Unprivileged {
 public:
  Unprivileged() : was_root_(::geteuid() == 0) {
    constexpr uid_t kNobody = 65534;
    if (was_root_ && ::seteuid(kNobody) != 0) throw std::runtime_error("seteuid failed");
  }
  ~Unprivileged() {
    if (was_root_ && ::seteuid(0) != 0) ::_exit(1);  // no other test may go on like this
  }
  Unprivileged(const Unprivileged&) = delete;
  Unprivileged& operator=(const Unprivileged&) = delete;

 private:
  bool was_root_;
};

}  // namespace sluice::test
