// Preloaded into a command (LD_PRELOAD): it gets no further thread, or no memory.
//
//   SCARCE_THREADS=most:2  pthread_create() fails while two threads that it started are alive
//   SCARCE_THREADS=only:2  for the third thread that is started, alone
//   SCARCE_REGION=yes      for the first thread that libgomp asks for
//   SCARCE_MEMORY=...      the same of the allocations: what `operator new` asks mimalloc for, and
//                          malloc() and calloc(), which the libraries in C call, but libseccomp.
//                          realloc() is left alone
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
#include <new>

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

// The threads that are alive, not the calls: who asks for a thread, joins it and asks again has
// one.
class LivingThreads {
 public:
  bool begin() {
    const char* const rule = std::getenv("SCARCE_THREADS");
    const unsigned long number = started_++;
    const bool is_rule = rule != nullptr && std::strlen(rule) > 5;
    const unsigned long limit = is_rule ? std::strtoul(rule + 5, nullptr, 10) : 0;
    if (is_rule && (rule[0] == 'o' ? number == limit : alive_.load() >= limit)) {
      return false;
    }
    ++alive_;
    return true;
  }
  void end() { --alive_; }

 private:
  std::atomic<unsigned long> started_ = 0;
  std::atomic<unsigned long> alive_ = 0;
};

constinit LivingThreads threads;
constinit Rationed memory("SCARCE_MEMORY");

// The function that would have been called.
template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

struct Start {
  void* (*function)(void*);
  void* argument;
};

// A thread of libgomp ends by pthread_exit(), which unwinds.
class UntilEnd {
 public:
  UntilEnd() = default;
  UntilEnd(const UntilEnd&) = delete;
  UntilEnd& operator=(const UntilEnd&) = delete;
  ~UntilEnd() { threads.end(); }
};

void* counted(void* argument) {
  const UntilEnd until_end;
  const Start start = *static_cast<Start*>(argument);
  delete static_cast<Start*>(argument);
  return start.function(start.argument);
}

bool is_in_library(const void* code, const char* library) {
  Dl_info info{};
  return ::dladdr(code, &info) != 0 && std::strstr(info.dli_fname, library) != nullptr;
}

// libseccomp 2.5.4 frees memory twice if one of its allocations fails, which is seen much later.
// The sandbox makes sure that there is memory for it (sandbox.cc), so its allocations do not fail
// here.
bool is_denied_to(const void* caller) {
  return memory.is_denied() && !is_in_library(caller, "libseccomp");
}

std::atomic<bool> region_is_denied = false;

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
  if (std::getenv("SCARCE_REGION") != nullptr &&
      is_in_library(__builtin_return_address(0), "libgomp") && !region_is_denied.exchange(true)) {
    return EAGAIN;
  }
  if (!threads.begin()) {
    return EAGAIN;
  }
  auto* const counted_start = new (std::nothrow) Start{start, argument};
  const int error =
      counted_start == nullptr ? EAGAIN : call(thread, attributes, counted, counted_start);
  if (error != 0) {
    threads.end();
    delete counted_start;
  }
  return error;
}

void* malloc(std::size_t size) noexcept {
  static const auto call = next<void*(std::size_t)>("malloc");
  return is_denied_to(__builtin_return_address(0)) ? denied() : call(size);
}

void* calloc(std::size_t count, std::size_t size) noexcept {
  static const auto call = next<void*(std::size_t, std::size_t)>("calloc");
  return is_denied_to(__builtin_return_address(0)) ? denied() : call(count, size);
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
