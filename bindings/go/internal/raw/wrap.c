/* The wrapper that SWIG writes, and what cgo cannot say itself. */
#include "raw_wrap.inc"

#include "calls.h"

void invar_go_add(void* add, void* list, const char* name) {
  ((void (*)(void* list, const char* name))add)(list, name);
}
