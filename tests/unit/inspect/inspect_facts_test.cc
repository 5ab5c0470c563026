#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "inspect/inspect.h"
#include "support/legacy_builder.h"
#include "support/pickle_builder.h"
#include "support/result_matchers.h"
#include "support/torch_file.h"
#include "support/value_builder.h"
#include "support/written_model.h"

namespace onnx_external {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Result<Inspection> inspect_bytes(const std::string& bytes) {
  const TempDir dir;
  const std::array paths{dir.write("c.pt", bytes)};
  return inspect(paths, {.progress = {}});
}

// Four floats as w, with a bit of torch's set.
std::string with_bit(const std::string& bit) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("w").global("torch._utils", "_rebuild_tensor_v2");
  pickle.mark().mark().string("storage").global("torch", "ComplexFloatStorage");
  pickle.string("0").string("cpu").integer(2).tuple().persistent_id();
  pickle.integer(0).integers({2}).integers({1}).boolean(false).ordered_dict();
  pickle.empty_dict().mark().string(bit).boolean(true).set_items();
  pickle.tuple().reduce().set_items().stop();
  return zip_of(pickle, {f32({1, 2, 3, 4})});
}

TEST(InspectFacts, ReportsTheFactsThatAZipFileStates) {
  const std::string file = torch_zip({{.name = "w", .shape = {1}, .bytes = f32({1})}});
  const auto found = inspect_bytes(file);
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->version, "3");
  EXPECT_EQ(found->pickle_protocol, 2);
  EXPECT_EQ(found->byte_order, "little");
  EXPECT_EQ(found->files, 1U);
  EXPECT_EQ(found->file_bytes, file.size());
  EXPECT_FALSE(found->refusal);
}

TEST(InspectFacts, ListsTheDictOfAKeyUnderTheNamesThatASaveTakes) {
  const TempDir dir;
  const std::string file =
      torch_zip({{.name = "w", .shape = {1}, .bytes = f32({1})}}, {.nested_in = "student"});
  const std::array paths{dir.write("c.pt", file)};
  const auto names = [&](const std::string& key) {
    std::vector<std::string> listed;
    const auto found = inspect(paths, {.open = {.key = key}, .progress = {}});
    for (std::size_t i = 0; found && i < found->tensors.size(); ++i) {
      listed.push_back(found->tensors[i].name);
    }
    return listed;
  };
  EXPECT_THAT(names(""), ElementsAre("student.w"));
  EXPECT_THAT(names("student"), ElementsAre("w"));
  EXPECT_THAT(names("."), ElementsAre("student.w"));
  EXPECT_THAT(names("teacher"), IsEmpty());
}

TEST(InspectFacts, KnowsTheProtocolOfLegacyFilesAndNoVersion) {
  const auto found = inspect_bytes(legacy_file(legacy_object(), {{"7", f32({1, 2, 3, 4})}}));
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->format, "torch-legacy");
  EXPECT_EQ(found->version, "");
  EXPECT_EQ(found->pickle_protocol, 2);
}

TEST(InspectFacts, KeepsTheFactsOnWhichSeveralFilesAgree) {
  const TempDir dir;
  const std::vector<TestTensor> a{{.name = "a", .shape = {1}, .bytes = f32({1})}};
  const std::vector<TestTensor> b{{.name = "b", .shape = {1}, .bytes = f32({1})}};
  const auto first = dir.write("a.pt", torch_zip(a));
  const auto same = dir.write("b.pt", torch_zip(b));
  const auto other = dir.write("w.pt", legacy_file(legacy_object(), {{"7", f32({1, 2, 3, 4})}}));
  const auto alike = inspect(std::array{first, same}, {.progress = {}});
  ASSERT_THAT(alike, IsOk());
  EXPECT_EQ(alike->version, "3");
  EXPECT_EQ(alike->files, 2U);
  const auto mixed = inspect(std::array{first, other}, {.progress = {}});
  ASSERT_THAT(mixed, IsOk());
  EXPECT_EQ(mixed->version, "");
  EXPECT_EQ(mixed->pickle_protocol, 2);
}

TEST(InspectFacts, SaysTheByteOrderOfAFileAndOfItsTensors) {
  const auto found = inspect_bytes(
      torch_zip({{.name = "w", .shape = {1}, .bytes = f32({1})}}, {.byte_order = "big"}));
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->byte_order, "big");
  ASSERT_TRUE(found->tensors[0].view);
  EXPECT_TRUE(found->tensors[0].view->big_endian);
}

TEST(InspectFacts, ReportsTheFactsThatAModelStates) {
  WrittenModel model;
  model.add("a", "abcd").add("b", "efgh");
  const auto path = model.write();
  const auto found = inspect(std::array{path}, {.progress = {}});
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(found->version, "ir 8, opset 17");
  EXPECT_EQ(found->producer, "graph_builder");
  EXPECT_EQ(found->files, 3U);
  EXPECT_EQ(found->file_bytes, std::filesystem::file_size(path) + 8);
}

TEST(InspectFacts, ReportsTheStridesOfATensor) {
  const std::string storage = "headabcdef";
  const std::string file = torch_zip({{.name = "w",
                                       .dtype = DType::kUInt8,
                                       .shape = {2, 3},
                                       .bytes = storage,
                                       .strides = {{1, 2}},
                                       .offset = 4}});
  const auto found = inspect_bytes(file);
  ASSERT_THAT(found, IsOk());
  ASSERT_TRUE(found->tensors[0].view);
  const InspectedView& view = *found->tensors[0].view;
  EXPECT_EQ(view.file, "c.pt");
  EXPECT_EQ(file.substr(view.offset, 6), "abcdef");
  EXPECT_THAT(view.strides, ElementsAre(1, 2));
  EXPECT_FALSE(view.expanded);
}

TEST(InspectFacts, MarksExpandedTensors) {
  const auto found = inspect_bytes(
      torch_zip({{.name = "w", .shape = {3, 2}, .bytes = f32({1, 2}), .strides = {{0, 1}}}}));
  ASSERT_THAT(found, IsOk());
  ASSERT_TRUE(found->tensors[0].view);
  EXPECT_TRUE(found->tensors[0].view->expanded);
}

TEST(InspectFacts, MarksConjAndNegBits) {
  const auto conj = inspect_bytes(with_bit("conj"));
  ASSERT_THAT(conj, IsOk());
  ASSERT_TRUE(conj->tensors[0].view);
  EXPECT_TRUE(conj->tensors[0].view->conj);
  EXPECT_FALSE(conj->tensors[0].view->neg);
  const auto neg = inspect_bytes(with_bit("neg"));
  ASSERT_THAT(neg, IsOk());
  ASSERT_TRUE(neg->tensors[0].view);
  EXPECT_TRUE(neg->tensors[0].view->neg);
}

TEST(InspectFacts, PlacesADeflatedTensorAtItsRecord) {
  const auto found = inspect_bytes(torch_zip(
      {{.name = "w", .shape = {64}, .bytes = std::string(256, '\0')}}, {.deflated = true}));
  ASSERT_THAT(found, IsOk());
  ASSERT_TRUE(found->tensors[0].view);
  EXPECT_TRUE(found->tensors[0].view->deflated);
  EXPECT_EQ(found->tensors[0].view->file, "c.pt");
  EXPECT_THAT(found->tensors[0].view->strides, IsEmpty());
}

TEST(InspectFacts, ShowsAComputedTensorWithoutAPlace) {
  const SparseTest sparse{
      .parts = {{.dtype = DType::kInt64, .shape = {1, 1}, .bytes = bytes_of<std::int64_t>({1})},
                {.shape = {1}, .bytes = f32({7})}},
      .size = {3}};
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("w");
  put_sparse(pickle, sparse);
  pickle.set_items().stop();
  const TempDir dir;
  const std::array paths{dir.write("c.pt", zip_of(pickle, sparse.storages()))};

  const auto dense = inspect(paths, {.open = {.densify = true}, .progress = {}});
  ASSERT_THAT(dense, IsOk());
  ASSERT_TRUE(dense->tensors[0].view);
  EXPECT_EQ(dense->tensors[0].view->file, "");
  EXPECT_FALSE(dense->refusal);

  const auto refused = inspect(paths, {.progress = {}});
  ASSERT_THAT(refused, IsOk());
  ASSERT_TRUE(refused->refusal);
  EXPECT_THAT(refused->refusal->message, HasSubstr("sparse tensor (COO)"));
}

}  // namespace
}  // namespace onnx_external
