/* Touches so many bytes of fresh memory, then gives them back: the pages that a measured program gets
 * next are then backed by the machine below, too. On a virtual machine whose host takes back idle
 * memory the first use of a page can cost ten times its copy.
 *
 * usage: touch_memory BYTES
 */
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  size_t bytes = strtoull(argv[1], NULL, 10);
  char *memory = malloc(bytes);
  if (!memory) return 1;
  memset(memory, 1, bytes);
  return memory[bytes / 2] != 1;
}
