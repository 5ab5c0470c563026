// fuzz_seeds FOLDER: writes a few honest inputs for each target into FOLDER/<target>/.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "fuzz/seeds.h"
#include "support/legacy_builder.h"
#include "support/value_builder.h"

namespace {

using namespace onnx_external;

// One tensor of each kind over the records of values_file().
std::string values_pickle() {
  PickleBuilder pickle;
  pickle.proto().ordered_dict().mark().string("w");
  put_whole(pickle, DType::kFloat32, {2, 3}, 0);
  pickle.string("c");
  put_whole(pickle, DType::kComplex32, {6}, 1);
  pickle.string("q");
  begin_quantized(pickle, "QInt8Storage", 24);
  put_quantizer(pickle, 0.5, 1);
  end_quantized(pickle);
  pickle.string("p");
  pickle.global("torch._utils", "_rebuild_qtensor").mark();
  pickle.mark().string("storage").global("torch", "QUInt8Storage").string("0").string("cpu");
  pickle.integer(24).tuple().persistent_id().integer(0).integers({3, 8}).integers({8, 1});
  pickle.mark().global("torch", "per_channel_affine");
  put_whole(pickle, DType::kFloat64, {3}, 3);
  put_whole(pickle, DType::kInt64, {3}, 0);
  pickle.integer(0).tuple();
  end_quantized(pickle);
  const TestTensor indices{.dtype = DType::kInt64, .shape = {1, 3}, .bytes = std::string(24, ' ')};
  const TestTensor values{.shape = {3}, .bytes = std::string(24, ' ')};
  pickle.string("coo");
  put_sparse(pickle, {.parts = {indices, values}, .size = {6}});
  const TestTensor compressed{.dtype = DType::kInt64, .shape = {3}, .bytes = indices.bytes};
  const TestTensor plain{.dtype = DType::kInt64, .shape = {2}, .bytes = indices.bytes};
  const TestTensor two{.shape = {2}, .bytes = std::string(8, ' ')};
  pickle.string("csr");
  put_sparse(pickle, {.layout = "sparse_csr", .parts = {compressed, plain, two}, .size = {2, 3}});
  pickle.string("n");
  put_array(pickle, {.shape = {2}, .bytes = f32({1, 2})});
  pickle.string("b").global("torch._utils", "_rebuild_tensor").mark();
  pickle.global("torch.storage", "_load_from_bytes").mark();
  put_bytes(pickle, legacy_storage_file(f32({1, 2})));
  pickle.tuple().reduce().integer(0).integers({2}).integers({1}).tuple().reduce();
  return pickle.set_items().stop().bytes();
}

// The members of a tar file: one storage, one tensor that views it, {"w": the tensor}.
struct TarSeed {
  std::string storages = PickleBuilder().proto().integer(1).stop().bytes();
  std::string tensors = storages;
  std::string object = {};

  TarSeed() {
    PickleBuilder storage;
    storage.proto().mark().integer(10).string("cpu").global("torch", "FloatStorage").tuple();
    storages += storage.stop().bytes();
    put_le(storages, 2, 8);
    storages += f32({1, 2}) + PickleBuilder().proto().empty_list().stop().bytes();
    PickleBuilder tensor;
    tensor.proto().mark().integer(20).integer(10).global("torch", "FloatTensor").tuple();
    tensors += tensor.stop().bytes();
    put_le(tensors, 1, 8);  // rank, and four bytes that mean nothing
    put_le(tensors, 2, 8);
    put_le(tensors, 1, 8);
    put_le(tensors, 0, 8);
    PickleBuilder pickle;
    pickle.proto().empty_dict().string("w").string("20").persistent_id().op('s').stop();
    object = pickle.bytes();
  }
  [[nodiscard]] std::string members() const {
    std::string input;
    put_le(input, storages.size(), 2);
    input += storages;
    put_le(input, tensors.size(), 2);
    return input + tensors + object;
  }
  [[nodiscard]] std::string file() const {
    return tar_file({{"storages", storages}, {"tensors", tensors}, {"pickle", object}});
  }
};

std::string safetensors_file() {
  const std::string header = R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  std::string file;
  put_le(file, header.size(), 8);
  return file + header + f32({1, 2});
}

void write(const std::filesystem::path& folder, const char* target, const char* name,
           const std::string& bytes) {
  std::filesystem::create_directories(folder / target);
  std::ofstream(folder / target / name, std::ios::binary) << bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: fuzz_seeds FOLDER\n", stderr);
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::map<std::string, std::string> files;
  write(folder, "dcp", "cut", dcp_metadata(dcp_seed(), files));
  write(folder, "exported", "config", std::string(kExportedConfig));
  write(folder, "legacy", "file", legacy_file(legacy_object(), {{"7", f32({1, 2, 3, 4})}}));
  write(folder, "legacy", "storage", legacy_storage_file(f32({1, 2})));
  write(folder, "pickle", "values", values_pickle());
  write(folder, "safetensors", "file", safetensors_file());
  write(folder, "tar", "members", TarSeed().members());
  write(folder, "tar", "file", TarSeed().file());
  write(folder, "values", "kinds", values_pickle());
  write(folder, "zip", "tensors", torch_zip({{.name = "w", .shape = {2}, .bytes = f32({1, 2})}}));
  write(folder, "zip", "exported", exported_archive(kExportedConfig));
  return 0;
}
