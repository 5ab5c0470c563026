#include "common/mpi_team.h"

#include <csignal>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>

#include "common/command.h"
#include "common/output.h"
#ifdef ONNX_EXTERNAL_MPI
#include <mpi.h>
#endif

namespace onnx_external {
namespace {

bool is_one_of_several() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* const size = std::getenv(name);
    if (size != nullptr && std::string_view(size) != "1") {
      return true;
    }
  }
  return false;
}

}  // namespace

#ifdef ONNX_EXTERNAL_MPI

// MPI counts in int, which suffices for the few bytes per tensor that a team sends. Errors of MPI
// end the job, which is its default.
constexpr std::size_t kMaxText = static_cast<std::size_t>(std::numeric_limits<int>::max());

std::unique_ptr<MpiTeam> MpiTeam::join() {
  if (!is_one_of_several()) {
    return nullptr;
  }
  // If a process dies, mpirun ends the others by SIGTERM. While they wait for a message they could
  // not check a flag.
  (void)std::signal(SIGTERM, SIG_DFL);
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return std::unique_ptr<MpiTeam>(new MpiTeam(rank, size));
}

std::string MpiTeam::from_leader(std::string text) {
  unsigned long long bytes = text.size();
  MPI_Bcast(&bytes, 1, MPI_UNSIGNED_LONG_LONG, 0, MPI_COMM_WORLD);
  if (bytes > kMaxText) {
    MPI_Abort(MPI_COMM_WORLD, kFailed);
  }
  text.resize(static_cast<std::size_t>(bytes));
  MPI_Bcast(text.data(), static_cast<int>(bytes), MPI_CHAR, 0, MPI_COMM_WORLD);
  return text;
}

// The processes send one after the other, because the texts are small.
std::vector<std::string> MpiTeam::from_all(std::string text) {
  std::vector<std::string> texts;
  for (int speaker = 0; speaker < size_; ++speaker) {
    std::string said = speaker == rank_ ? text : std::string();
    unsigned long long bytes = said.size();
    MPI_Bcast(&bytes, 1, MPI_UNSIGNED_LONG_LONG, speaker, MPI_COMM_WORLD);
    if (bytes > kMaxText) {
      MPI_Abort(MPI_COMM_WORLD, kFailed);
    }
    said.resize(static_cast<std::size_t>(bytes));
    MPI_Bcast(said.data(), static_cast<int>(bytes), MPI_CHAR, speaker, MPI_COMM_WORLD);
    texts.push_back(std::move(said));
  }
  has_met_ = true;
  return texts;
}

bool MpiTeam::end(bool succeeded) {
  if (succeeded || has_met_) {
    MPI_Barrier(MPI_COMM_WORLD);  // the leader has cleaned up
    MPI_Finalize();
    return rank_ == 0;
  }
  std::atexit([] { MPI_Abort(MPI_COMM_WORLD, kFailed); });
  return true;
}

#else

std::unique_ptr<MpiTeam> MpiTeam::join() {
  if (is_one_of_several()) {
    write_stderr(
        "save-external: error: started by mpirun, but built without MPI; use "
        "tools/mpi/save-external "
        "of a build with ONNX_EXTERNAL_MPI=ON\n");
    std::exit(kFailed);
  }
  return nullptr;
}

std::string MpiTeam::from_leader(std::string text) {
  return text;
}

std::vector<std::string> MpiTeam::from_all(std::string text) {
  return {std::move(text)};
}

bool MpiTeam::end(bool /*succeeded*/) {
  return true;
}

#endif

}  // namespace onnx_external
