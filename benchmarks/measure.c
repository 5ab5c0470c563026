/* Runs a command and prints "seconds peak_KiB" to a file: wall time and peak resident memory.
 *
 * A program of its own because Linux counts the memory of the process that execs: measured from a
 * Python process, no child could show less than Python's own.
 *
 * usage: measure RESULT_FILE COMMAND [ARGUMENT...]     exits as the command does
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
  struct timespec start, end;
  struct rusage usage;
  int status;
  if (argc < 3) return 2;
  clock_gettime(CLOCK_MONOTONIC, &start);
  pid_t child = fork();
  if (child < 0) return 126;
  if (child == 0) {
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    _exit(127);
  }
  if (wait4(child, &status, 0, &usage) != child) return 126;
  clock_gettime(CLOCK_MONOTONIC, &end);
  FILE *result = fopen(argv[1], "w");
  if (!result) return 126;
  double seconds = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
  fprintf(result, "%.6f %ld\n", seconds, usage.ru_maxrss);
  fclose(result);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
