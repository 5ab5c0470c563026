#include "onnx_external/evidence.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/try.h"
#include "checkpoint/storage/checkpoint_access.h"
#include "evidence/byte_stream.h"
#include "evidence/graph_tensors.h"
#include "evidence/place_sum.h"
#include "evidence/read_budget.h"
#include "onnx/graph_facts.h"
#include "tensor/strided_gather.h"

namespace onnx_external {
namespace {

// A quick test before a whole matrix is read.
constexpr std::uint64_t kSampleElements = 16;

// Cached answers.
class Evidence {
 public:
  Evidence(const Model& model, const Checkpoint& checkpoint)
      : model_(model),
        checkpoint_(checkpoint),
        graph_tensors_(graph_tensors(model)),
        tensor_of_slot_(tensor_of_slots(model.facts(), graph_tensors_)),
        budget_(model, checkpoint) {}

  Result<bool> same_bytes(std::uint32_t key, std::uint32_t other) {
    const TensorView& one = checkpoint_.tensors()[key];
    const TensorView& two = checkpoint_.tensors()[other];
    if (key == other || one.dtype != two.dtype || one.shape != two.shape) {
      return key == other;
    }
    const auto crc = checkpoint_.recorded_crc(key);
    const auto other_crc = checkpoint_.recorded_crc(other);
    if (crc && other_crc && *crc != *other_crc) {
      return false;
    }
    return remembered(same_, {std::min(key, other), std::max(key, other)}, [&] {
      return equal(key_stream(checkpoint_, key), key_stream(checkpoint_, other));
    });
  }

  Result<bool> slot_holds(std::uint32_t slot, std::uint32_t key, const Recipe& recipe) {
    if (!tensor_of_slot_[slot]) {
      return false;
    }
    const std::uint32_t place = *tensor_of_slot_[slot];
    const TensorView& view = checkpoint_.tensors()[key];
    const auto shape = onnx_shape(view.dtype, view.shape);
    const auto made = shape ? apply_recipe(recipe, *shape) : shape;
    // An exporter may have reshaped a weight without moving its elements.
    const bool fits = recipe.empty() ? graph_tensors_[place].nbytes() == checkpoint_.nbytes(key)
                                     : made && graph_tensors_[place].dims() == *made;
    if (!fits || graph_tensors_[place].data_type() != onnx_data_type(view.dtype)) {
      return false;
    }
    const bool transposed = transposes(recipe);
    return remembered(holds_, {place, key, transposed}, [&]() -> Result<bool> {
      if (transposed && shares_byte(view.dtype)) {
        return false;  // no byte holds neighbours of a column
      }
      // A single row or column is the same when transposed.
      const bool turned = transposed && std::none_of(view.shape.begin(), view.shape.end(),
                                                     [](std::int64_t size) { return size <= 1; });
      return turned ? holds_transposed(place, key) : holds(place, key);
    });
  }

  Result<bool> same_data(std::uint32_t slot, std::uint32_t other) {
    const auto one = tensor_of_slot_[slot];
    const auto two = tensor_of_slot_[other];
    if (!one || !two || graph_tensors_[*one].data_type() != graph_tensors_[*two].data_type() ||
        graph_tensors_[*one].dims() != graph_tensors_[*two].dims()) {
      return false;
    }
    if (*one == *two) {
      return true;
    }
    return remembered(
        same_data_, {std::min(*one, *two), std::max(*one, *two)}, [&]() -> Result<bool> {
          TRY_ASSIGN(const auto first, graph_stream(model_, graph_tensors_[*one], checkpoint_));
          TRY_ASSIGN(const auto second, graph_stream(model_, graph_tensors_[*two], checkpoint_));
          return equal(first, second);
        });
  }

  Result<bool> key_is_uniform(std::uint32_t key) {
    const TensorView& view = checkpoint_.tensors()[key];
    return is_uniform(budget_.counted(key_stream(checkpoint_, key)), byte_size(view.dtype));
  }

  Result<bool> slot_is_uniform(std::uint32_t slot) {
    const auto place = tensor_of_slot_[slot];
    const auto dtype = place ? dtype_from_onnx(graph_tensors_[*place].data_type()) : std::nullopt;
    if (!dtype) {
      return true;
    }
    TRY_ASSIGN(const auto stream, graph_stream(model_, graph_tensors_[*place], checkpoint_));
    return is_uniform(budget_.counted(stream), byte_size(*dtype));
  }

 private:
  template <typename Known, typename Find>
  static Result<typename Known::mapped_type> remembered(Known& known,
                                                        const typename Known::key_type& key,
                                                        const Find& find) {
    if (const auto found = known.find(key); found != known.end()) {
      return found->second;
    }
    TRY_ASSIGN(const auto answer, find());
    known.emplace(key, answer);
    return answer;
  }

  Result<bool> equal(const ByteStream& one, const ByteStream& other) {
    return equal_streams(budget_.counted(one), other);
  }

  Result<bool> holds(std::uint32_t place, std::uint32_t key) {
    TRY_ASSIGN(auto stream, graph_stream(model_, graph_tensors_[place], checkpoint_));
    return equal(stream, key_stream(checkpoint_, key));
  }

  Result<bool> holds_transposed(std::uint32_t place, std::uint32_t key) {
    TRY_ASSIGN(const bool starts_alike, starts_as_column(place, key));
    if (!starts_alike) {
      return false;
    }
    TRY_ASSIGN(const auto tensor, graph_sum(place));
    TRY_ASSIGN(const auto made, transposed_sum(key));
    return tensor == made;
  }

  // Returns whether the first elements of the graph's data equal those of the key's first column.
  Result<bool> starts_as_column(std::uint32_t place, std::uint32_t key) {
    const TensorView& view = checkpoint_.tensors()[key];
    const std::uint64_t unit = byte_size(view.dtype);
    const auto rows = static_cast<std::uint64_t>(view.shape[0]);
    const auto columns = static_cast<std::uint64_t>(view.shape[1]);
    TRY_ASSIGN(auto stream, graph_stream(model_, graph_tensors_[place], checkpoint_));
    std::vector<std::byte> tensor(
        static_cast<std::size_t>(std::min(kSampleElements * unit, stream.nbytes)));
    TRY(stream.next(tensor));
    TRY_ASSIGN(const auto kept, CheckpointAccess::hold(checkpoint_, view));
    std::vector<std::byte> element(unit);
    for (std::uint64_t row = 0; row < std::min(rows, kSampleElements); ++row) {
      TRY(checkpoint_.read(key, row * columns * unit, element));
      if (std::memcmp(element.data(), tensor.data() + row * unit, unit) != 0) {
        return false;
      }
    }
    return true;
  }

  Result<std::uint64_t> graph_sum(std::uint32_t place) {
    return remembered(graph_sums_, place, [&]() -> Result<std::uint64_t> {
      const DType dtype = *dtype_from_onnx(graph_tensors_[place].data_type());
      TRY_ASSIGN(auto stream, graph_stream(model_, graph_tensors_[place], checkpoint_));
      return place_sum(budget_.counted(stream),
                       {byte_size(dtype), graph_tensors_[place].dims(), PlaceSum::Places::kOwn});
    });
  }

  Result<std::uint64_t> transposed_sum(std::uint32_t key) {
    return remembered(transposed_sums_, key, [&] {
      const TensorView& view = checkpoint_.tensors()[key];
      return place_sum(budget_.counted(key_stream(checkpoint_, key)),
                       {byte_size(view.dtype), view.shape, PlaceSum::Places::kTransposed});
    });
  }

  const Model& model_;
  const Checkpoint& checkpoint_;
  std::vector<GraphTensor> graph_tensors_;
  std::vector<std::optional<std::uint32_t>> tensor_of_slot_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, bool> same_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, bool> same_data_;     // places
  std::map<std::tuple<std::uint32_t, std::uint32_t, bool>, bool> holds_;  // place, key, transposed
  ReadBudget budget_;
  std::map<std::uint32_t, std::uint64_t> graph_sums_;
  std::map<std::uint32_t, std::uint64_t> transposed_sums_;
};

}  // namespace

MappingEvidence mapping_evidence(const Model& model, const Checkpoint& checkpoint) {
  const auto evidence = std::make_shared<Evidence>(model, checkpoint);
  return {[evidence](std::uint32_t key, std::uint32_t other) {
            return evidence->same_bytes(key, other);
          },
          [evidence](std::uint32_t slot, std::uint32_t key, const Recipe& recipe) {
            return evidence->slot_holds(slot, key, recipe);
          },
          [evidence](std::uint32_t slot, std::uint32_t other) {
            return evidence->same_data(slot, other);
          },
          [evidence](std::uint32_t key) { return evidence->key_is_uniform(key); },
          [evidence](std::uint32_t slot) { return evidence->slot_is_uniform(slot); }};
}

}  // namespace onnx_external
