// Writing tensor by tensor, for tensors that come one by one and go away.
#include "onnx_external/writer.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/text.h"
#include "base/try.h"
#include "native/bindings.h"
#include "native/errors.h"
#include "native/options.h"
#include "native/provided.h"
#include "native/work.h"

namespace nb = nanobind;

namespace onnx_external::python {
namespace {

namespace fs = std::filesystem;

// Below this, starting a thread to stay responsive would take longer than the writing.
constexpr std::uint64_t kResponsiveBytes = std::uint64_t{1} << 20;

// To whom the thread that runs add() reports.
thread_local const ProgressFn* adding = nullptr;

Error mismatch(const std::string& name) {
  return Error{ErrorCode::kMismatch,
               "tensor " + quote(name) + ": its type or shape in the model differs"};
}

// Returns the fields of a TensorProto that describe its data, without type, shape and name.
onnx::TensorProto data_of(onnx::TensorProto tensor) {
  tensor.clear_name();
  tensor.clear_data_type();
  tensor.clear_dims();
  return tensor;
}

// The data of `tensor` takes the place of what `initializer` has; all else of it stays.
Status fill(onnx::TensorProto& initializer, const onnx::TensorProto& tensor) {
  const bool same = initializer.data_type() == tensor.data_type() &&
                    std::equal(initializer.dims().begin(), initializer.dims().end(),
                               tensor.dims().begin(), tensor.dims().end());
  if (!same) {
    return fail(mismatch(tensor.name()));
  }
  initializer.clear_float_data();
  initializer.clear_int32_data();
  initializer.clear_string_data();
  initializer.clear_int64_data();
  initializer.clear_raw_data();
  initializer.clear_double_data();
  initializer.clear_uint64_data();
  initializer.clear_external_data();
  initializer.clear_data_location();
  initializer.MergeFrom(data_of(tensor));
  return {};
}

// An input or value of the graph may leave its type and dimensions open.
bool fits(const onnx::ValueInfoProto& value, const onnx::TensorProto& tensor) {
  const onnx::TypeProto::Tensor& type = value.type().tensor_type();
  if (type.elem_type() != 0 && type.elem_type() != tensor.data_type()) {
    return false;
  }
  if (!type.has_shape()) {
    return true;
  }
  const auto& dims = type.shape().dim();
  return std::equal(dims.begin(), dims.end(), tensor.dims().begin(), tensor.dims().end(),
                    [](const onnx::TensorShapeProto::Dimension& stated, std::int64_t dim) {
                      return !stated.has_dim_value() || stated.dim_value() == dim;
                    });
}

class Writer {
 public:
  Writer(const fs::path& folder, const std::string& model_name, const std::string& data_dir,
         const nb::dict& given) {
    Keywords keywords(given);
    SaveOptions save = save_options(keywords);
    keywords.expect_empty();
    set_data_name(save, model_name);
    ExternalDataWriter::Options options;
    options.model_name = model_name;
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
    writer_ = value_or_raise(ExternalDataWriter::open(folder, options));
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() { abandon(); }

  // Removes what was written, unless it is finished.
  void abandon() {
    if (writer_ && ::getpid() != process_) {
      // A forked child does not touch its parent's files: it leaves the object alone.
      static_cast<void>(new std::shared_ptr<ExternalDataWriter>(writer_));
    }
    writer_.reset();
  }

  // `tensors`: a list of one Loose.
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
    onnx::TensorProto proto = value_or_raise(*std::move(result));
    const std::lock_guard lock(mutex_);
    std::string name = proto.name();
    added_.insert_or_assign(std::move(name), std::move(proto));
  }

  // `model`: a ModelProto. Tensors that were added become initializers of its main graph.
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

  Status write_model(ExternalDataWriter& writer, std::string_view text) {
    onnx::ModelProto model;
    if (text.size() > INT_MAX ||
        !model.ParseFromArray(text.data(), static_cast<int>(text.size()))) {
      return fail(ErrorCode::kCorrupt, "the model's bytes are not a ModelProto");
    }
    TRY(attach(*model.mutable_graph(), model.ir_version()));
    return writer.finish(model);
  }

  Status check_stated(const google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& values) {
    for (const onnx::ValueInfoProto& value : values) {
      const auto found = added_.find(value.name());
      if (found != added_.end() && !fits(value, found->second)) {
        return fail(mismatch(value.name()));
      }
    }
    return {};
  }

  Status attach(onnx::GraphProto& graph, std::int64_t ir_version) {
    TRY(check_stated(graph.input()));
    TRY(check_stated(graph.value_info()));
    std::map<std::string, onnx::TensorProto> left = added_;
    for (onnx::TensorProto& initializer : *graph.mutable_initializer()) {
      if (const auto found = left.find(initializer.name()); found != left.end()) {
        TRY(fill(initializer, found->second));
        left.erase(found);
      }
    }
    for (auto& [name, tensor] : left) {
      *graph.add_initializer() = std::move(tensor);
    }
    constexpr std::int64_t kFreeInitializers = 4;  // before, each initializer was an input
    for (int i = graph.input_size(); ir_version >= kFreeInitializers && i-- > 0;) {
      if (added_.contains(graph.input(i).name())) {
        graph.mutable_input()->DeleteSubrange(i, 1);
      }
    }
    return {};
  }

  std::shared_ptr<ExternalDataWriter> writer_;  // null: closed
  const pid_t process_ = ::getpid();
  std::mutex mutex_;
  std::map<std::string, onnx::TensorProto> added_;  // by name
  const ProgressFn* finishing_ = nullptr;
};

void construct(Writer* self, nb::object folder, const std::string& model_name,
               const std::string& data_dir, const nb::dict& options) {
  new (self) Writer(path_of(folder), model_name, data_dir, options);
}

}  // namespace

void bind_writer(nb::module_& module) {
  nb::class_<Writer>(module, "Writer")
      .def("__init__", &construct, nb::arg("folder"), nb::arg("model_name"), nb::arg("data_dir"),
           nb::arg("options"))
      .def("add", &Writer::add, nb::arg("tensors"))
      .def("finish", &Writer::finish, nb::arg("model"), nb::arg("progress").none())
      .def("abandon", &Writer::abandon);
}

}  // namespace onnx_external::python
