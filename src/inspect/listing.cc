#include "inspect/listing.h"

#include <re2/re2.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/expression_text.h"
#include "onnx/graph_facts.h"

namespace onnx_external {

Result<NameFilter> NameFilter::make(const std::string& expression) {
  RE2::Options quiet;
  quiet.set_log_errors(false);
  NameFilter filter;
  auto made = std::make_shared<const RE2>(expression, quiet);
  if (!made->ok()) {
    return fail(ErrorCode::kInvalidArgument, invalid_expression_text(made->error()));
  }
  filter.expression_ = std::move(made);
  return filter;
}

bool NameFilter::operator()(std::string_view name) const {
  return expression_ == nullptr ||
         RE2::PartialMatch(re2::StringPiece(name.data(), name.size()), *expression_);
}

void keep_matching(Inspection& inspection, const NameFilter& filter) {
  if (filter.takes_all()) {
    return;
  }
  std::erase_if(inspection.tensors, [&](const InspectedTensor& t) { return !filter(t.name); });
  std::erase_if(inspection.tied, [&](const auto& tie) { return !filter(tie.first); });
  std::erase_if(inspection.tied_names, [&](const auto& tie) { return !filter(tie.first); });
  std::erase_if(inspection.open_slots, [&](const Slot& slot) { return !filter(slot.name); });
  std::erase_if(inspection.node_tensors,
                [&](const InspectedTensor& tensor) { return !filter(tensor.name); });
  std::erase_if(inspection.opaque_objects,
                [&](const OpaqueObject& object) { return !filter(object.path); });
  std::erase_if(inspection.refused_tensors,
                [&](const RefusedTensor& refused) { return !filter(refused.path); });
  inspection.bytes = 0;
  for (const InspectedTensor& tensor : inspection.tensors) {
    inspection.bytes = add_bytes(inspection.bytes, tensor.nbytes);
  }
}

void sort_tensors(Inspection& inspection, ListOrder order) {
  std::vector<InspectedTensor>& tensors = inspection.tensors;
  if (order == ListOrder::kName) {
    std::stable_sort(tensors.begin(), tensors.end(),
                     [](const auto& a, const auto& b) { return a.name < b.name; });
  } else if (order == ListOrder::kSize) {
    std::stable_sort(tensors.begin(), tensors.end(),
                     [](const auto& a, const auto& b) { return a.nbytes > b.nbytes; });
  }
}

}  // namespace onnx_external
