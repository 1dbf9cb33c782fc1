#include "harness/verdict.hpp"

#include "core/error.hpp"
#include "harness/value.hpp"

namespace sluice {

std::string problem_with(const Moves& moves) {
  if (moves.must_move && moves.moved_bytes == 0)
    return "no byte was moved, though weights lie outside the slots";
  if (moves.moved_bytes < moves.least_bytes)
    return fmt::format("{} were moved; with these slots no policy can move less than {}",
                       format_bytes(moves.moved_bytes), format_bytes(moves.least_bytes));
  return "";
}

}  // namespace sluice
