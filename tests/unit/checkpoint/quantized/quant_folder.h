// Makes folders with quantized checkpoints, tensor by tensor.
#pragma once

#include <gmock/gmock.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "onnx_external/checkpoint.h"
#include "support/temp_dir.h"
#include "support/zip_builder.h"

namespace onnx_external {

inline constexpr std::uint8_t kFloat8One = 0x38;  // 1.0 as E4M3

MATCHER_P(HasValue, value, "succeeds with a value that fits") {
  if (!arg.has_value()) {
    *result_listener << "failed with: " << arg.error().message;
    return false;
  }
  return ::testing::ExplainMatchResult(value, *arg, result_listener);
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class QuantFolder {
 public:
  // Adds a tensor whose `type` is spelled as in safetensors. Replaces a tensor of the same name.
  template <typename T>
  QuantFolder& put(const std::string& name, const std::string& type, const std::string& shape,
                   const std::vector<T>& values) {
    tensors_[name] = {type, shape, bytes_of(values)};
    return *this;
  }
  QuantFolder& drop(const std::string& name) {
    tensors_.erase(name);
    return *this;
  }
  QuantFolder& config(const std::string& quantization) {
    config_ = R"({"quantization_config": )" + quantization + "}";
    return *this;
  }

  // Opens only the file, without the config.
  [[nodiscard]] Result<Checkpoint> open_file() const { return open(write()); }
  [[nodiscard]] Result<Checkpoint> open_folder() const {
    write();
    return open(dir_->path());
  }
  [[nodiscard]] const TempDir& dir() const { return *dir_; }

  // Returns the float values of a tensor, or the error of opening or reading.
  [[nodiscard]] Result<std::vector<float>> floats(const std::string& name) const {
    return floats_of(open_folder(), name);
  }
  [[nodiscard]] static Result<std::vector<float>> floats_of(const Result<Checkpoint>& checkpoint,
                                                            const std::string& name) {
    if (!checkpoint) {
      return fail(checkpoint.error());
    }
    for (std::size_t i = 0; i < checkpoint->tensors().size(); ++i) {
      if (checkpoint->tensors()[i].name == name) {
        std::vector<float> values(static_cast<std::size_t>(checkpoint->nbytes(i)) / sizeof(float));
        const Status status = checkpoint->read(i, 0, std::as_writable_bytes(std::span(values)));
        return status ? Result<std::vector<float>>(values) : fail(status.error());
      }
    }
    return fail(ErrorCode::kNotFound, "no tensor " + name);
  }

 private:
  struct Stored {
    std::string type;
    std::string shape;
    std::string bytes;
  };

  static Result<Checkpoint> open(const std::filesystem::path& path) {
    const std::vector<std::filesystem::path> paths{path};
    return open_checkpoint(paths);
  }

  std::filesystem::path write() const {
    std::string header;
    std::string data;
    for (const auto& [name, tensor] : tensors_) {
      const std::size_t begin = data.size();
      data += tensor.bytes;
      header += (header.empty() ? "{\"" : ",\"") + name + R"(":{"dtype":")" + tensor.type +
                R"(","shape":)" + tensor.shape + R"(,"data_offsets":[)" + std::to_string(begin) +
                "," + std::to_string(data.size()) + "]}";
    }
    header += "}";
    std::string file;
    put_le(file, header.size(), 8);
    if (!config_.empty()) {
      dir_->write("config.json", config_);
    }
    return dir_->write("model.safetensors", file + header + data);
  }

  std::shared_ptr<TempDir> dir_ = std::make_shared<TempDir>();
  std::string config_;
  std::map<std::string, Stored> tensors_;
};

}  // namespace onnx_external
