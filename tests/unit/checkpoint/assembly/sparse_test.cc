#include <gmock/gmock.h>

#include "support/torch_file.h"
#include "support/value_builder.h"

namespace onnx_external {
namespace {

TestTensor integers(const Shape& shape, const std::vector<std::int64_t>& values) {
  return {.dtype = DType::kInt64, .shape = shape, .bytes = bytes_of(values)};
}
TestTensor floats(const Shape& shape, const std::vector<float>& values) {
  return {.shape = shape, .bytes = f32(values)};
}

Result<Checkpoint> open_sparse(const SparseTest& sparse,
                               const OpenOptions& options = {.densify = true}) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("w");
  put_sparse(pickle, sparse);
  pickle.set_items().stop();
  return open_bytes(zip_of(pickle, sparse.storages()), options);
}

void expect_dense(const SparseTest& sparse, const std::vector<float>& values) {
  const auto checkpoint = open_sparse(sparse);
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->tensors()[0].shape, sparse.size);
  EXPECT_EQ(checkpoint->plain_range(0), std::nullopt);
  EXPECT_EQ(read_all(*checkpoint, 0), f32(values));
}

SparseTest coo() {
  return {.parts = {integers({2, 3}, {0, 1, 1, 2, 0, 2}), floats({3}, {5, 6, 7})}, .size = {2, 3}};
}
SparseTest csr() {
  return {.layout = "sparse_csr",
          .parts = {integers({3}, {0, 1, 3}), integers({3}, {2, 0, 1}), floats({3}, {5, 6, 7})},
          .size = {2, 3}};
}

TEST(Sparse, IsRefusedByNameWithTheOption) {
  EXPECT_THAT(open_sparse(coo(), {}),
              FailsWith(ErrorCode::kUnsupported,
                        "sparse tensor (COO); convert it to a dense tensor, or save "
                        "tensor.to_dense(); --convert sparse"));
  EXPECT_THAT(open_sparse(csr(), {}), FailsWith(ErrorCode::kUnsupported, "(CSR)"));
}

TEST(Sparse, BecomesDense) {
  expect_dense(coo(), {0, 0, 5, 6, 0, 7});
  expect_dense(csr(), {0, 0, 5, 6, 7, 0});
}

TEST(Sparse, SumsValuesAtOnePlaceInTheirOrder) {
  expect_dense({.parts = {integers({1, 3}, {1, 1, 1}), floats({3}, {1e8F, -1e8F, 1})}, .size = {2}},
               {0, 1});
}

TEST(Sparse, RefusesToAddUpMoreThanTheFileAllows) {
  constexpr std::int64_t kCount = 1 << 17;  // expanded from one index and one value of 1 KiB
  TestTensor indices = integers({1, kCount}, {0});
  indices.strides = {0, 0};
  TestTensor values = floats({kCount, 256}, std::vector<float>(256));
  values.strides = {0, 1};
  EXPECT_THAT(open_sparse({.parts = {indices, values}, .size = {1, 256}}),
              FailsWith(ErrorCode::kUnsupported, "or summed up is larger than its file allows"));
}

TEST(Sparse, RefusesToSumTypesThatAreRounded) {
  const TestTensor halves{.dtype = DType::kFloat16, .shape = {2}, .bytes = "abcd"};
  EXPECT_THAT(open_sparse({.parts = {integers({1, 2}, {1, 1}), halves}, .size = {2}}),
              FailsWith(ErrorCode::kUnsupported,
                        "several float16 values at one position; save tensor.coalesce()"));
  EXPECT_THAT(open_sparse({.parts = {integers({1, 2}, {1, 0}), halves}, .size = {2}}), IsOk());
}

TEST(Sparse, KeepsDenseDimensionsTogether) {
  expect_dense({.parts = {integers({1, 2}, {2, 0}), floats({2, 2}, {1, 2, 3, 4})}, .size = {3, 2}},
               {3, 4, 0, 0, 1, 2});
}

TEST(Sparse, ReadsColumnsAndBlocks) {
  expect_dense(
      {.layout = "sparse_csc",
       .parts = {integers({4}, {0, 1, 1, 3}), integers({3}, {1, 0, 1}), floats({3}, {5, 6, 7})},
       .size = {2, 3}},
      {0, 0, 6, 5, 0, 7});
  expect_dense(
      {.layout = "sparse_bsr",
       .parts = {integers({3}, {0, 1, 2}), integers({2}, {1, 0}), floats({2, 1, 2}, {1, 2, 3, 4})},
       .size = {2, 4}},
      {0, 0, 1, 2, 3, 4, 0, 0});
  expect_dense(
      {.layout = "sparse_bsc",
       .parts = {integers({2}, {0, 1}), integers({1}, {1}), floats({1, 2, 2}, {1, 2, 3, 4})},
       .size = {4, 2}},
      {0, 0, 0, 0, 1, 2, 3, 4});
}

TEST(Sparse, AcceptsTensorsWithoutValues) {
  expect_dense({.parts = {integers({2, 0}, {}), floats({0}, {})}, .size = {1, 3}}, {0, 0, 0});
  expect_dense({.parts = {integers({2, 0}, {}), floats({0, 0}, {})}, .size = {0, 3, 0}}, {});
}

TEST(Sparse, MakesOneTensorOfTwoNames) {
  const SparseTest sparse = coo();
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("a");
  put_sparse(pickle, sparse);
  pickle.put(7).string("b").get(7).set_items().stop();
  const auto checkpoint = open_bytes(zip_of(pickle, sparse.storages()), {.densify = true});
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->tensors()[0].storage, checkpoint->tensors()[1].storage);
}

TEST(Sparse, ChecksTheRecordsThatItIsMadeFrom) {
  const SparseTest sparse = coo();
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("w");
  put_sparse(pickle, sparse);
  pickle.set_items().stop();
  std::string bytes = zip_of(pickle, sparse.storages());
  bytes[bytes.find(f32({5, 6, 7}))] ^= 1;
  const auto checkpoint = open_bytes(bytes, {.densify = true});
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(checkpoint->check_storage(checkpoint->tensors()[0].storage),
              FailsWith(ErrorCode::kCorrupt, "CRC-32 differs"));
}

TEST(Sparse, RefusesIndicesOutsideTheShape) {
  for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{2}, INT64_MAX, INT64_MIN}) {
    SparseTest sparse = coo();
    sparse.parts[0] = integers({2, 3}, {0, wrong, 1, 2, 0, 2});
    EXPECT_THAT(open_sparse(sparse), FailsWith(ErrorCode::kCorrupt, "outside a dimension of 2"));
    sparse = csr();
    sparse.parts[1] = integers({3}, {2, 0, wrong == 2 ? 3 : wrong});
    EXPECT_THAT(open_sparse(sparse), FailsWith(ErrorCode::kCorrupt, "outside a dimension of 3"));
  }
}

TEST(Sparse, RefusesCompressedIndicesThatDoNotRise) {
  const std::vector<std::vector<std::int64_t>> lies = {
      {1, 1, 3}, {0, 4, 3}, {0, 2, 1}, {0, 1, 2}, {0, 1, 4}, {0, -1, 3}, {INT64_MIN, 0, 3}};
  for (const auto& lie : lies) {
    SparseTest sparse = csr();
    sparse.parts[0] = integers({3}, lie);
    EXPECT_THAT(open_sparse(sparse), FailsWith(ErrorCode::kCorrupt, "do not rise from 0 to 3"))
        << shape_text(lie);
  }
}

TEST(Sparse, RejectsDuplicatesInACompressedTensor) {
  SparseTest sparse = csr();
  sparse.parts[1] = integers({3}, {2, 1, 1});
  EXPECT_THAT(open_sparse(sparse), FailsWith(ErrorCode::kCorrupt, "two of its values"));
}

TEST(Sparse, RefusesPartsThatDoNotFitTheShape) {
  std::vector<SparseTest> lies(7, coo());
  lies[0].size = {2, 3, 1};
  lies[1].size = {2};
  lies[2].parts[1] = floats({2}, {1, 2});
  lies[3].parts[0] = integers({6}, {0, 1, 1, 2, 0, 2});
  lies[4].parts[1] = floats({}, {1});
  lies[5] = csr();
  lies[5].size = {3, 3};
  lies[6] = csr();
  lies[6].layout = "sparse_bsr";
  for (const SparseTest& lie : lies) {
    EXPECT_THAT(open_sparse(lie), FailsWith(ErrorCode::kCorrupt, "does not fit indices"))
        << shape_text(lie.size);
  }
}

TEST(Sparse, RefusesBlocksThatDoNotDivideTheShape) {
  const auto blocks = [](const Shape& shape, const Shape& size) {
    return SparseTest{
        .layout = "sparse_bsr",
        .parts = {integers({2}, {0, 1}), integers({1}, {0}),
                  floats(shape,
                         std::vector<float>(static_cast<std::size_t>(*element_count(shape))))},
        .size = size};
  };
  EXPECT_THAT(open_sparse(blocks({1, 2, 2}, {2, 4})), IsOk());
  EXPECT_THAT(open_sparse(blocks({1, 2, 2}, {2, 3})), FailsWith(ErrorCode::kCorrupt, "fit"));
  EXPECT_THAT(open_sparse(blocks({1, 0, 2}, {2, 4})), FailsWith(ErrorCode::kCorrupt, "fit"));
}

TEST(Sparse, RejectsIndicesThatAreNotIntegers) {
  SparseTest sparse = coo();
  sparse.parts[0] = {
      .dtype = DType::kFloat64, .shape = {2, 3}, .bytes = bytes_of<double>({0, 0, 0, 0, 0, 0})};
  EXPECT_THAT(open_sparse(sparse), FailsWith(ErrorCode::kCorrupt, "indices are float64"));
}

TEST(Sparse, RefusesUnknownLayouts) {
  SparseTest sparse = coo();
  sparse.layout = "sparse_xyz";
  EXPECT_THAT(open_sparse(sparse), FailsWith(ErrorCode::kUnsupported, "layout is not supported"));
}

TEST(Sparse, RefusesAMissingPart) {
  SparseTest sparse = csr();
  sparse.parts.pop_back();
  EXPECT_THAT(open_sparse(sparse), FailsWith(ErrorCode::kCorrupt, "wrong number of parts"));
}

TEST(Sparse, LimitsTheDenseSize) {
  SparseTest sparse = coo();
  sparse.size = {100'000, 1000};
  EXPECT_THAT(open_sparse(sparse), FailsWith(ErrorCode::kUnsupported, "--max-expand"));
  EXPECT_THAT(open_sparse(sparse, {.max_expand = 1'000'000, .densify = true}), IsOk());
  sparse.size = {INT64_MAX, INT64_MAX};
  EXPECT_THAT(open_sparse(sparse), FailsWith(ErrorCode::kCorrupt, "too large"));
}

TEST(Sparse, BoundsWhatExpandedIndicesTake) {
  const std::int64_t huge = std::int64_t{1} << 40;
  SparseTest sparse = coo();
  sparse.parts[0].shape = {2, huge};
  sparse.parts[0].strides = {{0, 0}};
  sparse.parts[1].shape = {huge};
  sparse.parts[1].strides = {{0}};
  EXPECT_THAT(open_sparse(sparse), FailsWith(ErrorCode::kUnsupported, "--max-expand"));
  sparse = csr();
  sparse.parts[0].shape = {huge};
  sparse.parts[0].strides = {{0}};
  sparse.size = {huge - 1, 3};
  EXPECT_THAT(open_sparse(sparse), FailsWith(ErrorCode::kUnsupported, "--max-expand"));
}

TEST(Sparse, DoesNotReserveForDimensionsBehindAnEmptyOne) {
  const std::int64_t huge = std::int64_t{1} << 50;
  expect_dense({.layout = "sparse_csr",
                .parts = {{.dtype = DType::kInt64, .shape = {0, huge + 1}, .bytes = ""},
                          {.dtype = DType::kInt64, .shape = {0, 3}, .bytes = ""},
                          floats({0, 3}, {})},
                .size = {0, huge, 3}},
               {});
}

TEST(Sparse, RefusesASparsePartOfASparseTensor) {
  const SparseTest inner = coo();
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("w");
  pickle.global("torch._utils", "_rebuild_sparse_tensor").mark();
  pickle.global("torch.serialization", "_get_layout").mark().string("torch.sparse_coo").tuple();
  pickle.reduce().mark();
  put_sparse(pickle, inner);
  put_tensor(pickle, inner.parts[1], "1", 12);
  pickle.integers({2, 3}).tuple().tuple().reduce().set_items().stop();
  EXPECT_THAT(open_bytes(zip_of(pickle, inner.storages()), {.densify = true}),
              FailsWith(ErrorCode::kUnsupported, "itself sparse"));
}

}  // namespace
}  // namespace onnx_external
