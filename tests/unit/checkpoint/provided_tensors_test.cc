#include "onnx_external/provided_tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <string>
#include <vector>

#include "onnx_external/mapping.h"
#include "support/provided_builder.h"
#include "support/result_matchers.h"
#include "support/temp_dir.h"

namespace onnx_external {
namespace {

using ProvidedTensors = std::vector<ProvidedTensor>;

SharedText bytes_upwards(std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += static_cast<char>(i);
  }
  return shared_text(text);
}

ProvidedTensor matrix(const std::string& name, const SharedText& text) {
  return in_memory(name, DType::kUInt8, {2, 3}, text);
}

std::string refusal(ProvidedTensor tensor) {
  const auto checkpoint = checkpoint_of({std::move(tensor)});
  EXPECT_FALSE(checkpoint);
  EXPECT_EQ(checkpoint.error().code, ErrorCode::kInvalidArgument);
  return checkpoint.error().message;
}

// The number that mapping gives the bytes of each tensor; those of ties are equal.
std::vector<std::size_t> ties(ProvidedTensors tensors) {
  const auto checkpoint = checkpoint_of(std::move(tensors)).value();
  const auto keys = mapping_keys(checkpoint).value();
  std::vector<std::size_t> ids;
  for (const MappingKey& key : keys.keys) {
    ids.push_back(*key.bytes_id);
  }
  return ids;
}

TEST(ProvidedTensors, AreReadFromMemoryAndFiles) {
  const TempDir dir;
  const auto path = dir.write("a.bin", "....abcdef");
  const auto checkpoint =
      checkpoint_of({matrix("memory", bytes_upwards(6)),
                     {.info = {"file", DType::kUInt8, {6}}, .storage = FileBytes{path, 4, 6}}});
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->format(), "loose");
  EXPECT_EQ(bytes_in(*checkpoint, 0).value(), *bytes_upwards(6));
  EXPECT_EQ(bytes_in(*checkpoint, 1).value(), "abcdef");
  EXPECT_EQ(checkpoint->storages()[0].kind, StorageKind::kMemory);
  EXPECT_EQ(checkpoint->storages()[1].kind, StorageKind::kFile);
  ASSERT_EQ(checkpoint->files().size(), 2U);
  EXPECT_EQ(checkpoint->files()[0].path, path);
  EXPECT_EQ(checkpoint->files()[1].path, "");
  EXPECT_THAT(checkpoint->check_unchanged(), IsOk());
}

TEST(ProvidedTensors, MayBeStridedAndHaveAnOffset) {
  const auto text = bytes_upwards(8);
  auto tensor = in_memory("turned", DType::kUInt8, {3, 2}, text);
  tensor.strides = {1, 3};
  tensor.storage_offset = 2;
  auto row = in_memory("row", DType::kUInt8, {2, 2}, text);
  row.strides = {0, 1};
  const auto checkpoint = checkpoint_of({tensor, row}).value();
  EXPECT_EQ(bytes_in(checkpoint, 0).value(), std::string("\2\5\3\6\4\7", 6));
  EXPECT_EQ(bytes_in(checkpoint, 1).value(), std::string("\0\1\0\1", 4));
  EXPECT_FALSE(checkpoint.plain_range(0));
}

TEST(ProvidedTensors, MayBeConvertedWhileTheyAreRead) {
  const auto ones = shared_text(std::string("\0\0\x80\x3f\0\0\0\x40", 8));
  const auto checkpoint = checkpoint_of({in_memory("w", DType::kFloat32, {2}, ones)}).value();
  std::string out(4, '\0');
  ASSERT_THAT(checkpoint.read_as(0, DType::kFloat16, 0, std::as_writable_bytes(std::span(out))),
              IsOk());
  EXPECT_EQ(out, std::string("\0\x3c\0\x40", 4));
}

TEST(ProvidedTensors, AreTiedIfTheyViewTheSameBytesInTheSameWay) {
  const auto text = bytes_upwards(16);
  auto a = in_memory("a", DType::kUInt8, {4, 4}, text);
  auto same = in_memory("same", DType::kUInt8, {4, 4}, text);
  auto turned = in_memory("turned", DType::kUInt8, {4, 4}, text);
  turned.strides = {1, 4};
  auto half = in_memory("half", DType::kUInt8, {2, 4}, text);
  auto second_half = in_memory("second half", DType::kUInt8, {2, 4}, text);
  second_half.storage_offset = 8;
  // Other blocks, at the same addresses.
  auto half_block = half;
  half_block.info.name = "half block";
  half_block.storage = MemoryBytes{std::get<MemoryBytes>(a.storage).data, 8, text};
  auto second_block = half;
  second_block.info.name = "second block";
  second_block.storage = MemoryBytes{std::get<MemoryBytes>(a.storage).data + 8, 8, text};
  auto copy = in_memory("copy", DType::kUInt8, {4, 4}, shared_text(*text));
  const auto ids = ties({a, same, turned, half, second_half, half_block, second_block, copy});
  EXPECT_EQ(ids, (std::vector<std::size_t>{0, 0, 1, 2, 3, 2, 3, 4}));
}

TEST(ProvidedTensors, OfOneFileAreTiedByTheirPlace) {
  const TempDir dir;
  const auto path = dir.write("a.bin", "abcdef");
  const auto range = [&](const std::string& name, std::uint64_t offset) {
    return ProvidedTensor{.info = {name, DType::kUInt8, {2}},
                          .storage = FileBytes{path, offset, 2}};
  };
  EXPECT_EQ(ties({range("a", 0), range("b", 2), range("c", 0)}),
            (std::vector<std::size_t>{0, 1, 0}));
}

TEST(ProvidedTensors, ThatAreMadeAreTiedByTheirIdentity) {
  const auto one = [](const std::string& name, std::uint64_t identity, Shape shape = {6}) {
    auto tensor = made(name, DType::kUInt8, std::move(shape), "abcdef");
    std::get<LazyBytes>(tensor.storage).identity = identity;
    return tensor;
  };
  EXPECT_EQ(
      ties({one("a", 1), one("b", 2), one("c", 1), one("d", 0), one("e", 0), one("f", 1, {2, 3})}),
      (std::vector<std::size_t>{0, 1, 0, 2, 3, 4}));
}

TEST(ProvidedTensors, ThatAreMadeCannotBeReadByAnybodyElse) {
  const auto calls = std::make_shared<std::atomic<int>>(0);
  const auto checkpoint = checkpoint_of({made("m", DType::kUInt8, {3}, "abc", calls)}).value();
  EXPECT_EQ(checkpoint.storages()[0].kind, StorageKind::kMade);
  EXPECT_THAT(bytes_in(checkpoint, 0),
              FailsWith(ErrorCode::kUnsupported, "tensor 'm': its bytes are produced when"));
  EXPECT_EQ(*calls, 0);
}

TEST(ProvidedTensors, KeepTheirOwnersAlive) {
  auto text = bytes_upwards(6);
  const std::weak_ptr<std::string> watch = text;
  {
    ProvidedTensors tensors{matrix("w", text)};
    text.reset();
    const auto checkpoint = checkpoint_of(std::move(tensors)).value();
    tensors.clear();
    EXPECT_FALSE(watch.expired());
    EXPECT_EQ(bytes_in(checkpoint, 0)->size(), 6U);
  }
  EXPECT_TRUE(watch.expired());
}

TEST(ProvidedTensors, MayBeEmptyWithoutAnAddress) {
  const ProvidedTensor empty{.info = {"none", DType::kFloat32, {0, 4}}, .storage = MemoryBytes{}};
  const ProvidedTensor made_empty{
      .info = {"made", DType::kFloat32, {2, 0}},
      .storage = LazyBytes{0, [](std::span<std::byte>) { return Status(); }}};
  const auto checkpoint = checkpoint_of({empty, made_empty});
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(bytes_in(*checkpoint, 0).value(), "");
  EXPECT_EQ(bytes_in(*checkpoint, 1).value(), "");
  EXPECT_THAT(checkpoint_of({}), IsOk());
}

TEST(ProvidedTensors, WithNamesThatNoKeyMayHaveAreRefused) {
  const auto text = bytes_upwards(6);
  EXPECT_THAT(checkpoint_of({matrix("w", text), matrix("v", text), matrix("w", text)}),
              FailsWith(ErrorCode::kInvalidArgument, "tensor 'w' is passed twice"));
  EXPECT_EQ(refusal(matrix("", text)), "tensor '': has no name");
  EXPECT_EQ(refusal(matrix("\xff", text)), "tensor '\\xff': its name is not UTF-8");
}

TEST(ProvidedTensors, WithFormsThatCannotBeAreRefused) {
  const auto text = bytes_upwards(6);
  auto tensor = matrix("w", text);
  tensor.info.shape = {2, -3};
  EXPECT_EQ(refusal(tensor).find("tensor 'w': "), 0U);
  tensor.info.shape = {std::int64_t{1} << 32, std::int64_t{1} << 32};
  EXPECT_EQ(refusal(tensor).find("tensor 'w': "), 0U);
  tensor.info.shape = Shape(65, 1);
  EXPECT_EQ(refusal(tensor), "tensor 'w': 65 dimensions are more than 64");
  tensor = matrix("w", text);
  tensor.strides = {1};
  EXPECT_EQ(refusal(tensor), "tensor 'w': 1 strides for 2 dimensions");
  tensor.strides = {-3, 1};
  EXPECT_THAT(refusal(tensor), testing::HasSubstr("a stride is negative; make the tensor"));
  tensor.strides = {std::numeric_limits<std::int64_t>::max(), 1};
  EXPECT_THAT(refusal(tensor), testing::HasSubstr("but there are 6"));
  tensor = matrix("w", text);
  tensor.conj = true;
  EXPECT_EQ(refusal(tensor), "tensor 'w': uint8 cannot be conjugated");
  tensor = in_memory("w", DType::kBool, {6}, text);
  tensor.neg = true;
  EXPECT_EQ(refusal(tensor), "tensor 'w': bool cannot be negated");
}

TEST(ProvidedTensors, WhoseViewLeavesTheirBytesAreRefused) {
  auto tensor = in_memory("w", DType::kFloat32, {2}, bytes_upwards(7));
  EXPECT_EQ(refusal(tensor),
            "tensor 'w': float32 [2] needs 8 bytes from byte 0 on, but there are 7");
  tensor = matrix("w", bytes_upwards(6));
  tensor.strides = {3, 2};
  EXPECT_THAT(refusal(tensor), testing::HasSubstr("needs 8 bytes"));
  tensor.strides = {};
  tensor.storage_offset = 1;
  EXPECT_THAT(refusal(tensor), testing::HasSubstr("needs 6 bytes from byte 1 on"));
  tensor.storage_offset = std::numeric_limits<std::uint64_t>::max();
  EXPECT_THAT(refusal(tensor), testing::HasSubstr("but there are 6"));
}

TEST(ProvidedTensors, WithoutBytesAreRefused) {
  EXPECT_EQ(refusal({.info = {"w", DType::kUInt8, {6}}, .storage = MemoryBytes{nullptr, 6, {}}}),
            "tensor 'w': 6 bytes at a null address");
  EXPECT_EQ(refusal({.info = {"w", DType::kUInt8, {6}}, .storage = LazyBytes{6, {}}}),
            "tensor 'w': there is no function that produces its bytes");
  const auto text = bytes_upwards(6);
  EXPECT_THAT(refusal({.info = {"w", DType::kUInt8, {6}},
                       .storage = MemoryBytes{memory_of(text).data,
                                              std::numeric_limits<std::uint64_t>::max(), text}}),
              testing::HasSubstr("reach beyond the end of the address space"));
  const auto made_one = made("w", DType::kUInt8, {1}, "a");
  EXPECT_THAT(checkpoint_of({made_one}, {.max_lazy_at_once = 0}),
              FailsWith(ErrorCode::kInvalidArgument, "at least one tensor"));
}

TEST(ProvidedTensors, OfFilesThatAreNotAsStatedAreRefused) {
  const TempDir dir;
  const auto path = dir.write("a.bin", "abcdef");
  const auto range = [](const std::filesystem::path& file, std::uint64_t offset) {
    return ProvidedTensors{
        {.info = {"w", DType::kUInt8, {4}}, .storage = FileBytes{file, offset, 4}}};
  };
  EXPECT_THAT(checkpoint_of(range(path, 2)), IsOk());
  EXPECT_THAT(checkpoint_of(range(path, 3)), FailsWith(ErrorCode::kCorrupt, "tensor 'w': "));
  EXPECT_THAT(checkpoint_of(range(path, std::numeric_limits<std::uint64_t>::max() - 1)),
              FailsWith(ErrorCode::kCorrupt, "but the file has 6"));
  EXPECT_THAT(checkpoint_of(range(dir.path() / "missing", 0)),
              FailsWith(ErrorCode::kNotFound, "tensor 'w': "));
  EXPECT_THAT(checkpoint_of(range(dir.path(), 0)),
              FailsWith(ErrorCode::kInvalidArgument, "is a folder"));
  const auto checkpoint = checkpoint_of(range(path, 0)).value();
  dir.write("a.bin", "other text");
  EXPECT_THAT(checkpoint.check_unchanged(), FailsWith(ErrorCode::kCorrupt, "was changed"));
}

}  // namespace
}  // namespace onnx_external
