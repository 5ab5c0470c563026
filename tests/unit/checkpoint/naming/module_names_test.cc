#include "checkpoint/naming/module_names.h"

#include <gmock/gmock.h>

#include "onnx_external/checkpoint.h"
#include "support/open_bytes.h"
#include "support/pickle_builder.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// What a test module holds; each name is a tensor that views the one storage.
struct TestModule {
  std::string name = {};  // in the module that holds it
  std::vector<std::string> parameters = {};
  std::vector<std::string> buffers = {};
  std::vector<std::string> not_persistent = {};
  std::vector<TestModule> modules = {};
  std::vector<std::string> attributes = {};
  bool set_as_object = true;  // as protocol 2 pickles it
};

TestModule named(std::string name, TestModule module) {
  module.name = std::move(name);
  return module;
}

void put_w(PickleBuilder& pickle, const std::string& name) {
  pickle.string(name);
  put_tensor(pickle, {.name = name, .shape = {4}}, "0", 16);
}

void put_tensors(PickleBuilder& pickle, const std::vector<std::string>& names) {
  pickle.ordered_dict().mark();
  for (const std::string& name : names) {
    put_w(pickle, name);
  }
  pickle.string("absent").none().set_items();
}

void put_names(PickleBuilder& pickle, const TestModule& module) {
  if (module.set_as_object) {
    pickle.global("__builtin__", "set").mark().empty_list().mark();
  } else {
    pickle.op('\x8f').mark();  // EMPTY_SET
  }
  for (const std::string& name : module.not_persistent) {
    pickle.string(name);
  }
  if (module.set_as_object) {
    pickle.append_items().tuple().reduce();
  } else {
    pickle.op('\x90');  // ADDITEMS
  }
}

void put_module(PickleBuilder& pickle, const TestModule& module) {
  pickle.global("models", "Net").empty_tuple().new_object().empty_dict().mark();
  pickle.string("training").boolean(false).string("_parameters");
  put_tensors(pickle, module.parameters);
  pickle.string("_buffers");
  put_tensors(pickle, module.buffers);
  pickle.string("_non_persistent_buffers_set");
  put_names(pickle, module);
  pickle.string("_modules").ordered_dict().mark();
  for (const TestModule& inner : module.modules) {
    pickle.string(inner.name);
    put_module(pickle, inner);
  }
  pickle.set_items();
  for (const std::string& name : module.attributes) {
    put_w(pickle, name);
  }
  pickle.set_items().build();
}

std::string zip_of(const PickleBuilder& pickle) {
  ZipBuilder zip;
  zip.add({.name = "a/data.pkl", .data = pickle.bytes()});
  zip.add({.name = "a/data/0", .data = f32({1, 2, 3, 4})});
  return zip.finish();
}

std::string zip_of(const TestModule& module) {
  PickleBuilder pickle;
  pickle.proto();
  put_module(pickle, module);
  return zip_of(pickle.stop());
}

const TestModule kLinear{.parameters = {"weight", "bias"}};
const TestModule kNet{
    .parameters = {"scale"},
    .buffers = {"mask", "table"},
    .not_persistent = {"mask"},
    .modules = {named("fc", kLinear),
                named("blocks", {.modules = {named("0", kLinear), named("1", kLinear)}})},
    .attributes = {"cache"}};

TEST(ModuleNames, AreThoseOfStateDictInItsOrder) {
  EXPECT_THAT(names(open_bytes(zip_of(kNet))),
              ElementsAre("scale", "table", "fc.weight", "fc.bias", "blocks.0.weight",
                          "blocks.0.bias", "blocks.1.weight", "blocks.1.bias"));
}

TEST(ModuleNames, LeaveOutBuffersNamedInASetOfProtocol4) {
  TestModule net = kNet;
  net.set_as_object = false;
  EXPECT_THAT(names(open_bytes(zip_of(net))), ::testing::Not(::testing::Contains("mask")));
}

TEST(ModuleNames, ListTheOtherAttributesAndTheClassesForInspection) {
  const auto all = open_bytes(zip_of({.parameters = {"w"},
                                      .buffers = {"mask"},
                                      .not_persistent = {"mask"},
                                      .modules = {named("fc", kLinear)},
                                      .attributes = {"cache"}}),
                              {.selection = Selection::kEverything});
  EXPECT_THAT(names(all), ElementsAre("w", "mask", "fc.weight", "fc.bias", "cache"));
  std::vector<std::string> opaque;
  for (const OpaqueObject& object : all->opaque_objects()) {
    opaque.push_back(object.path + ": " + object.type);
  }
  EXPECT_THAT(opaque, UnorderedElementsAre("__class__: models.Net", "fc.__class__: models.Net"));
}

std::string checkpoint_with_modules() {
  PickleBuilder pickle;
  pickle.proto().empty_dict().mark().string("epoch").integer(3).string("model");
  put_module(pickle, kNet);
  pickle.string("loss");
  put_module(pickle, {});  // no tensors: no candidate
  pickle.string("nested").empty_list().mark().empty_dict().mark().string("m");
  put_module(pickle, kLinear);
  pickle.set_items().append_items().set_items().stop();
  return zip_of(pickle);
}

TEST(ModuleNames, AModuleInADictIsAMappingOfNames) {
  EXPECT_THAT(names(open_bytes(checkpoint_with_modules(), {.key = "model"})),
              ElementsAre("scale", "table", "fc.weight", "fc.bias", "blocks.0.weight",
                          "blocks.0.bias", "blocks.1.weight", "blocks.1.bias"));
  EXPECT_THAT(names(open_bytes(checkpoint_with_modules())), ::testing::Contains("fc.weight"));
}

TEST(ModuleNames, ASharedSubmoduleIsListedUnderEachName) {
  PickleBuilder pickle;
  pickle.proto().global("models", "Net").empty_tuple().new_object().empty_dict().mark();
  pickle.string("_parameters").empty_dict().string("_buffers").empty_dict();
  pickle.string("_modules").empty_dict().mark().string("a");
  put_module(pickle, kLinear);
  pickle.put(7).string("b").get(7).set_items().set_items().build().stop();
  const auto checkpoint = open_bytes(zip_of(pickle));
  EXPECT_THAT(names(checkpoint), ElementsAre("a.weight", "a.bias", "b.weight", "b.bias"));
  EXPECT_EQ(checkpoint->plain_range(0), checkpoint->plain_range(2));
}

TEST(ModuleNames, AModuleInsideItselfIsCut) {
  PickleBuilder pickle;
  pickle.proto().global("models", "Net").empty_tuple().new_object().put(1).empty_dict().mark();
  pickle.string("_parameters").empty_dict().mark();
  put_w(pickle, "w");
  pickle.set_items().string("_buffers").empty_dict();
  pickle.string("_modules").empty_dict().mark().string("self").get(1).set_items();
  pickle.set_items().build().stop();
  EXPECT_THAT(names(open_bytes(zip_of(pickle))), ElementsAre("w"));
}

// 40 modules, each holding the next one twice: 2^40 names.
TEST(ModuleNames, AreRefusedWhenModulesRepeatTheirParts) {
  PickleBuilder pickle;
  pickle.proto();
  put_module(pickle, kLinear);
  for (std::uint32_t i = 0; i < 40; ++i) {
    pickle.put(i).op('0').global("models", "Net").empty_tuple().new_object().empty_dict().mark();
    pickle.string("_parameters").empty_dict().string("_buffers").empty_dict();
    pickle.string("_modules").empty_dict().mark().string("a").get(i).string("b").get(i);
    pickle.set_items().set_items().build();
  }
  EXPECT_THAT(open_bytes(zip_of(pickle.stop())),
              FailsWith(ErrorCode::kUnsupported, "repeats its parts"));
}

// One long name, used again and again: each use is work and memory.
TEST(ModuleNames, AreRefusedWhenModulesRepeatALongName) {
  constexpr std::uint32_t kName = 1;
  PickleBuilder pickle;
  pickle.proto().string(std::string(std::size_t{2} << 20, 'n')).put(kName).op('0');
  pickle.global("models", "Net").empty_tuple().new_object().empty_dict().mark();
  pickle.string("_parameters").empty_dict().string("_buffers").empty_dict();
  pickle.string("_modules").empty_dict().mark();
  for (int i = 0; i < 100; ++i) {
    pickle.get(kName).none();
  }
  pickle.set_items().set_items().build().stop();
  EXPECT_THAT(open_bytes(zip_of(pickle)), FailsWith(ErrorCode::kUnsupported, "repeats its parts"));
}

TEST(ModuleNames, PathsOfMoreThanAMebibyteAreRefused) {
  const std::string name(std::size_t{600} << 10, 'n');
  EXPECT_THAT(open_bytes(zip_of({.modules = {named(name, {.modules = {named(name, kLinear)}})}})),
              FailsWith(ErrorCode::kUnsupported, "repeats its parts"));
}

TEST(ModuleNames, TwoParametersOfOneNameAreRefused) {
  EXPECT_THAT(open_bytes(zip_of({.parameters = {"w"}, .buffers = {"w"}})),
              FailsWith(ErrorCode::kCorrupt, "'w'"));
}

TEST(ModuleNames, AnObjectWithoutTheThreeMappingsIsNotAModule) {
  PickleBuilder pickle;
  pickle.proto().global("models", "Net").empty_tuple().new_object().empty_dict().mark();
  pickle.string("_parameters").empty_dict().mark();
  put_w(pickle, "w");
  pickle.set_items().string("_buffers").none().string("_modules").empty_dict();
  pickle.set_items().build().stop();
  EXPECT_THAT(open_bytes(zip_of(pickle)),
              FailsWith(ErrorCode::kNotFound, "contains an object of type 'models.Net'"));
}

}  // namespace
}  // namespace onnx_external
