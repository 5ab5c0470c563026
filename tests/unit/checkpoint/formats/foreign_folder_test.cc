#include "checkpoint/formats/foreign_folder.h"

#include <gmock/gmock.h>

#include <ostream>
#include <string>
#include <vector>

#include "support/temp_dir.h"

namespace onnx_external {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

auto fact(FolderKind kind, const std::string& words) {
  return AllOf(Field(&FolderFact::kind, kind), Field(&FolderFact::text, HasSubstr(words)));
}

TEST(ForeignFolder, APlainModelGivesNoFacts) {
  const TempDir dir;
  for (const char* name : {"model.safetensors", "tokenizer.json", "generation_config.json",
                           "vocab.txt", "README.md", "model.onnx"}) {
    dir.write(name, "{}");
  }
  dir.write(
      "config.json",
      R"({"model_type": "bert", "architectures": ["BertModel"], "quantization_config": null})");
  EXPECT_THAT(folder_facts(dir.path()), IsEmpty());
  EXPECT_THAT(folder_facts(dir.path() / "absent"), IsEmpty());
}

TEST(ForeignFolder, AnAdapterIsNamedWithItsBase) {
  const TempDir dir;
  dir.write("adapter_model.safetensors", "");
  EXPECT_THAT(
      folder_facts(dir.path()),
      ElementsAre(fact(FolderKind::kAdapter, "adapter_model.safetensors: an adapter, not")));
  dir.write("adapter_config.json",
            R"({"peft_type": "LORA", "base_model_name_or_path": "acme/base"})");
  EXPECT_THAT(folder_facts(dir.path()),
              ElementsAre(fact(FolderKind::kAdapter,
                               "adapter_config.json: an adapter (LORA) of 'acme/base'; merge it")));
  EXPECT_THAT(folder_facts(dir.path())[0].text, HasSubstr("merge_and_unload()"));
  dir.write("config.json", R"({"model_type": "llama"})");
  EXPECT_THAT(folder_facts(dir.path()),
              ElementsAre(fact(FolderKind::kAdapter, "remove adapter_config.json")));
}

TEST(ForeignFolder, APipelineOfDiffusersNamesItsParts) {
  const TempDir dir;
  dir.write("model_index.json", R"({"_class_name": "StableDiffusionPipeline"})");
  dir.write("unet/config.json", R"({"_class_name": "UNet2DConditionModel"})");
  dir.write("vae/config.json", "{}");
  EXPECT_THAT(
      folder_facts(dir.path()),
      ElementsAre(fact(FolderKind::kForeign,
                       "diffusers pipeline (StableDiffusionPipeline) with several models: 'unet', "
                       "'vae'")));
  EXPECT_THAT(why_no_checkpoint(dir.path()), HasSubstr("a diffusers pipeline"));
  EXPECT_THAT(folder_facts(dir.path() / "unet"),
              ElementsAre(fact(FolderKind::kForeign, "(UNet2DConditionModel in _class_name)")));
}

TEST(ForeignFolder, AQuantizedModelIsNamedWithItsMethod) {
  const TempDir dir;
  const std::vector<std::pair<std::string, std::string>> rows{
      {R"({"quantization_config": {"quant_method": "gptq", "bits": 4}})", "quantized (gptq"},
      {R"({"quantization_config": {"load_in_4bit": true}})", "quantized (by an unknown method"},
      {R"({"text_config": {"quantization_config": {"quant_method": "awq"}}})", "quantized (awq"},
      {R"({"compression_config": {"quant_method": "sparseml"}})", "in its compression_config"},
      {R"({"quantization": {"group_size": 64, "bits": 4}})", "quantized (mlx"},
  };
  for (const auto& [config, words] : rows) {
    dir.write("config.json", config);
    EXPECT_THAT(folder_facts(dir.path()), ElementsAre(fact(FolderKind::kQuantized, words)));
  }
  dir.write("config.json", R"({"quantization_config": {}})");
  EXPECT_THAT(folder_facts(dir.path()), IsEmpty());
}

TEST(ForeignFolder, WhatIsBehindATransformerOfSentencesIsAPart) {
  const TempDir dir;
  dir.write("modules.json", R"([{"path": "", "type": "sentence_transformers.models.Transformer"},
    {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])");
  dir.write("config.json", R"({"model_type": "bert"})");
  EXPECT_THAT(folder_facts(dir.path()),
              ElementsAre(fact(FolderKind::kPart,
                               "not in the graph: 'Pooling (1_Pooling)', 'Normalize (2_Norm")));
  dir.write("model_head.pkl", "");
  EXPECT_THAT(folder_facts(dir.path()),
              ElementsAre(fact(FolderKind::kPart, "Pooling"), fact(FolderKind::kPart, "SetFit")));
}

TEST(ForeignFolder, ATransformerInAFolderOfItsOwnIsNamed) {
  const TempDir dir;
  dir.write("modules.json",
            R"([{"path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}])");
  EXPECT_THAT(folder_facts(dir.path()),
              ElementsAre(fact(FolderKind::kForeign, "is in '0_Transformer': pass that folder")));
}

TEST(ForeignFolder, AModelOfTimmIsNamed) {
  const TempDir dir;
  dir.write("config.json", R"({"architecture": "resnet50", "pretrained_cfg": {}})");
  EXPECT_THAT(folder_facts(dir.path()),
              ElementsAre(fact(FolderKind::kForeign, "timm model (resnet50 in architecture)")));
}

TEST(ForeignFolder, AConfigThatWasNotFetchedIsNamed) {
  const TempDir dir;
  dir.write("config.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n");
  EXPECT_THAT(folder_facts(dir.path()),
              ElementsAre(fact(FolderKind::kForeign, "config.json: a Git LFS pointer")));
  dir.write("config.json", "{");  // whoever reads it says what is wrong
  EXPECT_THAT(folder_facts(dir.path()), IsEmpty());
}

TEST(ForeignFolder, AConfigThatAnEditorChangedIsLeftToItsReader) {
  const TempDir dir;
  for (const char* text : {"\xef\xbb\xbf{}", "\xff\xfe{", "// mine\n{}", "# mine\n{}"}) {
    dir.write("config.json", text);
    EXPECT_THAT(folder_facts(dir.path()), IsEmpty()) << text;
  }
}

TEST(ForeignFolder, AnUnpackedTorchFileInsideIsNamed) {
  const TempDir dir;
  dir.write("m/data.pkl", "");
  EXPECT_THAT(why_no_checkpoint(dir.path()),
              HasSubstr("its folder 'm' is an unpacked torch file; pack it again: zip -0 "
                        "-r m.pt m"));
}

TEST(ForeignFolder, TrainingStatesAreNotWeights) {
  const TempDir dir;
  dir.write("scheduler.pt", "");
  dir.write("rng_state_0.pth", "");
  EXPECT_THAT(why_no_checkpoint(dir.path()),
              HasSubstr("'rng_state_0.pth' is training state, and the weights are not"));
}

struct Files {
  std::string name;
  std::vector<std::string> files;
  std::string words;
  bool has_checkpoint = false;  // one that is read
};

void PrintTo(const Files& files, std::ostream* out) {
  *out << files.name;
}

class ForeignFolders : public testing::TestWithParam<Files> {};

TEST_P(ForeignFolders, AreRecognizedByTheNamesOfTheirFiles) {
  const TempDir dir;
  for (const std::string& name : GetParam().files) {
    dir.write(name, "x");
  }
  EXPECT_THAT(folder_facts(dir.path()), ElementsAre(fact(FolderKind::kForeign, GetParam().words)));
  if (!GetParam().has_checkpoint) {
    EXPECT_THAT(why_no_checkpoint(dir.path()), HasSubstr(GetParam().words));
  }
}

INSTANTIATE_TEST_SUITE_P(
    OfOtherLibraries, ForeignFolders,
    testing::Values(
        Files{"gguf", {"m-q4.gguf"}, "'m-q4.gguf' is a GGUF file"},
        Files{"tf_h5", {"tf_model.h5"}, "'tf_model.h5' is an HDF5 file"},
        Files{"saved_model", {"saved_model.pb", "variables/a"}, "a TensorFlow SavedModel"},
        Files{"tf_ckpt",
              {"bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"},
              "a TensorFlow checkpoint"},
        Files{"keras", {"m.keras"}, "a Keras model"},
        Files{"flax", {"flax_model.msgpack"}, "Flax weights"},
        Files{"openvino", {"openvino_model.xml", "openvino_model.bin"}, "OpenVINO"},
        Files{"ctranslate2", {"model.bin", "shared_vocabulary.json"}, "CTranslate2"},
        Files{"coreml", {"m.mlpackage/Manifest.json"}, "'m.mlpackage' is a Core ML model"},
        Files{"tensorrt", {"rank0.engine"}, "a TensorRT engine"},
        Files{"tflite", {"m.tflite"}, "TensorFlow Lite"},
        Files{"deepspeed",
              {"zero_to_fp32.py", "global_step5/mp_rank_00_model_states.pt"},
              "a DeepSpeed checkpoint"},
        Files{"zero", {"zero_pp_rank_0_mp_rank_00_optim_states.pt"}, "DeepSpeed (ZeRO)"},
        Files{"unpacked", {"data.pkl", "data/0"}, "the pickle of an unpacked torch file"},
        Files{"unpacked_alone", {"data.pkl", "version"}, "pack its folder again"},
        Files{"trainer",
              {"checkpoint-500/model.safetensors"},
              "'checkpoint-500' is a Trainer checkpoint"},
        Files{"trainers",
              {"checkpoint-1000/a", "checkpoint-200/a", "checkpoint-999/a"},
              "'checkpoint-1000' is the last of 3 Trainer checkpoints; pass that folder"},
        Files{"nemo_ranks", {"tp_rank_00/model_weights.ckpt"}, "'tp_rank_00' is a Megatron"},
        Files{"megatron", {"mp_rank_00/model_optim_rng.pt"}, "a Megatron or NeMo checkpoint"},
        Files{"mistral", {"params.json", "consolidated.safetensors"}, "Mistral's own format", true},
        Files{"meta", {"params.json", "consolidated.00.pth"}, "Meta's own format", true},
        Files{"mlx", {"weights.00.npz"}, "MLX weights"},
        Files{"lora", {"pytorch_lora_weights.safetensors"}, "a diffusers adapter (LoRA)", true},
        Files{"cache", {"snapshots/a/config.json", "blobs/b"}, "in the Hugging Face cache"},
        Files{"onnx", {"model.onnx"}, "an ONNX model", true}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace onnx_external
