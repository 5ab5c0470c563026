/* The least work that leaves the same files behind: creates each file of a list and writes its bytes
 * from a mapped source. What save-external is compared with on many small tensors.
 *
 * usage: write_files SOURCE LIST OUT_DIR THREADS      LIST: lines of "offset length name"
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct item {
  long long offset, length;
  char name[256];
};

static struct item *items;
static long count;
static const char *source;
static int folder;
static atomic_long next_item;

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static void *work(void *unused) {
  long i;
  while ((i = atomic_fetch_add(&next_item, 1)) < count) {
    const struct item *item = &items[i];
    int fd = openat(folder, item->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) fail(item->name);
    long long done = 0;
    while (done < item->length) {
      ssize_t n = write(fd, source + item->offset + done, (size_t)(item->length - done));
      if (n <= 0) fail(item->name);
      done += n;
    }
    if (close(fd) != 0) fail(item->name);
  }
  return unused;
}

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  int fd = open(argv[1], O_RDONLY);
  struct stat info;
  if (fd < 0 || fstat(fd, &info) != 0) fail(argv[1]);
  source = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
  if (source == MAP_FAILED) fail("mmap");
  FILE *list = fopen(argv[2], "r");
  if (!list) fail(argv[2]);
  long room = 0;
  struct item item;
  while (fscanf(list, "%lld %lld %255s", &item.offset, &item.length, item.name) == 3) {
    if (count == room) items = realloc(items, (size_t)(room = room * 2 + 64) * sizeof item);
    if (!items) fail("realloc");
    items[count++] = item;
  }
  if (mkdir(argv[3], 0777) != 0 || (folder = open(argv[3], O_RDONLY | O_DIRECTORY)) < 0) fail(argv[3]);
  int threads = atoi(argv[4]);
  pthread_t others[256];
  if (threads < 1 || threads > 256) return 2;
  for (int t = 1; t < threads; t++)
    if (pthread_create(&others[t], NULL, work, NULL) != 0) fail("pthread_create");
  work(NULL);
  for (int t = 1; t < threads; t++) pthread_join(others[t], NULL);
  return 0;
}
