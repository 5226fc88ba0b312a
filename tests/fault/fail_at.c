/* Preloaded into a program: makes its file operation number FAIL_AT (from 0) go wrong, as FAIL_HOW says.
 *   nospace  it and all later ones that need room fail as on a full disk
 *   broken   it alone fails, as on a broken disk
 *   kill     the process is killed before it
 * FAIL_COUNT names a file that receives the number of operations of the whole run. Counted are operations on regular
 * files: writing, reserving, flushing, and renaming. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_long operations;

static int is_regular(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

/* The error of this operation, or 0. */
static int next_fault(int needs_room) {
  const long number = atomic_fetch_add(&operations, 1);
  const char *at = getenv("FAIL_AT"), *how = getenv("FAIL_HOW");
  if (at == NULL || how == NULL || number < atol(at)) return 0;
  if (strcmp(how, "nospace") == 0) return needs_room ? ENOSPC : 0;
  if (number > atol(at)) return 0;
  if (strcmp(how, "kill") == 0) raise(SIGKILL);
  return EIO;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static ssize_t failed(int error) {
  errno = error;
  return -1;
}

ssize_t write(int fd, const void* bytes, size_t size) {
  const int error = fd > 2 && is_regular(fd) ? next_fault(1) : 0;
  return error != 0 ? failed(error) : NEXT(write)(fd, bytes, size);
}
ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  const int error = next_fault(1);
  return error != 0 ? failed(error) : NEXT(pwrite)(fd, bytes, size, offset);
}
ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t offset) {
  const int error = next_fault(1);
  return error != 0 ? failed(error) : NEXT(pwrite64)(fd, bytes, size, offset);
}
int posix_fallocate(int fd, off_t offset, off_t size) {
  const int error = next_fault(1);
  return error != 0 ? error : NEXT(posix_fallocate)(fd, offset, size);
}
int posix_fallocate64(int fd, off64_t offset, off64_t size) {
  const int error = next_fault(1);
  return error != 0 ? error : NEXT(posix_fallocate64)(fd, offset, size);
}
int fsync(int fd) {
  const int error = next_fault(0);
  return error != 0 ? (int)failed(error) : NEXT(fsync)(fd);
}
int rename(const char* from, const char* to) {
  const int error = next_fault(0);
  return error != 0 ? (int)failed(error) : NEXT(rename)(from, to);
}

__attribute__((destructor)) static void tell(void) {
  const char* path = getenv("FAIL_COUNT");
  if (path == NULL) return;
  char text[32];
  const int size = snprintf(text, sizeof text, "%ld\n", atomic_load(&operations));
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0) return;
  if (NEXT(write)(fd, text, (size_t)size) != size) unlink(path);
  close(fd);
}
