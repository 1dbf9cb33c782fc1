// Weights are read where files are mapped. One that becomes shorter while it is read ends the process
// with a signal; this makes that wrong input like any other.
#pragma once

namespace sluice {

// From now on: a line on standard error and exit code 2. Faults of other causes, such as a disk's,
// stay what they are.
void refuse_files_cut_while_read();

}  // namespace sluice
