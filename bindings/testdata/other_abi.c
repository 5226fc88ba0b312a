/* A library of another ABI, for the test of what loading it says. */
#include "invar/invar.h"

int32_t invar_abi_version(void) { return 7; }
const char* invar_version_string(void) { return "7.8.9"; }
