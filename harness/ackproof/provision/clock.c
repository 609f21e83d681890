/* The wall clock of one process, ahead of the machine's by the nanoseconds that stand in a file of 8 bytes.
   The monotonic clock is left as it is. Loaded by LD_PRELOAD; links to nothing, so that any C library will do. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const long long *ahead;

__attribute__((constructor)) static void begin(void) {
  const char *name = getenv("ACKPROOF_CLOCK");
  int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *seen = mmap(0, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (seen != MAP_FAILED) ahead = seen;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = syscall(SYS_clock_gettime, clock, now);
  if (!failed && ahead && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    long long moved = now->tv_nsec + *ahead % 1000000000;
    now->tv_sec += *ahead / 1000000000 + (moved < 0 ? -1 : moved >= 1000000000 ? 1 : 0);
    now->tv_nsec = moved < 0 ? moved + 1000000000 : moved >= 1000000000 ? moved - 1000000000 : moved;
  }
  return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) { /* callers give a place for it */
  struct timespec exact;
  (void)zone;
  int failed = clock_gettime(CLOCK_REALTIME, &exact);
  if (!failed) {
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
  }
  return failed;
}

time_t time(time_t *now) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (now) *now = exact.tv_sec;
  return exact.tv_sec;
}
