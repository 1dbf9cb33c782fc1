// Work on the host's cores. Nothing here is a template, so that code compiled for one instruction set
// never ends up in a function shared with the others.
#pragma once
#include <cstddef>
#include <type_traits>

namespace sluice {

// A reference to a callable of one task number; valid during the call it is passed to.
class TaskRef {
 public:
  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, TaskRef>)
      TaskRef(const F& f)  // implicit, so that a lambda can be passed
      : object_(&f), call_([](const void* object, std::size_t task) {
          (*static_cast<const F*>(object))(task);
        }) {}

  void operator()(std::size_t task) const { call_(object_, task); }

 private:
  const void* object_;
  void (*call_)(const void*, std::size_t);
};

// Runs tasks 0..count-1 on all threads and returns when all are done. Under ThreadSanitizer they run
// one after the other on the caller's thread: oneTBB is not built for it, so every hand-over between
// its threads would be reported as a race.
void parallel_for(std::size_t count, TaskRef task);

// How many threads parallel_for may use.
std::size_t thread_count();

}  // namespace sluice
