// Threads and scratch memory of the CPU kernels. Nothing here is a template, so that code compiled
// for one instruction set never ends up in a function shared with the others.
#pragma once
#include <cstddef>
#include <type_traits>

namespace sluice::cpu {

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

// Scratch memory of the calling thread, aligned for vectors and kept until the thread ends. Each
// purpose has its own block, valid until the same thread asks for the same purpose again.
enum class Scratch : unsigned char {
  packed_rows,   // a block of activations in f32
  weight_panel,  // rows of weights in f32
  sums,          // accumulators of a tile
  results,       // of a tile, in f32
  queries,
  keys,
  values,
  scores,
  partials,      // of attention to one span
  states,        // of attention merged so far
  side_by_side,  // partials of all spans
  count
};
float* scratch(Scratch purpose, std::size_t floats);

}  // namespace sluice::cpu
