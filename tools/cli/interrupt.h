// Ctrl-C: the first sets the cancel object, so that work stops at its next boundary and a training run writes its
// checkpoint; the second ends the process at once.
#pragma once

#include "invar/invar.h"

namespace cli {

// Installs the handlers for SIGINT and SIGTERM; `cancel` must live as long as the process.
void cancel_on_interrupt(invar_cancel* cancel);

}  // namespace cli
