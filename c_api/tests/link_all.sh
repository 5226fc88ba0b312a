#!/bin/bash
# Writes a C program that takes the address of every function on the list in $1.
set -euo pipefail
echo '/* Generated: every declared function is exported and has C linkage. */'
echo '#include <stdio.h>'
echo '#include "invar/invar.h"'
echo 'typedef void (*any_function)(void);'
echo 'static const any_function functions[] = {'
sed 's/.*/    (any_function)&,/' "$1"
echo '};'
cat <<'END'
int main(void) {
  size_t missing = 0, count = sizeof functions / sizeof functions[0];
  for (size_t i = 0; i < count; ++i) missing += functions[i] == NULL;
  printf("%zu functions, %zu missing\n", count, missing);
  return missing != 0 || count == 0;
}
END
