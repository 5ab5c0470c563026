#include "checkpoint/storage/bytes_ids.h"

#include <gtest/gtest.h>

#include <vector>

namespace onnx_external {
namespace {

Storage record(std::uint64_t offset) {
  Storage storage;
  storage.offset = offset;
  storage.bytes = storage.stored_bytes = 48;
  return storage;
}

// Two records of one file, the first of them named in several ways; and what has no place in it.
std::vector<Storage> all_storages() {
  std::vector<Storage> storages(7, record(64));
  storages[1] = record(200);
  storages[3].compression = Compression::kDeflate;
  storages[4].byte_order = ByteOrder::kBig;
  storages[5].computed = true;
  storages[6].computed = true;
  return storages;
}
const std::vector<Storage> kStorages = all_storages();

TensorView view(std::uint32_t storage, const Shape& shape, DType dtype = DType::kFloat32) {
  TensorView view;
  view.dtype = dtype;
  view.shape = shape;
  view.strides = contiguous_strides(shape);
  view.storage = storage;
  return view;
}

TensorView strided(const Shape& shape, const std::vector<std::int64_t>& strides) {
  TensorView made = view(0, shape);
  made.strides = strides;
  return made;
}

bool share(const TensorView& a, const TensorView& b) {
  BytesIds ids(kStorages);
  return ids.id_of(a) == ids.id_of(b);
}

TEST(BytesIds, AReshapedViewSharesItsBytesInEveryKindOfStorage) {
  for (const std::uint32_t storage : {0U, 3U, 4U, 5U}) {
    EXPECT_TRUE(share(view(storage, {3, 4}), view(storage, {12}))) << storage;
    EXPECT_TRUE(share(view(storage, {3, 4}), view(storage, {2, 1, 6}))) << storage;
    EXPECT_FALSE(share(view(storage, {3, 4}), view(storage, {2, 4}))) << storage;
  }
}

TEST(BytesIds, APlaceInAFileHasOneIdInAnyStorage) {
  EXPECT_TRUE(share(view(0, {12}), view(2, {12})));
  EXPECT_FALSE(share(view(0, {12}), view(1, {12})));
  EXPECT_FALSE(share(view(0, {12}), view(3, {12}))) << "inflated, they are others";
  EXPECT_FALSE(share(view(0, {12}), view(4, {12}))) << "swapped, they are others";
  EXPECT_FALSE(share(view(5, {12}), view(6, {12})));
}

TEST(BytesIds, TheOrderOfElementsCounts) {
  EXPECT_FALSE(share(view(0, {3, 4}), strided({4, 3}, {1, 4})));
  EXPECT_TRUE(share(strided({4, 3}, {1, 4}), strided({2, 2, 3}, {2, 1, 4})));
  EXPECT_TRUE(share(strided({4, 1, 3}, {1, 9, 4}), strided({4, 3}, {1, 4})));
  EXPECT_TRUE(share(strided({2, 3}, {0, 0}), strided({6}, {0})));
  EXPECT_FALSE(share(strided({2, 3}, {0, 1}), strided({6}, {1})));
}

TEST(BytesIds, TheElementTypeCountsWhereValuesAreChanged) {
  EXPECT_TRUE(share(view(0, {12}), view(0, {6}, DType::kInt64)));
  EXPECT_FALSE(share(view(4, {12}), view(4, {6}, DType::kInt64))) << "swapped in other units";
  EXPECT_TRUE(share(view(4, {12}), view(4, {6}, DType::kComplex64))) << "swapped in parts";
  TensorView negated = view(0, {12});
  negated.neg = true;
  EXPECT_FALSE(share(view(0, {12}), negated));
  TensorView integers = negated;
  integers.dtype = DType::kInt32;
  EXPECT_FALSE(share(integers, negated));
}

TEST(BytesIds, ConvertedBytesAreThoseOfOneTypeConvertedToOne) {
  BytesIds ids(kStorages);
  const auto half = ids.id_of(view(0, {12}), DType::kFloat16);
  EXPECT_EQ(half, ids.id_of(view(0, {3, 4}), DType::kFloat16));
  EXPECT_NE(half, ids.id_of(view(0, {12}), DType::kBFloat16));
  EXPECT_NE(half, ids.id_of(view(0, {12})));
  EXPECT_EQ(ids.id_of(view(0, {12})), ids.id_of(view(0, {12}), DType::kFloat32));
}

TEST(BytesIds, NumbersRiseAndEmptyTensorsHaveNone) {
  BytesIds ids(kStorages);
  EXPECT_EQ(ids.id_of(view(0, {12})), 0U);
  EXPECT_EQ(ids.id_of(view(1, {12})), 1U);
  EXPECT_EQ(ids.id_of(view(0, {12})), 0U);
  EXPECT_EQ(ids.id_of(view(0, {0, 4})), std::nullopt);
  EXPECT_EQ(ids.count(), 2U);
}

}  // namespace
}  // namespace onnx_external
