# Writes OUTPUT, a source with the commit that is being built; touched only when it changes.
execute_process(COMMAND git -C "${SOURCE}" describe --always --dirty --abbrev=12 --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "")
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT [[#include "harness/build_info.hpp"

const char* sluice::build_commit() { return "@commit@"; }
]] @ONLY)
