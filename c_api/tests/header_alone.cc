#include "invar/invar.h"

int invar_header_is_cpp();
int invar_header_is_cpp() { return INVAR_OK; }
