#include "native/mapped.h"

#include <nanobind/nanobind.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <utility>

#include "base/try.h"
#include "native/bindings.h"

namespace nb = nanobind;

namespace onnx_external::python {
namespace {

// By default, Linux allows a process 65,530 mappings (vm.max_map_count). Thread stacks and large
// objects also need some of them.
constexpr std::size_t kMostMappings = 16384;

std::atomic<std::size_t> live_mappings = 0;

// Implements bf_getbuffer of the buffer protocol.
int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const auto* const mapped = nb::inst_ptr<Mapped>(self);
  const int read_only = mapped->writable() == Writable::kYes ? 0 : 1;
  return PyBuffer_FillInfo(view, self, mapped->data(), static_cast<Py_ssize_t>(mapped->size()),
                           read_only, flags);
}

}  // namespace

Result<std::optional<Mapped>> Mapped::map(const SourceFile& file, std::uint64_t offset,
                                          std::uint64_t length, Writable writable) {
  TRY(file.check_range(offset, length));
  TRY(file.check_unchanged());
  const bool is_whole = offset == 0 && length == file.size();
  if (live_mappings.fetch_add(1) >= kMostMappings && !is_whole) {
    --live_mappings;
    return std::optional<Mapped>();
  }
  Mapped mapped;
  mapped.skipped_ = offset % static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  mapped.length_ = length + mapped.skipped_;
  mapped.writable_ = writable;
  // The mapping is writable even if its buffer is read-only. torch.from_numpy() accepts read-only
  // arrays with a warning, and a write to such a tensor would otherwise crash the process. No
  // memory is reserved, because a file may be larger than the memory of the machine.
  void* const pages =
      ::mmap(nullptr, mapped.length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
             file.fd(), static_cast<off_t>(offset - mapped.skipped_));
  if (pages == MAP_FAILED) {
    --live_mappings;
    if (errno == ENOMEM || errno == ENODEV) {  // no room, or a file system without mmap
      return std::optional<Mapped>();
    }
    return fail(errno_error(errno, "map " + file.name()));
  }
  mapped.pages_ = static_cast<std::byte*>(pages);
  return std::optional(std::move(mapped));
}

Mapped::Mapped(Mapped&& other) noexcept
    : pages_(std::exchange(other.pages_, nullptr)),
      length_(other.length_),
      skipped_(other.skipped_),
      writable_(other.writable_) {}

Mapped::~Mapped() {
  if (pages_ != nullptr) {
    ::munmap(pages_, length_);
    --live_mappings;
  }
}

void bind_mapped(nb::module_& module) {
  static PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)},
                                {0, nullptr}};
  nb::class_<Mapped>(module, "Mapped", nb::type_slots(slots))
      .def("__len__", [](const Mapped& self) { return self.size(); });
}

}  // namespace onnx_external::python
