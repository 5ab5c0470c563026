#include "save/option_rules.h"

#include <string>
#include <utility>

namespace onnx_external {
namespace {

std::string wrong_with_link(const PlanOptions& plan, const WriteOptions& write, Casts casts) {
  if (write.checksum != Checksum::kNone) {
    return "a checksum needs whole files to be read; leave it out with the layout link";
  }
  if (plan.dedup == Dedup::kContent) {
    return "looking for equal bytes saves nothing with the layout link, which copies nothing";
  }
  if (plan.quantize) {  // what is in no file is written
    return plan.quantize->keep == KeepCodes::kNo
               ? "quantized weights are in no file yet, so they cannot be linked, unless they are "
                 "kept as a checkpoint has them (keep); choose another layout"
               : "";
  }
  if (plan.dtype || casts == Casts::kAllow) {
    return "a conversion makes new bytes, and the layout link copies none";
  }
  return "";
}

std::string wrong_options(const PlanOptions& plan, const WriteOptions& write, Casts casts) {
  if (plan.max_shard_bytes && plan.layout != Layout::kShards) {
    return "a size of shards is for the layout shards";
  }
  if (plan.alignment && plan.layout != Layout::kSingle && plan.layout != Layout::kShards) {
    return "an alignment is for the layouts single and shards";
  }
  if (plan.layout == Layout::kInline && write.checksum != Checksum::kNone) {
    return "a checksum is of data files, and the layout inline has none";
  }
  if (plan.dtype && !can_cast_to(*plan.dtype)) {
    return "values are converted to float64, float32, float16 and bfloat16 only, not to " +
           std::string(torch_name(*plan.dtype));
  }
  if (plan.dtype && casts == Casts::kAllow) {
    return "a dtype converts all floats; leave out the cast";
  }
  return plan.layout == Layout::kLink ? wrong_with_link(plan, write, casts) : "";
}

}  // namespace

Status check_option_rules(const PlanOptions& plan, const WriteOptions& write, Casts casts) {
  if (plan.quantize) {
    if (Status checked = check_options(*plan.quantize); !checked) {
      return checked;
    }
  }
  std::string wrong = wrong_options(plan, write, casts);
  return wrong.empty() ? Status() : fail(ErrorCode::kInvalidArgument, std::move(wrong));
}

}  // namespace onnx_external
