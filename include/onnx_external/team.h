// Lets several processes write one plan together on a shared file system, for example as an MPI
// job. Each process writes its share of the data. The first process leads: it creates the staging
// folder, writes the model, verifies and publishes. The output is byte for byte what one process
// would write.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace onnx_external {

// Describes this process as a member of a team, and how the team communicates. The command
// save-external uses MPI.
struct Team {
  int rank = 0;  // the process with rank 0 leads
  int size = 1;  // at least 1
  // Gathers one string from each process and returns all strings in every process, ordered by rank.
  // All processes must call it the same number of times, each from one thread at a time. If a
  // process dies or fails in this call, the caller must end the other processes, as mpirun does.
  std::function<std::vector<std::string>(std::string text)> from_all;
};

}  // namespace onnx_external
