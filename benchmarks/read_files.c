/* Reads every file of a folder once, past the page cache: what a disk needs at least to give back
 * what a save wrote. Each thread takes the next piece of the next file.
 *
 * usage: read_files FOLDER THREADS
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { kPiece = 4 << 20, kAlignment = 4096 };

struct piece {
  int fd;
  long long offset;
};

static struct piece *pieces;
static long count, room;
static atomic_long next_piece;

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static void *work(void *unused) {
  void *buffer;
  if (posix_memalign(&buffer, kAlignment, kPiece) != 0) fail("posix_memalign");
  long i;
  while ((i = atomic_fetch_add(&next_piece, 1)) < count)
    if (pread(pieces[i].fd, buffer, kPiece, pieces[i].offset) < 0) fail("pread");
  free(buffer);
  return unused;
}

static void add_file(int folder, const char *name) {
  struct stat info;
  int fd = openat(folder, name, O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (fd < 0) fd = openat(folder, name, O_RDONLY | O_CLOEXEC);  /* a file system without O_DIRECT */
  if (fd < 0) fail(name);
  if (fstat(fd, &info) != 0) fail(name);
  for (long long offset = 0; offset < info.st_size; offset += kPiece) {
    if (count == room) pieces = realloc(pieces, (size_t)(room = room * 2 + 64) * sizeof *pieces);
    if (!pieces) fail("realloc");
    pieces[count++] = (struct piece){fd, offset};
  }
}

static void add_folder(int parent, const char *name) {
  int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *folder = fd < 0 ? NULL : fdopendir(fd);
  if (!folder) fail(name);
  struct dirent *entry;
  while ((entry = readdir(folder))) {
    if (entry->d_name[0] == '.') continue;
    if (entry->d_type == DT_DIR) add_folder(fd, entry->d_name);
    if (entry->d_type == DT_REG) add_file(fd, entry->d_name);
  }
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  int threads = atoi(argv[2]);
  pthread_t others[256];
  if (threads < 1 || threads > 256) return 2;
  add_folder(AT_FDCWD, argv[1]);
  for (int t = 1; t < threads; t++)
    if (pthread_create(&others[t], NULL, work, NULL) != 0) fail("pthread_create");
  work(NULL);
  for (int t = 1; t < threads; t++) pthread_join(others[t], NULL);
  return 0;
}
