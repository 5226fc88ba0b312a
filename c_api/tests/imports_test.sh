#!/bin/bash
# Nothing in the library prints, ends the process or handles signals: neither it nor our objects refer to what could,
# apart from the reviewed exceptions.
#   imports_test.sh LIBRARY ALLOWED ARCHIVES...
set -euo pipefail
lib=$1 allowed=$2
shift 2
functions='_?exit|_Exit|quick_exit|at_quick_exit|abort|raise|kill|signal|sigaction|sigprocmask|pthread_sigmask'
functions+='|v?d?printf|v?fprintf|__v?d?f?printf_chk|puts|putchar|putc|fputc|fputs|fwrite|perror|syslog|write_stdout'
functions+='|std(in|out|err)|__assert_fail|err|errx|verr|warn|warnx|psignal|system|popen|execv|execve'
functions+='|_ZSt(3cin|4cout|4cerr|4clog|5wcout|5wcerr|5wclog|9terminatev)|_ZNSt8ios_base4Init.*'
failed=0
check() {
  local section=$1 where=$2 found
  found=$(grep -x -E "($functions)" | LC_ALL=C sort -u || true)
  for symbol in $found; do
    grep -q -F "$section $symbol " "$allowed" && continue
    echo "$where refers to $symbol, which is not on $allowed"
    failed=1
  done
}

[ $# -gt 20 ] || { echo "only $# archives: the test would look at nothing"; exit 1; }
check ours 'an object of ours' < <(nm -u "$@" 2>/dev/null | awk 'NF == 2 && $1 == "U" {print $2}')
check library "$lib" < <(nm -D -u "$lib" | awk 'NF == 2 {print $2}' | sed 's/@.*//')

# The test notices what it is for.
printf 'void exit(int); int puts(const char*); void f(void) { puts(""); exit(1); }' | gcc -xc -c -o bad.o -
noticed=$(check ours bad.o < <(nm -u bad.o | awk 'NF == 2 {print $2}') | wc -l)
[ "$noticed" -eq 2 ] || { echo "an object that prints and exits was not noticed"; failed=1; }
[ $failed -eq 0 ] && echo "$# archives and the library refer to nothing that prints or ends the process"
exit $failed
