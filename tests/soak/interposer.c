// Interposes the system calls of a soak run: simulates a slow or failing disk, slow links and a clock that jumps. Loaded with
// LD_PRELOAD and controlled by the numbers in the file SOAK_WORLD, which world.py writes. Writes by io_uring bypass it; their
// syncs do not.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

// The order is that of FIELDS in world.py.
struct world {
  volatile int64_t disk_delay_us, disk_errno, link_delay_us, clock_offset_s;
};

static const struct world *the_world;
static const char *the_folder;
static size_t the_folder_size;

__attribute__((constructor)) static void open_world(void) {
  const char *path = getenv("SOAK_WORLD");
  the_folder = getenv("SOAK_FOLDER");
  if (path == NULL || the_folder == NULL) return;
  the_folder_size = strlen(the_folder);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  void *mapped = mmap(NULL, sizeof(struct world), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (mapped != MAP_FAILED) the_world = mapped;
}

#define NEXT(name)                    \
  static __typeof__(&name) next;      \
  if (next == NULL) next = (__typeof__(next))dlsym(RTLD_NEXT, #name)

static void wait_us(int64_t us) {
  const struct timespec time = {us / 1000000, us % 1000000 * 1000};
  nanosleep(&time, NULL);
}

static int is_of_run(int file) {
  char link[64], path[PATH_MAX];
  struct stat status;
  if (fstat(file, &status) != 0 || !(S_ISREG(status.st_mode) || S_ISDIR(status.st_mode))) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t size = readlink(link, path, sizeof path);
  return size >= (ssize_t)the_folder_size && memcmp(path, the_folder, the_folder_size) == 0;
}

/// Waits for the disk delay. Returns 1 and sets errno if the operation on the file should fail, otherwise 0.
static int disk_fails(int file) {
  const int kept = errno;
  if (the_world == NULL || (the_world->disk_delay_us == 0 && the_world->disk_errno == 0) || !is_of_run(file)) {
    errno = kept;
    return 0;
  }
  wait_us(the_world->disk_delay_us);
  const int error = (int)the_world->disk_errno;
  errno = error != 0 ? error : kept;
  return error != 0;
}

static void link_waits(int file) {
  const int kept = errno;
  int domain = 0;
  socklen_t size = sizeof domain;
  if (the_world != NULL && the_world->link_delay_us != 0 &&
      getsockopt(file, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && (domain == AF_INET || domain == AF_INET6)) {
    wait_us(the_world->link_delay_us);
  }
  errno = kept;
}

ssize_t write(int file, const void *bytes, size_t count) {
  NEXT(write);
  if (disk_fails(file)) return -1;
  link_waits(file);
  return next(file, bytes, count);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
  NEXT(writev);
  if (disk_fails(file)) return -1;
  link_waits(file);
  return next(file, parts, count);
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t offset) {
  NEXT(pwrite);
  return disk_fails(file) ? -1 : next(file, bytes, count, offset);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t offset) {
  NEXT(pwrite64);
  return disk_fails(file) ? -1 : next(file, bytes, count, offset);
}

int fsync(int file) {
  NEXT(fsync);
  return disk_fails(file) ? -1 : next(file);
}

int fdatasync(int file) {
  NEXT(fdatasync);
  return disk_fails(file) ? -1 : next(file);
}

ssize_t send(int file, const void *bytes, size_t count, int flags) {
  NEXT(send);
  link_waits(file);
  return next(file, bytes, count, flags);
}

ssize_t sendmsg(int file, const struct msghdr *message, int flags) {
  NEXT(sendmsg);
  link_waits(file);
  return next(file, message, flags);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  NEXT(clock_gettime);
  const int result = next(clock, time);
  if (result == 0 && the_world != NULL && clock == CLOCK_REALTIME) time->tv_sec += the_world->clock_offset_s;
  return result;
}

int gettimeofday(struct timeval *time, void *zone) {
  NEXT(gettimeofday);
  const int result = next(time, zone);
  if (result == 0 && the_world != NULL) time->tv_sec += the_world->clock_offset_s;
  return result;
}

time_t time(time_t *result) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (result != NULL) *result = now.tv_sec;
  return now.tv_sec;
}
