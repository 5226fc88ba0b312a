/* C functions of this package for its Go files. */
#ifndef INVAR_BINDINGS_GO_RAW_CALLS_H_
#define INVAR_BINDINGS_GO_RAW_CALLS_H_

/* Calls add(list, name), the function that invar_file_list_fn is given. */
void invar_go_add(void* add, void* list, const char* name);

#endif
