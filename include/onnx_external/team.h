// Several processes that write one plan together on a shared file system, for example as an MPI
// job. The first one leads: it creates the staging folder, writes the model, verifies and
// publishes. The others write their share of the data. The output is byte for byte what one process
// would write.
#pragma once

#include <string>
#include <vector>

namespace onnx_external {

// How the processes of a team communicate; the caller implements it (save-external uses MPI). All
// processes call the same members in the same order, each from one thread, and a call returns when
// the text has arrived. If a process dies instead, the others must be ended too, as mpirun does.
class Team {
 public:
  Team() = default;
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  virtual ~Team() = default;

  [[nodiscard]] virtual int rank() const = 0;  // 0 leads
  [[nodiscard]] virtual int size() const = 0;

  // Returns the leader's text in every process.
  [[nodiscard]] virtual std::string from_leader(std::string text) = 0;

  // Returns the texts of all processes, ordered by rank, in every process.
  [[nodiscard]] virtual std::vector<std::string> from_all(std::string text) = 0;
};

}  // namespace onnx_external
