#include "evidence/contents.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "base/parallel.h"
#include "base/progress_meter.h"
#include "base/try.h"
#include "evidence/place_sum.h"
#include "evidence/read_budget.h"

namespace onnx_external {
namespace {

// Each may hold Checkpoint::kReadScratchBytes.
constexpr int kMaxReaders = 4;

struct Form {
  DType dtype = DType::kFloat32;
  std::uint64_t elements = 0;
  auto operator<=>(const Form&) const = default;
};
using TurnedForm = std::tuple<DType, std::int64_t, std::int64_t>;  // of the graph's matrix

struct Digest {
  std::uint64_t own = 0;
  std::uint64_t turned = 0;  // of the transpose
  bool uniform = true;
};

// One reading: a graph tensor, or a key as one type.
struct Job {
  bool is_key = false;
  std::uint32_t index = 0;
  Form form;
  bool turns = false;  // the sum of the transpose is also needed
};

std::optional<Form> form_of(const GraphTensor& tensor) {
  const auto dtype = dtype_from_onnx(tensor.data_type());
  const auto elements = element_count(tensor.dims());
  if (!dtype || *dtype == DType::kFloat4E2M1FnX2 || !elements || *elements == 0) {
    return std::nullopt;
  }
  return Form{*dtype, *elements};
}

bool can_become(DType from, DType to) {
  return from == to || (can_cast_from(from) && can_cast_to(to));
}

class Search {
 public:
  explicit Search(const ContentSearch& given) : given_(given) {}

  Result<Contents> run() {
    list_wanted();
    list_jobs();
    TRY(read_all());
    return join();
  }

 private:
  void list_wanted() {
    for (std::uint32_t i = 0; i < given_.graph_tensors.size(); ++i) {
      const auto form = given_.wanted[i] ? form_of(given_.graph_tensors[i]) : std::nullopt;
      if (!form) {
        continue;
      }
      types_of_size_[form->elements].insert(form->dtype);
      if (const Shape& dims = given_.graph_tensors[i].dims(); dims.size() == 2) {
        turned_.emplace(form->dtype, dims[0], dims[1]);
      }
    }
  }

  void list_jobs() {
    std::set<Form> met;
    const std::vector<TensorView>& tensors = given_.checkpoint.tensors();
    for (std::uint32_t key = 0; key < tensors.size(); ++key) {
      const Shape& shape = tensors[key].shape;
      const std::uint64_t elements = given_.checkpoint.nbytes(key) / byte_size(tensors[key].dtype);
      const auto types = types_of_size_.find(elements);
      if (!given_.usable[key] || types == types_of_size_.end()) {
        continue;
      }
      for (const DType dtype : types->second) {
        if (can_become(tensors[key].dtype, dtype)) {
          const bool turns = shape.size() == 2 && turned_.contains({dtype, shape[1], shape[0]});
          jobs_.push_back({true, key, {dtype, elements}, turns});
          met.insert({dtype, elements});
        }
      }
    }
    for (std::uint32_t i = 0; i < given_.graph_tensors.size(); ++i) {
      const auto form = given_.wanted[i] ? form_of(given_.graph_tensors[i]) : std::nullopt;
      if (form && met.contains(*form)) {
        jobs_.push_back({false, i, *form, false});
      }
    }
  }

  Status read_all() {
    ProgressMeter meter(given_.progress);
    std::uint64_t bytes = 0;
    for (const Job& job : jobs_) {
      bytes += job.form.elements * byte_size(job.form.dtype);
    }
    TRY(ReadBudget(given_.model, given_.checkpoint).take(bytes));
    meter.begin(Phase::kCompare, bytes);
    digests_.resize(jobs_.size());
    const int threads = std::min(thread_count(given_.threads), kMaxReaders);
    TRY(parallel_for(jobs_.size(), threads,
                     [&](std::size_t i, int) { return read(jobs_[i], digests_[i], meter); }));
    return meter.finish();
  }

  Status read(const Job& job, Digest& digest, ProgressMeter& meter) const {
    TRY_ASSIGN(auto stream, job.is_key ? key_stream(given_.checkpoint, job.index, job.form.dtype)
                                       : graph_stream(given_.model, given_.graph_tensors[job.index],
                                                      given_.own));
    const std::uint32_t unit = byte_size(job.form.dtype);
    PlaceSum own(unit, 1, job.form.elements, PlaceSum::Places::kOwn);
    PlaceSum turned = own;
    if (job.turns) {
      turned = PlaceSum(unit, given_.checkpoint.tensors()[job.index].shape,
                        PlaceSum::Places::kTransposed);
    }
    std::vector<std::byte> first;
    bool cancelled = false;
    Status status = for_each_chunk(stream, [&](std::span<const std::byte> chunk) {
      own.add(chunk);
      if (job.turns) {
        turned.add(chunk);
      }
      if (first.empty()) {
        first.assign(chunk.begin(), chunk.begin() + unit);
      }
      digest.uniform = digest.uniform && std::equal(first.begin(), first.end(), chunk.begin()) &&
                       std::memcmp(chunk.data(), chunk.data() + unit, chunk.size() - unit) == 0;
      cancelled = !meter.add(chunk.size());
      return !cancelled;
    });
    digest.own = own.value();
    digest.turned = turned.value();
    return cancelled ? Status(onnx_external::cancelled()) : status;
  }

  Contents join() {
    Contents contents;
    contents.of_tensor.assign(given_.graph_tensors.size(), Contents::kNone);
    std::map<std::pair<Form, std::uint64_t>, std::uint32_t> by_sum;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (!jobs_[i].is_key) {
        const auto [place, fresh] = by_sum.try_emplace(
            {jobs_[i].form, digests_[i].own}, static_cast<std::uint32_t>(contents.all.size()));
        if (fresh) {
          contents.all.push_back({digests_[i].uniform, {}, {}, {}, 0});
        }
        ++contents.all[place->second].holders;
        contents.of_tensor[jobs_[i].index] = place->second;
      }
    }
    const auto add = [&](const Job& job, std::uint64_t sum,
                         std::vector<std::uint32_t> Content::*to) {
      if (const auto found = by_sum.find({job.form, sum}); found != by_sum.end()) {
        (contents.all[found->second].*to).push_back(job.index);
      }
    };
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (jobs_[i].is_key) {
        add(jobs_[i], digests_[i].own, &Content::keys);
        if (jobs_[i].turns) {
          add(jobs_[i], digests_[i].turned, &Content::turned);
        }
      }
    }
    for (Content& content : contents.all) {
      std::set_union(content.keys.begin(), content.keys.end(), content.turned.begin(),
                     content.turned.end(), std::back_inserter(content.all));
    }
    return contents;
  }

  const ContentSearch& given_;
  std::map<std::uint64_t, std::set<DType>> types_of_size_;  // of the graph tensors
  std::set<TurnedForm> turned_;
  std::vector<Job> jobs_;
  std::vector<Digest> digests_;
};

}  // namespace

Result<Contents> find_contents(const ContentSearch& search) {
  return Search(search).run();
}

}  // namespace onnx_external
