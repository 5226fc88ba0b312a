#include "tools/cli/interrupt.h"

#include <unistd.h>
#include <csignal>

#include "tools/cli/client.h"

namespace cli {

namespace {

invar_cancel* target = nullptr;
volatile std::sig_atomic_t interrupts = 0;

void on_signal(int) {
  if (interrupts > 0) _exit(kInterrupted);
  interrupts = 1;
  invar_cancel_request(target);
}

}  // namespace

void cancel_on_interrupt(invar_cancel* cancel) {
  target = cancel;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace cli
