#include "checkpoint/formats/training_files.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <vector>

namespace onnx_external {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string parts(const std::vector<std::filesystem::path>& paths) {
  return rank_parts(paths);
}

TEST(TrainingFiles, StatesAreDistinguishedFromWeights) {
  for (const char* name :
       {"optimizer.pt", "scheduler_1.bin", "rng_state_12.pth", "training_args.bin",
        "zero_pp_rank_0_mp_rank_00_optim_states.pt", "optim_world_size_2_rank_0.pt"}) {
    EXPECT_TRUE(is_training_state(name)) << name;
  }
  for (const char* name : {"model.pt", "pytorch_model.bin", "my_optimizer.pt", "model_optim_rng.pt",
                           "zero_pp_rank_0_mp_rank_00_model_states.pt"}) {
    EXPECT_FALSE(is_training_state(name)) << name;
  }
}

TEST(TrainingFiles, PartsOfRanksAreNamedWithWhatJoinsThem) {
  EXPECT_THAT(parts({"m/consolidated.00.pth", "m/consolidated.01.pth", "m/extra.pt"}),
              HasSubstr("'m/consolidated.00.pth', 'm/consolidated.01.pth' are parts of one "
                        "checkpoint, one for each rank; join the parts first, with the library"));
  EXPECT_THAT(parts({"mp_rank_00/model_optim_rng.pt", "mp_rank_01/model_optim_rng.pt"}),
              HasSubstr("are parts"));
  EXPECT_THAT(parts({"model_world_size_2_rank_1.pt", "model_world_size_2_rank_0.pt"}),
              HasSubstr("are parts"));
  EXPECT_THAT(parts({"model-rank-0-part-0.safetensors", "model-rank-1-part-0.safetensors"}),
              HasSubstr("are parts"));
  EXPECT_THAT(parts({"bloom-tp_00.pt", "bloom-tp_01.pt"}), HasSubstr("are parts"));
  EXPECT_THAT(
      parts({"zero_pp_rank_0_mp_rank_00_model_states.pt",
             "zero_pp_rank_1_mp_rank_00_model_states.pt"}),
      HasSubstr("DeepSpeed (ZeRO) wrote them: join them first with its script zero_to_fp32"));
}

TEST(TrainingFiles, OtherNumberedFilesAreNotParts) {
  EXPECT_THAT(parts({"epoch_1.pth", "epoch_2.pth"}), IsEmpty());
  EXPECT_THAT(parts({"http0.pt", "http1.pt"}), IsEmpty());
  EXPECT_THAT(parts({"lora_rank_8.pt", "lora_rank_16.pt"}), IsEmpty());
  EXPECT_THAT(parts({"consolidated.00.pth"}), IsEmpty());
  EXPECT_THAT(parts({"a/rank_0.pt", "b/rank_1.pt"}), IsEmpty());
}

}  // namespace
}  // namespace onnx_external
