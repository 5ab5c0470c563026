// Binds the writer that saves tensors one by one, so that the caller may free each tensor after it
// was added.
#include "onnx_external/writer.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <unistd.h>

#include <climits>
#include <memory>
#include <optional>
#include <utility>

#include "native/bindings.h"
#include "native/errors.h"
#include "native/options.h"
#include "native/provided.h"
#include "native/work.h"

namespace nb = nanobind;

namespace onnx_external::python {
namespace {

namespace fs = std::filesystem;

// For fewer bytes, starting a thread to stay responsive would take longer than writing them.
constexpr std::uint64_t kResponsiveBytes = std::uint64_t{1} << 20;

// The function to which the thread that runs add() reports its progress.
thread_local const ProgressFn* adding = nullptr;

class PythonWriter {
 public:
  PythonWriter(const fs::path& folder, const std::string& model_name, const std::string& data_dir,
               const nb::dict& given) {
    Keywords keywords(given);
    SaveOptions save = save_options(keywords);
    keywords.expect_empty();
    set_data_name(save, model_name);
    WriterOptions options;
    options.data_dir = data_dir;
    options.sync = save.write.sync;
    options.overwrite = save.write.overwrite;
    options.layout = save.plan.layout;
    options.data_name = save.plan.data_name;
    options.max_shard_bytes = save.plan.max_shard_bytes;
    options.alignment = save.plan.alignment;
    options.verification = save.verification;
    options.partial = save.mapping.partial;
    options.threads = save.write.threads;
    options.progress = [this](const Progress& at) { return report(at); };
    writer_ =
        std::make_shared<Writer>(value_or_raise(Writer::create(folder / model_name, options)));
  }
  PythonWriter(const PythonWriter&) = delete;
  PythonWriter& operator=(const PythonWriter&) = delete;
  ~PythonWriter() { abandon(); }

  // Removes the files written so far, unless the model is finished.
  void abandon() {
    if (writer_ && ::getpid() != process_) {
      // A forked child must not touch the files of its parent, so the object is leaked instead of
      // destroyed.
      static_cast<void>(new std::shared_ptr<Writer>(writer_));
    }
    writer_.reset();
  }

  // `tensors` is a list of one Loose.
  void add(nb::list tensors) {
    check_free();
    const auto failure = std::make_shared<MakeFailure>(this);
    ProvidedList given = provided_tensors(tensors, failure);
    std::vector<ProvidedTensor>& provided = given.tensors;
    std::optional<Result<onnx::TensorProto>> result;
    check_open();
    const auto work = [&, writer = writer_](const ProgressFn& report) {
      adding = &report;
      result.emplace(writer->add(std::move(provided.front())));
      adding = nullptr;
    };
    const auto nbytes = contiguous_nbytes(provided.front().info.dtype, provided.front().info.shape);
    if (nbytes && *nbytes < kResponsiveBytes) {
      nb::gil_scoped_release released;
      work({});
    } else {
      run_work(nb::none(), work);
    }
    if (!*result) {
      failure->raise_if_any();
    }
    (void)value_or_raise(*std::move(result));
  }

  // `model` is a ModelProto. The tensors that were added become initializers of its main graph.
  void finish(nb::bytes model, nb::handle progress) {
    check_free();
    check_open();
    const std::string_view text(model.c_str(), model.size());
    std::optional<Status> result;
    run_work(progress, [&, writer = writer_](const ProgressFn& report) {
      finishing_ = &report;
      result.emplace(write_model(*writer, text));
      finishing_ = nullptr;
    });
    check(*result);
    writer_.reset();
  }

 private:
  void check_free() const {
    if (is_making_for(this)) {
      raise(Error{ErrorCode::kInvalidArgument,
                  "the function that produces the data of a tensor uses the writer, which waits "
                  "for that data; add the tensors one after the other"});
    }
  }

  void check_open() const {
    if (!writer_ || ::getpid() != process_) {
      raise(Error{ErrorCode::kInvalidArgument, "the writer is closed"});
    }
  }

  Continue report(const Progress& at) const {
    const ProgressFn* const listener = finishing_ != nullptr ? finishing_ : adding;
    return listener != nullptr && *listener ? (*listener)(at) : Continue::kYes;
  }

  static Status write_model(Writer& writer, std::string_view text) {
    onnx::ModelProto model;
    if (text.size() > INT_MAX ||
        !model.ParseFromArray(text.data(), static_cast<int>(text.size()))) {
      return fail(ErrorCode::kCorrupt, "the model's bytes are not a ModelProto");
    }
    return writer.finish(std::move(model));
  }

  std::shared_ptr<Writer> writer_;  // null once closed
  const pid_t process_ = ::getpid();
  const ProgressFn* finishing_ = nullptr;
};

void construct(PythonWriter* self, nb::object folder, const std::string& model_name,
               const std::string& data_dir, const nb::dict& options) {
  new (self) PythonWriter(path_of(folder), model_name, data_dir, options);
}

}  // namespace

void bind_writer(nb::module_& module) {
  nb::class_<PythonWriter>(module, "Writer")
      .def("__init__", &construct, nb::arg("folder"), nb::arg("model_name"), nb::arg("data_dir"),
           nb::arg("options"))
      .def("add", &PythonWriter::add, nb::arg("tensors"))
      .def("finish", &PythonWriter::finish, nb::arg("model"), nb::arg("progress").none())
      .def("abandon", &PythonWriter::abandon);
}

}  // namespace onnx_external::python
