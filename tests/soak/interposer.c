// Interposes the system calls of a run: simulates a slow or failing disk, slow links and a clock that jumps. Loaded with LD_PRELOAD
// and controlled by the numbers in the file SOAK_WORLD, which world.py writes. Writes by io_uring bypass it; their syncs do not.
//
// `counts` not 0: the changes to files below SOAK_FOLDER by all processes are counted in `operations`, and those with the numbers
// from `first_failure` to `last_failure` fail with `failure`: opening for writing, writing, setting a size, syncing, renaming,
// removing, and creating a folder. `path` is that of the first failure.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

// The order is that of FIELDS in world.py.
struct world {
  volatile int64_t disk_delay_us, disk_errno, link_delay_us, clock_offset_s, counts, operations, first_failure, last_failure, failure;
  char path[PATH_MAX];
};

static struct world *the_world;
static const char *the_folder;
static size_t the_folder_size;

__attribute__((constructor)) static void open_world(void) {
  const char *path = getenv("SOAK_WORLD");
  the_folder = getenv("SOAK_FOLDER");
  if (path == NULL || the_folder == NULL) return;
  the_folder_size = strlen(the_folder);
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return;
  void *mapped = mmap(NULL, sizeof(struct world), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
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

/// Writes the path of a file to `path`, of PATH_MAX bytes. Returns 1 if the file is below the folder.
static int is_of_run(int file, char *path) {
  char link[64];
  struct stat status;
  if (fstat(file, &status) != 0 || !(S_ISREG(status.st_mode) || S_ISDIR(status.st_mode))) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t size = readlink(link, path, PATH_MAX - 1);
  path[size > 0 ? size : 0] = '\0';
  return size >= (ssize_t)the_folder_size && memcmp(path, the_folder, the_folder_size) == 0;
}

/// Counts a change to a file. Returns 1 and sets errno if it should fail, otherwise 0.
static int counted_change_fails(const char *path) {
  const int64_t number = __atomic_add_fetch(&the_world->operations, 1, __ATOMIC_SEQ_CST);
  if (number < the_world->first_failure || number > the_world->last_failure) return 0;
  if (the_world->path[0] == '\0') strncpy(the_world->path, path, sizeof the_world->path - 1);
  errno = (int)the_world->failure;
  return 1;
}

/// The same for a change of the file or folder with this path, which may be relative to the current folder.
static int change_fails(const char *path) {
  if (the_world == NULL || the_world->counts == 0) return 0;
  const int kept = errno;
  char whole[PATH_MAX] = "";
  if (path[0] != '/' && getcwd(whole, sizeof whole) != NULL) strncat(whole, "/", sizeof whole - strlen(whole) - 1);
  strncat(whole, path, sizeof whole - strlen(whole) - 1);
  errno = kept;
  return strncmp(whole, the_folder, the_folder_size) == 0 && counted_change_fails(whole);
}

/// Waits for the disk delay. Returns 1 and sets errno if the operation on the file should fail, otherwise 0.
static int disk_fails(int file) {
  const int kept = errno;
  char path[PATH_MAX];
  if (the_world == NULL || (the_world->disk_delay_us == 0 && the_world->disk_errno == 0 && the_world->counts == 0) ||
      !is_of_run(file, path)) {
    errno = kept;
    return 0;
  }
  wait_us(the_world->disk_delay_us);
  const int error = (int)the_world->disk_errno;
  errno = error != 0 ? error : kept;
  return error != 0 || (the_world->counts != 0 && counted_change_fails(path));
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

int ftruncate(int file, off_t size) {
  NEXT(ftruncate);
  return disk_fails(file) ? -1 : next(file, size);
}

int fallocate(int file, int mode, off_t offset, off_t size) {
  NEXT(fallocate);
  return disk_fails(file) ? -1 : next(file, mode, offset, size);
}

int open(const char *path, int flags, ...) {
  NEXT(open);
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(more, mode_t) : 0;
  va_end(more);
  if ((flags & (O_WRONLY | O_RDWR | O_CREAT)) != 0 && change_fails(path)) return -1;
  return next(path, flags, mode);
}

FILE *fopen(const char *path, const char *mode) {
  NEXT(fopen);
  if ((mode[0] != 'r' || strchr(mode, '+') != NULL) && change_fails(path)) return NULL;
  return next(path, mode);
}

FILE *fopen64(const char *path, const char *mode) {
  NEXT(fopen64);
  if ((mode[0] != 'r' || strchr(mode, '+') != NULL) && change_fails(path)) return NULL;
  return next(path, mode);
}

int rename(const char *from, const char *to) {
  NEXT(rename);
  return change_fails(to) ? -1 : next(from, to);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
  NEXT(renameat2);
  return change_fails(to) ? -1 : next(from_folder, from, to_folder, to, flags);
}

int unlink(const char *path) {
  NEXT(unlink);
  return change_fails(path) ? -1 : next(path);
}

int mkdir(const char *path, mode_t mode) {
  NEXT(mkdir);
  return change_fails(path) ? -1 : next(path, mode);
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
