// Preloaded into a command (LD_PRELOAD): it gets no further thread, or no memory.
//
//   SCARCE_THREADS=from:2  pthread_create() fails for the third thread and all later ones
//   SCARCE_THREADS=only:2  for the third alone
//   SCARCE_MEMORY=...      the same of the allocations: what `operator new` asks mimalloc for, and
//                          malloc() and calloc(), which the libraries in C call. realloc() is left
//                          alone: libseccomp 2.5.4 frees twice when it fails (sandbox.cc)
//   SCARCE_COUNT=FILE      how many allocations there were, when the command ends
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace {

// The calls of one kind, counted. No memory is taken: this is what malloc() calls.
class Rationed {
 public:
  explicit constexpr Rationed(const char* variable) : variable_(variable) {}

  bool is_denied() {
    const unsigned long number = asked_++;
    const char* const rule = std::getenv(variable_);
    if (rule == nullptr || std::strlen(rule) < 6) {
      return false;
    }
    const unsigned long first = std::strtoul(rule + 5, nullptr, 10);
    return rule[0] == 'o' ? number == first : number >= first;
  }

  unsigned long asked() const { return asked_; }

 private:
  const char* variable_;
  std::atomic<unsigned long> asked_ = 0;
};

constinit Rationed threads("SCARCE_THREADS");
constinit Rationed memory("SCARCE_MEMORY");

// The function that would have been called.
template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

void* denied() {
  errno = ENOMEM;
  return nullptr;
}

int count_fd = -1;

// Before the command gives up the right to open files for writing.
__attribute__((constructor)) void open_count() {
  if (const char* const file = std::getenv("SCARCE_COUNT")) {
    count_fd = ::open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  }
}

__attribute__((destructor)) void write_count() {
  char text[24] = {};
  const auto end = std::to_chars(text, text + sizeof(text), memory.asked()).ptr;
  (void)!::write(count_fd, text, static_cast<std::size_t>(end - text));
}

}  // namespace

extern "C" {

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) noexcept {
  static const auto call = next<decltype(pthread_create)>("pthread_create");
  return threads.is_denied() ? EAGAIN : call(thread, attributes, start, argument);
}

void* malloc(std::size_t size) noexcept {
  static const auto call = next<void*(std::size_t)>("malloc");
  return memory.is_denied() ? denied() : call(size);
}

void* calloc(std::size_t count, std::size_t size) noexcept {
  static const auto call = next<void*(std::size_t, std::size_t)>("calloc");
  return memory.is_denied() ? denied() : call(count, size);
}

void* mi_malloc(std::size_t size) noexcept {
  static const auto call = next<void*(std::size_t)>("mi_malloc");
  return memory.is_denied() ? denied() : call(size);
}

void* mi_malloc_aligned(std::size_t size, std::size_t alignment) noexcept {
  static const auto call = next<void*(std::size_t, std::size_t)>("mi_malloc_aligned");
  return memory.is_denied() ? denied() : call(size, alignment);
}

}  // extern "C"
