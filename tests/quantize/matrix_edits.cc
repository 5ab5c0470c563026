// Plans the matrices of a model that holds its weights, writes the model with the nodes that read
// codes, and prints the plan as JSON. The caller fills the files of the new tensors.
//
// usage: matrix-edits MODEL OUT SCHEME HEAD ACCURACY_LEVEL MIN_COLUMNS MIN_ROWS FORM
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/try.h"
#include "onnx/matrix_nodes.h"
#include "onnx/model_access.h"
#include "onnx/model_segments.h"

namespace onnx_external {
namespace {

std::string text_of(const char* name, const std::string& value) {
  return json_quote(name) + ": " + value;
}

std::string list_of(const std::vector<std::int64_t>& numbers) {
  return shape_text(numbers);
}

std::string recipe_json(const Recipe& recipe) {
  std::string out;
  for (const RecipeStep& step : recipe) {
    out += (out.empty() ? "" : ", ");
    out += "[" + json_quote(step_name(step.kind)) + ", " + list_of(step.numbers) + "]";
  }
  return "[" + out + "]";
}

std::string weight_json(const GraphWeight& weight) {
  return "{" + text_of("name", json_quote(weight.name)) + ", " +
         text_of("elements", std::to_string(weight.elements)) + ", " +
         text_of("dims", list_of(weight.dims)) + ", " +
         text_of("why", json_quote(float_reason_text(weight.reason, weight.detail))) + "}";
}

std::string matrix_json(const MatrixPlan& plan, const ChosenMatrix& chosen, std::size_t number) {
  const Matrix& matrix = plan.matrix_of(chosen);
  std::string tensors;
  for (std::size_t i = 0; i < chosen.tensors.size(); ++i) {
    const MatrixTensor& tensor = chosen.tensors[i];
    tensors += (i == 0 ? "" : ", ");
    tensors += "{" + text_of("part", std::to_string(static_cast<int>(tensor.part))) + ", " +
               text_of("name", json_quote(tensor.name)) + ", " +
               text_of("type", std::to_string(tensor.data_type)) + ", " +
               text_of("dims", list_of(tensor.dims)) + ", " +
               text_of("file", json_quote(std::to_string(number) + "." + std::to_string(i))) + "}";
  }
  std::string uses;
  for (const MatrixUse& use : matrix.uses) {
    uses += (uses.empty() ? "" : ", ");
    uses += json_quote(role_name(use.role));
  }
  return "{" + text_of("weight", json_quote(plan.weights[chosen.weight].name)) + ", " +
         text_of("recipe", recipe_json(matrix.rows)) + ", " +
         text_of("rows", list_of({matrix.n, matrix.k})) + ", " + text_of("uses", "[" + uses + "]") +
         ", " + text_of("bits", std::to_string(chosen.scheme.bits)) + ", " +
         text_of("block", std::to_string(chosen.scheme.block)) + ", " +
         text_of("zero_points", chosen.scheme.zero_points ? "true" : "false") + ", " +
         text_of("tensors", "[" + tensors + "]") + "}";
}

Result<QuantizeOptions> options_of(char** arguments) {
  QuantizeOptions options;
  TRY_ASSIGN(options.scheme, parse_scheme(arguments[0]));
  for (const HeadWeights head : {HeadWeights::kInt4, HeadWeights::kInt8, HeadWeights::kFloat}) {
    options.head = head_name(head) == arguments[1] ? head : options.head;
  }
  options.accuracy_level = static_cast<std::uint32_t>(std::atoi(arguments[2]));
  options.min_columns = std::atoi(arguments[3]);
  options.min_rows = std::atoi(arguments[4]);
  const bool is_qdq = form_name(QuantizedForm::kDequantizeLinear) == arguments[5];
  options.form = is_qdq ? QuantizedForm::kDequantizeLinear : QuantizedForm::kMatMulNBits;
  TRY(check_options(options));
  return options;
}

Result<std::string> run(char** arguments) {
  TRY_ASSIGN(const Model model, Model::load(arguments[1]));
  TRY_ASSIGN(const QuantizeOptions options, options_of(arguments + 3));
  TRY_ASSIGN(auto found, find_matrices(model, {}));
  TRY_ASSIGN(const MatrixPlan plan, choose_matrices(model, std::move(found), options));
  if (plan.matrices.empty()) {
    return nothing_to_quantize(options);
  }
  ModelEdits edits;
  std::vector<Attachment> attachments;
  std::string matrices;
  for (std::size_t m = 0; m < plan.matrices.size(); ++m) {
    const ChosenMatrix& chosen = plan.matrices[m];
    matrices += (m == 0 ? "" : ",\n") + matrix_json(plan, chosen, m);
    for (std::size_t i = 0; i < chosen.tensors.size(); ++i) {
      const MatrixTensor& tensor = chosen.tensors[i];
      TRY_ASSIGN(const auto bytes, onnx_nbytes(tensor.data_type, tensor.dims));
      attachments.push_back(
          {kNoSlot, tensor.name, tensor.data_type, tensor.dims,
           ExternalRef{std::to_string(m) + "." + std::to_string(i), 0, bytes, ""}});
    }
  }
  TRY(attach(model, attachments, MatchedInputs::kRemove, edits));
  TRY(replace_matrices(model, plan, edits));
  TRY_ASSIGN(auto segments, model_segments(model, std::move(edits)));
  TRY_ASSIGN(const auto file, join_segments(std::move(segments), ModelAccess::cuts(model)));
  std::ofstream(arguments[2], std::ios::binary) << file;
  std::string weights;
  for (const GraphWeight& weight : plan.weights) {
    weights += (weights.empty() ? "" : ",\n") + weight_json(weight);
  }
  return "{\"weights\": [" + weights + "],\n\"matrices\": [" + matrices + "]}";
}

}  // namespace
}  // namespace onnx_external

int main(int count, char** arguments) {
  constexpr int kArguments = 9;
  if (count != kArguments) {
    return 2;
  }
  const auto printed = onnx_external::run(arguments);
  std::printf("%s\n", printed ? printed->c_str() : printed.error().message.c_str());
  return printed ? 0 : 1;
}
