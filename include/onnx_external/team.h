// Several processes that write one plan together on a shared file system, for example as an MPI
// job. Each writes its share of the data. The first one leads: it creates the staging folder,
// writes the model, verifies and publishes. The output is byte for byte what one process would
// write.
#pragma once

#include <string>
#include <vector>

namespace onnx_external {

// How the processes of a team communicate. The caller implements it (save-external uses MPI). If a
// process dies or fails in from_all(), the caller must end the other processes, as mpirun does.
class Team {
 public:
  Team() = default;
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  virtual ~Team() = default;

  [[nodiscard]] virtual int rank() const = 0;  // 0 leads
  [[nodiscard]] virtual int size() const = 0;  // at least 1

  // Gathers the `text` of every process and returns all texts, ordered by rank, in every process.
  // All processes call it equally often, each from one thread.
  [[nodiscard]] virtual std::vector<std::string> from_all(std::string text) = 0;
};

}  // namespace onnx_external
