// Names of tensors in nested trees: state dicts, keys, recorded inputs.
#include "checkpoint/naming/torch_names.h"

#include <gtest/gtest.h>

#include "support/pickle_builder.h"
#include "support/result_matchers.h"

namespace onnx_external {
namespace {

using ::testing::ElementsAre;

// Values of a pickle, written as Python would: dict({{"a", tensor()}}), list({tensor()}).
using Value = std::string;

Value tensor() {
  PickleBuilder pickle;
  put_tensor(pickle, {.shape = {1}}, "0", 4);
  return pickle.bytes();
}
Value text(std::string_view value) {
  return PickleBuilder().string(value).bytes();
}
Value integer(std::int64_t value) {
  return PickleBuilder().integer(value).bytes();
}
Value joined(const std::vector<Value>& values) {
  Value all;
  for (const Value& value : values) {
    all += value;
  }
  return all;
}
Value list(const std::vector<Value>& values) {
  return PickleBuilder().empty_list().mark().raw(joined(values)).append_items().bytes();
}
Value tuple(const std::vector<Value>& values) {
  return PickleBuilder().mark().raw(joined(values)).tuple().bytes();
}
Value keyed(const std::vector<std::pair<Value, Value>>& items) {
  PickleBuilder pickle;
  pickle.empty_dict().mark();
  for (const auto& [key, value] : items) {
    pickle.raw(key).raw(value);
  }
  return pickle.set_items().bytes();
}
Value dict(const std::vector<std::pair<std::string, Value>>& items) {
  std::vector<std::pair<Value, Value>> with_keys;
  for (const auto& [key, value] : items) {
    with_keys.emplace_back(text(key), value);
  }
  return keyed(with_keys);
}
// An object of `class_name` with `state` as its attributes.
Value object(std::string_view module, std::string_view class_name, const Value& state) {
  PickleBuilder pickle;
  return pickle.global(module, class_name).empty_tuple().new_object().raw(state).build().bytes();
}
Value named_tuple(const std::vector<Value>& values) {
  PickleBuilder pickle;
  return pickle.global("my.module", "Pair").raw(tuple(values)).new_object().bytes();
}

Pickle pickle_of(const Value& root) {
  return *Pickle::parse(PickleBuilder().proto().raw(root).stop().bytes());
}

std::vector<std::string> names_of(const Result<NamedTensors>& named) {
  std::vector<std::string> names;
  EXPECT_THAT(named, IsOk());
  for (const NamedTensor& one : named ? named->tensors : std::vector<NamedTensor>()) {
    names.push_back(one.name);
  }
  return names;
}
std::vector<std::string> state_dict(const Value& root, const std::string& key = "") {
  return names_of(name_state_dict(pickle_of(root), key));
}

TEST(StateDict, ListsAndTuplesAddNumbers) {
  const Value layer = dict({{"weight", tensor()}});
  EXPECT_THAT(state_dict(dict({{"head", tensor()},
                               {"layers", list({layer, layer})},
                               {"scales", tuple({tensor(), integer(3), tensor()})}})),
              ElementsAre("head", "layers.0.weight", "layers.1.weight", "scales.0", "scales.2"));
}

TEST(StateDict, IsChosenByTensorsThatAreValues) {
  const Value sizes = list({tensor(), tensor()});
  EXPECT_THAT(state_dict(dict({{"rng", sizes}, {"model", dict({{"w", tensor()}})}})),
              ElementsAre("w"));
}

TEST(StateDict, MayHoldItsTensorsInListsAlone) {
  EXPECT_THAT(state_dict(dict({{"model", dict({{"layers", list({tensor()})}})}})),
              ElementsAre("layers.0"));
}

TEST(StateDict, WithSeveralMappingsOfListsIsAmbiguous) {
  const Value lists = dict({{"layers", list({tensor()})}});
  const Pickle pickle = pickle_of(dict({{"a", lists}, {"b", lists}, {"c", lists}}));
  EXPECT_THAT(name_state_dict(pickle, ""),
              FailsWith(ErrorCode::kAmbiguous, "'a' (1 tensor), 'b' (1 tensor), 'c' (1 tensor)"));
}

TEST(StateDict, LeavesOutMappingsThatAreItsValues) {
  const Value moments = keyed({{integer(0), dict({{"exp_avg", tensor()}})}});
  const Value root = dict({{"w", tensor()}, {"optimizer", dict({{"state", moments}})}});
  EXPECT_THAT(state_dict(root), ElementsAre("w"));
}

TEST(StateDict, IsFoundInATupleAtTheRoot) {
  EXPECT_THAT(state_dict(tuple({dict({{"w", tensor()}}), dict({{"lr", integer(1)}})})),
              ElementsAre("w"));
}

TEST(StateDict, OfAListOfTensorsHasNumbers) {
  EXPECT_THAT(state_dict(list({tensor(), tensor()})), ElementsAre("0", "1"));
}

TEST(StateDict, NamedTuplesAddNumbers) {
  EXPECT_THAT(state_dict(dict({{"w", tensor()}, {"pair", named_tuple({tensor(), tensor()})}})),
              ElementsAre("w", "pair.0", "pair.1"));
}

TEST(StateDict, LeavesOutObjectsWithAState) {
  const Value opaque = object("my.module", "Thing", dict({{"t", tensor()}}));
  EXPECT_THAT(state_dict(dict({{"w", tensor()}, {"thing", opaque}})), ElementsAre("w"));
}

TEST(StateDict, RefusesAnIntegerAndATextKeyOfOneName) {
  const Pickle pickle = pickle_of(keyed({{text("1"), tensor()}, {integer(1), tensor()}}));
  EXPECT_THAT(name_state_dict(pickle, ""),
              FailsWith(ErrorCode::kCorrupt, "two tensors have the name '1'"));
}

TEST(StateDict, SurvivesAListThatHoldsItself) {
  const Value cycle =
      PickleBuilder().empty_list().put(7).mark().get(7).raw(tensor()).append_items().bytes();
  EXPECT_THAT(state_dict(dict({{"w", tensor()}, {"cycle", cycle}})), ElementsAre("w", "cycle.1"));
}

Value optimizer() {
  const Value moments = dict({{"step", integer(4)}, {"exp_avg", tensor()}});
  return dict({{"model", dict({{"w", tensor()}})},
               {"optimizer", dict({{"state", keyed({{integer(0), moments}})},
                                   {"param_groups", list({dict({{"lr", tensor()}})})}})}});
}

TEST(Key, ReachesOptimizerStates) {
  EXPECT_THAT(state_dict(optimizer(), "optimizer"),
              ElementsAre("state.0.exp_avg", "param_groups.0.lr"));
  EXPECT_THAT(state_dict(optimizer(), "optimizer.state.0"), ElementsAre("exp_avg"));
}

TEST(Key, GoesThroughLists) {
  EXPECT_THAT(state_dict(optimizer(), "optimizer.param_groups.0"), ElementsAre("lr"));
}

TEST(Key, NamesNoTensor) {
  EXPECT_THAT(name_state_dict(pickle_of(optimizer()), "model.w"),
              FailsWith(ErrorCode::kNotFound, "the key 'model.w' leads to a single tensor"));
}

TEST(Key, TakesAllWithADot) {
  EXPECT_THAT(state_dict(optimizer(), "."),
              ElementsAre("model.w", "optimizer.state.0.exp_avg", "optimizer.param_groups.0.lr"));
}

std::vector<std::string> recorded(const Value& root, const ClassFlattening* classes = nullptr) {
  return names_of(name_recorded_inputs(pickle_of(root), classes));
}

TEST(RecordedInputs, ArePositionalThenKeywords) {
  const Value kwargs = dict({{"mask", tensor()}, {"use_cache", integer(1)}});
  EXPECT_THAT(recorded(tuple({tuple({tensor(), tuple({tensor(), tensor()})}), kwargs})),
              ElementsAre("0.[0]", "0.[1].0", "0.[1].1", "0.mask"));
}

TEST(RecordedInputs, MayBeADict) {
  EXPECT_THAT(recorded(dict({{"x", tensor()}, {"y", tensor()}})), ElementsAre("0.x", "0.y"));
}

TEST(RecordedInputs, MayBeOneTensor) {
  EXPECT_THAT(recorded(tensor()), ElementsAre("0.[0]"));
}

TEST(RecordedInputs, InAListAreSeveralSets) {
  const Value call = tuple({tuple({tensor()}), dict({{"y", tensor()}})});
  EXPECT_THAT(recorded(list({call, call})), ElementsAre("0.[0]", "0.y", "1.[0]", "1.y"));
  const Value kwargs = dict({{"x", tensor()}});
  EXPECT_THAT(recorded(list({kwargs, kwargs, kwargs})), ElementsAre("0.x", "1.x", "2.x"));
}

TEST(RecordedInputs, InAListOfTensorsAreOneSet) {
  EXPECT_THAT(recorded(list({tensor(), tensor()})), ElementsAre("0.[0]", "0.[1]"));
}

TEST(RecordedInputs, RefuseASetWithoutTensors) {
  const Pickle pickle = pickle_of(list({dict({{"x", tensor()}}), dict({{"x", integer(1)}})}));
  EXPECT_THAT(name_recorded_inputs(pickle),
              FailsWith(ErrorCode::kNotFound, "recorded set 1 contains no tensors"));
}

TEST(RecordedInputs, RefuseAnObjectOfAnUnknownClass) {
  const Value cache = object("my.module", "Cache", dict({{"k", tensor()}}));
  const Pickle pickle = pickle_of(dict({{"x", tensor()}, {"cache", cache}}));
  EXPECT_THAT(name_recorded_inputs(pickle),
              FailsWith(ErrorCode::kUnsupported,
                        "input '0.cache' is an object of class 'my.module.Cache'"));
}

// Classes.

Value old_cache(std::string_view class_name = "DynamicCache") {
  return object("transformers.cache_utils", class_name,
                dict({{"_seen_tokens", integer(3)},
                      {"key_cache", list({tensor(), tensor()})},
                      {"value_cache", list({tensor(), tensor()})}}));
}
Value layer(const Value& keys, const Value& values) {
  return object("transformers.cache_utils", "DynamicLayer",
                dict({{"keys", keys}, {"values", values}}));
}
const Value kNone = "N";

ClassFlattening caches() {
  ClassFlattening classes;
  classes.register_cache_classes();
  return classes;
}

TEST(CacheClasses, ListAllKeysThenAllValues) {
  const ClassFlattening classes = caches();
  EXPECT_THAT(recorded(dict({{"past", old_cache()}}), &classes),
              ElementsAre("0.past.key_cache.0", "0.past.key_cache.1", "0.past.value_cache.0",
                          "0.past.value_cache.1"));
}

TEST(CacheClasses, OfLayersHaveTheSameNamesAndLeaveOutEmptyLayers) {
  const ClassFlattening classes = caches();
  const Value layers =
      list({layer(tensor(), tensor()), layer(kNone, kNone), layer(tensor(), tensor())});
  const Value cache = object("transformers.cache_utils", "StaticCache", dict({{"layers", layers}}));
  EXPECT_THAT(recorded(dict({{"past", cache}}), &classes),
              ElementsAre("0.past.key_cache.0", "0.past.key_cache.1", "0.past.value_cache.0",
                          "0.past.value_cache.1"));
}

TEST(CacheClasses, NestInEncoderDecoderCaches) {
  const ClassFlattening classes = caches();
  const Value cache = object("transformers.cache_utils", "EncoderDecoderCache",
                             dict({{"cross_attention_cache", old_cache()},
                                   {"self_attention_cache", old_cache("SlidingWindowCache")}}));
  EXPECT_THAT(
      recorded(tuple({cache}), &classes),
      ElementsAre(
          "0.[0].self_attention_cache.key_cache.0", "0.[0].self_attention_cache.key_cache.1",
          "0.[0].self_attention_cache.value_cache.0", "0.[0].self_attention_cache.value_cache.1",
          "0.[0].cross_attention_cache.key_cache.0", "0.[0].cross_attention_cache.key_cache.1",
          "0.[0].cross_attention_cache.value_cache.0",
          "0.[0].cross_attention_cache.value_cache.1"));
}

TEST(CacheClasses, OfMambaHaveConvAndSsmStates) {
  const ClassFlattening classes = caches();
  const Value cache = object("transformers.cache_utils", "MambaCache",
                             dict({{"ssm_states", tensor()}, {"conv_states", list({tensor()})}}));
  EXPECT_THAT(recorded(dict({{"cache", cache}}), &classes),
              ElementsAre("0.cache.conv_states.0", "0.cache.ssm_states"));
}

TEST(CacheClasses, OfModelOutputsListTheirItems) {
  const ClassFlattening classes = caches();
  const Value output = PickleBuilder()
                           .global("transformers.modeling_outputs", "BaseModelOutput")
                           .raw(tuple({tensor(), kNone}))
                           .reduce()
                           .mark()
                           .raw(text("last_hidden_state"))
                           .raw(tensor())
                           .set_items()
                           .raw(dict({{"last_hidden_state", tensor()}}))
                           .build()
                           .bytes();
  EXPECT_THAT(recorded(dict({{"encoder_outputs", output}}), &classes),
              ElementsAre("0.encoder_outputs.last_hidden_state"));
}

TEST(CacheClasses, NameTheWayToACandidate) {
  const ClassFlattening classes = caches();
  const auto output = [](const Value& part) {
    return PickleBuilder()
        .global("transformers.modeling_outputs", "BaseModelOutput")
        .raw(tuple({}))
        .reduce()
        .mark()
        .raw(text("part"))
        .raw(part)
        .set_items()
        .bytes();
  };
  const Pickle one = pickle_of(dict({{"output", output(tensor())}, {"epoch", integer(1)}}));
  EXPECT_THAT(names_of(name_state_dict(one, "", &classes)), ElementsAre("part"));
  const Value inner = dict({{"w", tensor()}});
  const Pickle two = pickle_of(dict({{"a", output(inner)}, {"b", inner}}));
  EXPECT_THAT(name_state_dict(two, "", &classes),
              FailsWith(ErrorCode::kAmbiguous, "'b' (1 tensor), 'a.part' (1 tensor)"));
}

TEST(CacheClasses, OneTupleAsAThousandStatesCountsEachTime) {
  PickleBuilder pickle;
  pickle.global("my.module", "Thing").empty_tuple().new_object();
  const Value parts = tuple(std::vector<Value>(1000, integer(1)));
  pickle.raw(parts).put(7).build();
  for (int i = 0; i < 1000; ++i) {
    pickle.get(7).build();
  }
  const Pickle built = pickle_of(pickle.bytes());
  EXPECT_THAT(name_everything(built), FailsWith(ErrorCode::kUnsupported, "under too many names"));
}

TEST(CacheClasses, OfBatchesListTheirItems) {
  const ClassFlattening classes = caches();
  const Value batch =
      object("transformers.tokenization_utils_base", "BatchEncoding",
             dict({{"data", dict({{"input_ids", tensor()}, {"attention_mask", tensor()}})},
                   {"encodings", kNone}}));
  EXPECT_THAT(recorded(batch, &classes), ElementsAre("0.input_ids", "0.attention_mask"));
}

TEST(CacheClasses, RefuseACacheWithoutKeysAndValues) {
  const ClassFlattening classes = caches();
  const Value cache = object("transformers.cache_utils", "DynamicCache", dict({{"x", tensor()}}));
  const Pickle pickle = pickle_of(dict({{"past", cache}}));
  EXPECT_THAT(name_recorded_inputs(pickle, &classes),
              FailsWith(ErrorCode::kUnsupported,
                        "'0.past': 'transformers.cache_utils.DynamicCache': has neither layers"));
}

TEST(CacheClasses, FlattenInStateDictsAndListingsAlike) {
  const ClassFlattening classes = caches();
  const Pickle pickle = pickle_of(dict({{"w", tensor()}, {"past", old_cache()}}));
  const auto expected = ElementsAre("w", "past.key_cache.0", "past.key_cache.1",
                                    "past.value_cache.0", "past.value_cache.1");
  EXPECT_THAT(names_of(name_state_dict(pickle, "", &classes)), expected);
  EXPECT_THAT(names_of(name_state_dict(pickle, ".", &classes)), expected);
  EXPECT_THAT(names_of(name_everything(pickle, &classes)), expected);
}

TEST(CacheClasses, AreNotOpaqueObjectsInAListing) {
  const ClassFlattening classes = caches();
  const Pickle pickle = pickle_of(dict({{"past", old_cache()}}));
  EXPECT_TRUE(name_everything(pickle, &classes)->opaque.empty());
  EXPECT_EQ(name_everything(pickle)->opaque.size(), 1U);
}

TEST(CacheClasses, ThatCannotBeFlattenedAreListedByAttribute) {
  const ClassFlattening classes = caches();
  const Value cache = object("transformers.cache_utils", "DynamicCache", dict({{"x", tensor()}}));
  const auto named = name_everything(pickle_of(dict({{"past", cache}})), &classes);
  EXPECT_THAT(names_of(named), ElementsAre("past.x"));
  EXPECT_EQ(named->opaque.size(), 1U);
}

TEST(CacheClasses, CanBeUnregistered) {
  ClassFlattening classes = caches();
  classes.unregister_cache_classes();
  EXPECT_TRUE(classes.empty());
}

// A function of the caller's.

Result<std::vector<FlattenedPart>> only_h(const PickledValue& object) {
  const auto h = object.attribute("h");
  if (!h) {
    return fail(ErrorCode::kUnsupported, "has no h");
  }
  return std::vector<FlattenedPart>{{"hidden", *h}};
}

Value state_object(const std::string& attribute) {
  return object("my.module", "State", dict({{"other", tensor()}, {attribute, tensor()}}));
}

TEST(ClassFlattening, CallsTheFunctionOfTheExactName) {
  ClassFlattening classes;
  classes.register_class_flattening("my.module.State", only_h);
  EXPECT_THAT(recorded(dict({{"s", state_object("h")}}), &classes), ElementsAre("0.s.hidden"));
}

TEST(ClassFlattening, FallsBackToTheFunctionOfTheModule) {
  ClassFlattening classes;
  classes.register_class_flattening("my.module.*", only_h);
  EXPECT_THAT(recorded(dict({{"s", state_object("h")}}), &classes), ElementsAre("0.s.hidden"));
}

TEST(ClassFlattening, ReportsTheFunctionsErrorWithThePath) {
  ClassFlattening classes;
  classes.register_class_flattening("my.module.State", only_h);
  const Pickle pickle = pickle_of(dict({{"s", state_object("g")}}));
  EXPECT_THAT(name_recorded_inputs(pickle, &classes),
              FailsWith(ErrorCode::kUnsupported, "'0.s': 'my.module.State': has no h"));
}

TEST(ClassFlattening, TurnsWhatTheFunctionThrowsIntoAnError) {
  ClassFlattening classes;
  classes.register_class_flattening(
      "my.module.State", [](const PickledValue& state) -> Result<std::vector<FlattenedPart>> {
        return std::vector<FlattenedPart>{{"x", state.elements().at(7)}};
      });
  const Pickle pickle = pickle_of(dict({{"s", state_object("h")}}));
  EXPECT_THAT(name_recorded_inputs(pickle, &classes),
              FailsWith(ErrorCode::kInvalidArgument, "its flattening function threw"));
}

TEST(ClassFlattening, ForgetsWhatIsUnregistered) {
  ClassFlattening classes;
  classes.register_class_flattening("my.module.State", only_h);
  EXPECT_TRUE(classes.unregister_class_flattening("my.module.State"));
  EXPECT_FALSE(classes.unregister_class_flattening("my.module.State"));
  EXPECT_EQ(classes.find("my.module.State"), nullptr);
}

TEST(ClassFlattening, ShowsArgumentsElementsItemsAndKinds) {
  ClassFlattening classes;
  classes.register_class_flattening(
      "my.module.Pair", [](const PickledValue& pair) -> Result<std::vector<FlattenedPart>> {
        const std::vector<PickledValue> arguments = pair.arguments();
        EXPECT_EQ(pair.type(), "my.module.Pair");
        EXPECT_EQ(pair.kind(), PickledKind::kObject);
        EXPECT_EQ(arguments.at(0).kind(), PickledKind::kDict);
        EXPECT_EQ(arguments.at(1).kind(), PickledKind::kList);
        const auto items = arguments.at(0).items();
        EXPECT_EQ(items.at(0).first, "a");
        EXPECT_EQ(items.at(0).second.kind(), PickledKind::kTensor);
        EXPECT_EQ(items.at(1).first, "5");
        EXPECT_EQ(items.at(1).second.kind(), PickledKind::kOther);
        return std::vector<FlattenedPart>{{"x", arguments.at(1).elements().at(1)}};
      });
  const Value mapping = keyed({{text("a"), tensor()}, {integer(5), integer(6)}});
  EXPECT_THAT(recorded(dict({{"p", named_tuple({mapping, list({kNone, tensor()})})}}), &classes),
              ElementsAre("0.p.x"));
}

TEST(ClassFlattening, CannotLookAtMoreThanTheBudgetAllows) {
  ClassFlattening classes;
  classes.register_class_flattening(
      "my.module.State", [](const PickledValue& state) -> Result<std::vector<FlattenedPart>> {
        for (int i = 0; i < 100'000; ++i) {
          (void)state.attribute("h");
        }
        return std::vector<FlattenedPart>{};
      });
  const Pickle pickle = pickle_of(dict({{"s", state_object("h")}}));
  EXPECT_THAT(name_recorded_inputs(pickle, &classes),
              FailsWith(ErrorCode::kUnsupported, "too many names"));
}

TEST(ClassFlattening, RefusesTwinNames) {
  ClassFlattening classes;
  classes.register_class_flattening(
      "my.module.State", [](const PickledValue& state) -> Result<std::vector<FlattenedPart>> {
        const auto h = state.attribute("h");
        return std::vector<FlattenedPart>{{"x", *h}, {"x", *h}};
      });
  const Pickle pickle = pickle_of(dict({{"s", state_object("h")}}));
  EXPECT_THAT(name_recorded_inputs(pickle, &classes),
              FailsWith(ErrorCode::kCorrupt, "two tensors have the name '0.s.x'"));
}

}  // namespace
}  // namespace onnx_external
