#include <gmock/gmock.h>

#include <functional>

#include "support/torch_file.h"
#include "support/value_builder.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;

const ArrayTest kPair{.shape = {2}, .bytes = f32({1, 2})};

std::string zip_of_dict(const std::function<void(PickleBuilder&)>& items) {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark();
  items(pickle);
  pickle.set_items().stop();
  return zip_of(pickle, {f32({1, 2, 3, 4})});
}

Result<Checkpoint> open_array(const ArrayTest& array, const OpenOptions& options = {}) {
  return open_bytes(zip_of_dict([&](PickleBuilder& p) {
                      p.string("w");
                      put_array(p, array);
                    }),
                    options);
}

TEST(Numpy, ReadsArraysFromThePickle) {
  const auto checkpoint = open_array(kPair);
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(names(*checkpoint), ElementsAre("w"));
  EXPECT_EQ(checkpoint->tensors()[0].dtype, DType::kFloat32);
  EXPECT_EQ(read_all(*checkpoint, 0), f32({1, 2}));
  EXPECT_EQ(checkpoint->plain_range(0), std::nullopt);
}

TEST(Numpy, SwapsBigEndianNumbers) {
  const auto checkpoint =
      open_array({.type = "i2", .order = ">", .shape = {2}, .bytes = {'\1', '\2', '\3', '\4'}});
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(read_all(*checkpoint, 0), "\2\1\4\3");
}

TEST(Numpy, TransposesFortranOrder) {
  const auto checkpoint =
      open_array({.type = "i1", .order = "|", .shape = {2, 3}, .fortran = true, .bytes = "abcdef"});
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(read_all(*checkpoint, 0), "acebdf");
}

TEST(Numpy, ReadsNewModuleNamesBuffersAndScalars) {
  const auto checkpoint = open_bytes(zip_of_dict([](PickleBuilder& p) {
    p.string("new");
    put_array(p, kPair, "numpy._core.multiarray");
    p.string("buffer").global("numpy._core.numeric", "_frombuffer").mark();
    put_bytes(p, f32({1, 2}));
    put_array_type(p, kPair);
    p.integers({1, 2}).string("C").tuple().reduce();
    p.string("scalar").global("numpy.core.multiarray", "scalar").mark();
    put_array_type(p, kPair);
    put_bytes(p, f32({5}));
    p.tuple().reduce();
  }));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(names(*checkpoint), ElementsAre("new", "buffer", "scalar"));
  EXPECT_EQ(checkpoint->tensors()[1].shape, (Shape{1, 2}));
  EXPECT_EQ(checkpoint->tensors()[2].shape, Shape{});
  EXPECT_EQ(read_all(*checkpoint, 2), f32({5}));
}

// The array with its bytes spelled in another way.
Result<Checkpoint> open_spelled(const std::function<void(PickleBuilder&)>& bytes,
                                const Shape& shape) {
  return open_bytes(zip_of_dict([&](PickleBuilder& p) {
    p.string("w").global("numpy.core.multiarray", "_reconstruct").mark();
    p.global("numpy", "ndarray").integers({0}).string("b").tuple().reduce();
    p.mark().integer(1).integers(shape);
    put_array_type(p, {.type = "u1", .order = "|"});
    p.boolean(false);
    bytes(p);
    p.tuple().build();
  }));
}

TEST(Numpy, DecodesBytesThatProtocol2WritesAsText) {
  const auto checkpoint = open_spelled(
      [](PickleBuilder& p) {
        p.global("_codecs", "encode").mark().string("a\x7f\xc2\x80\xc3\xbf").string("latin1");
        p.tuple().reduce();
      },
      {4});
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(read_all(*checkpoint, 0), "a\x7f\x80\xff");
}

TEST(Numpy, DecodesEmptyBytesOfProtocol2) {
  EXPECT_THAT(open_spelled(
                  [](PickleBuilder& p) { p.global("__builtin__", "bytes").empty_tuple().reduce(); },
                  {0, 3}),
              IsOk());
}

TEST(Numpy, RefusesTextThatIsNotLatin1) {
  for (const std::string text : {"\xc4\x80", "\xc2", "\xff", "\xc2x"}) {
    EXPECT_THAT(open_spelled(
                    [&](PickleBuilder& p) {
                      p.global("_codecs", "encode").mark().string(text).string("latin1").tuple();
                      p.reduce();
                    },
                    {1}),
                FailsWith(ErrorCode::kCorrupt, "not latin-1"));
  }
}

TEST(Numpy, RefusesOtherEncodings) {
  EXPECT_THAT(open_spelled(
                  [](PickleBuilder& p) {
                    p.global("_codecs", "encode").mark().string("a").string("rot13").tuple();
                    p.reduce();
                  },
                  {1}),
              FailsWith(ErrorCode::kCorrupt, "not a bytes object"));
}

TEST(Numpy, RefusesAListOfObjects) {
  EXPECT_THAT(open_spelled([](PickleBuilder& p) { p.empty_list(); }, {0}),
              FailsWith(ErrorCode::kCorrupt, "not a bytes object"));
}

TEST(Numpy, RejectsTypesThatAreNotNumbers) {
  for (const std::string type : {"O8", "U2", "S4", "M8", "V4", "f16", "c32"}) {
    EXPECT_THAT(open_array({.type = type, .shape = {1}, .bytes = "abcd"}),
                FailsWith(ErrorCode::kUnsupported, "numpy dtype '" + type + "' is not a type"));
    const auto listed = open_array({.type = type, .shape = {1}, .bytes = "abcd"},
                                   {.selection = Selection::kEverything});
    ASSERT_THAT(listed, IsOk());
    EXPECT_EQ(listed->refused_tensors().size(), 1U);
  }
}

TEST(Numpy, RejectsInvalidByteOrders) {
  EXPECT_THAT(open_array({.order = "?", .shape = {2}, .bytes = f32({1, 2})}),
              FailsWith(ErrorCode::kCorrupt, "does not have a valid byte order"));
}

TEST(Numpy, RefusesBytesThatDoNotFillTheShape) {
  const std::vector<Shape> lies = {{1}, {3}, {}, {INT64_MAX}, {0}};
  for (const Shape& lie : lies) {
    EXPECT_THAT(open_array({.shape = lie, .bytes = f32({1, 2})}),
                FailsWith(ErrorCode::kCorrupt, "does not fit its 8 bytes"))
        << shape_text(lie);
  }
  EXPECT_THAT(open_array({.shape = {-2}, .bytes = f32({1, 2})}),
              FailsWith(ErrorCode::kCorrupt, "negative"));
}

TEST(Numpy, KeepsSharedBytesOnce) {
  const auto checkpoint = open_bytes(zip_of_dict([](PickleBuilder& p) {
    p.string("a");
    put_array(p, kPair);
    p.put(9).string("b").get(9);
  }));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->tensors()[0].storage, checkpoint->tensors()[1].storage);
}

// A vector of bytes; put_bytes() pushes them.
void put_byte_array(PickleBuilder& p, std::int64_t size,
                    const std::function<void(PickleBuilder&)>& put_bytes) {
  p.global("numpy.core.numeric", "_frombuffer").mark();
  put_bytes(p);
  put_array_type(p, {.type = "u1", .order = "|"});
  p.integers({size}).string("C").tuple().reduce();
}

TEST(Numpy, KeepsATextThatIsDecodedTwiceOnce) {
  const auto checkpoint = open_bytes(zip_of_dict([](PickleBuilder& p) {
    p.string("a");
    put_byte_array(p, 4, [](PickleBuilder& inner) {
      inner.global("_codecs", "encode").mark().string("text").put(9).string("latin1").tuple();
      inner.reduce();
    });
    p.string("b");
    put_byte_array(p, 4, [](PickleBuilder& inner) {
      inner.global("_codecs", "encode").mark().get(9).string("latin-1").tuple().reduce();
    });
  }));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(read_all(*checkpoint, 1), "text");
  EXPECT_EQ(checkpoint->storages().size(), 1U);
}

TEST(Numpy, RefusesMoreBytesThanTheFileAllowsInMemory) {
  const std::string zeros(kAlwaysExpandedBytes + 1, '\0');
  PickleBuilder pickle;
  pickle.proto().empty_dict().string("w");
  put_byte_array(pickle, static_cast<std::int64_t>(zeros.size()),
                 [&](PickleBuilder& p) { put_bytes(p, zeros); });
  ZipBuilder zip;
  zip.add({.name = "a/data.pkl", .data = pickle.op('s').stop().bytes(), .deflated = true});
  EXPECT_THAT(open_bytes(zip.finish()),
              FailsWith(ErrorCode::kUnsupported,
                        "tensor 'w': the part of it that has to be kept in memory"));
}

TEST(Numpy, CountsAmongTheTensorsOfAStateDict) {
  const auto checkpoint = open_bytes(zip_of_dict([](PickleBuilder& p) {
    p.string("a");
    put_array(p, kPair);
    p.string("t");
    put_whole(p, DType::kFloat32, {4}, 0);
  }));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(names(*checkpoint), ElementsAre("a", "t"));
}

TEST(Numpy, DoesNotMakeAModelOfADictBesideOneWithTensors) {
  const auto checkpoint = open_bytes(zip_of_dict([](PickleBuilder& p) {
    p.string("history");
    put_array(p, kPair);
    p.string("best").global("numpy.core.multiarray", "scalar").mark();
    put_array_type(p, kPair);
    put_bytes(p, f32({5}));
    p.tuple().reduce();
    p.string("model").empty_dict().mark().string("w");
    put_whole(p, DType::kFloat32, {4}, 0);
    p.set_items();
  }));
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_THAT(names(*checkpoint), ElementsAre("w"));
}

// A device tensor held as an array.
Result<Checkpoint> open_device(const ArrayTest& array, const std::string& dtype) {
  return open_bytes(zip_of_dict([&](PickleBuilder& p) {
    p.string("w").global("torch._utils", "_rebuild_device_tensor_from_numpy").mark();
    put_array(p, array);
    p.global("torch", dtype).string("xla:0").boolean(false).tuple().reduce();
  }));
}

TEST(Numpy, ReadsDeviceTensorsHeldAsArrays) {
  const auto checkpoint = open_device(kPair, "float32");
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(read_all(*checkpoint, 0), f32({1, 2}));
}

TEST(Numpy, NarrowsBfloat16ThatWasWidenedForTheArray) {
  const auto checkpoint = open_device(kPair, "bfloat16");
  ASSERT_THAT(checkpoint, IsOk());
  EXPECT_EQ(checkpoint->tensors()[0].dtype, DType::kBFloat16);
  EXPECT_EQ(read_all(*checkpoint, 0), "\x80\x3f" + std::string("\0\x40", 2));
}

TEST(Numpy, RefusesToRoundADeviceTensor) {
  EXPECT_THAT(open_device({.shape = {1}, .bytes = f32({0.1F})}, "bfloat16"),
              FailsWith(ErrorCode::kUnsupported, "rounded to bfloat16"));
  EXPECT_THAT(open_device(kPair, "float16"),
              FailsWith(ErrorCode::kUnsupported, "converted to float16"));
}

}  // namespace
}  // namespace onnx_external
