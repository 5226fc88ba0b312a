/* The header compiles alone, as strict C11 and, through header_alone.cc, as C++17. */
#include "invar/invar.h"

int invar_header_is_plain_c(void);
int invar_header_is_plain_c(void) { return INVAR_OK; }
