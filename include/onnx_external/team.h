// Several processes that write one plan together, on a file system that all of them see: a job of
// MPI, for example. The first one leads: it makes the staging folder, writes the model, verifies
// and publishes; the others write their share of the data. What is published is the same, byte for
// byte, as if one process had written it.
#pragma once

#include <string>
#include <vector>

namespace onnx_external {

// How the processes of a team talk. The caller implements it (save-external does by MPI). All
// processes call the same members in the same order, each from one thread; a call returns when the
// text has arrived. A process that ends instead must take the others with it, as mpirun sees to.
class Team {
 public:
  Team() = default;
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  virtual ~Team() = default;

  [[nodiscard]] virtual int rank() const = 0;  // 0 leads
  [[nodiscard]] virtual int size() const = 0;

  // The leader's text, in every process.
  [[nodiscard]] virtual std::string from_leader(std::string text) = 0;

  // The texts of all processes, by rank, in every process.
  [[nodiscard]] virtual std::vector<std::string> from_all(std::string text) = 0;
};

}  // namespace onnx_external
