#include "common/mpi_team.h"

#include <sched.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <thread>
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

namespace {

// A process that waits in MPI takes a CPU from those that work, so it asks now and then. Errors of
// MPI end the job, which is its default.
void wait_for_all() {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  for (int met = 0; MPI_Test(&request, &met, MPI_STATUS_IGNORE), met == 0;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// mpirun binds each process to CPUs of its own. Gives the leader those of all on its machine.
int use_cpus(int rank) {
  cpu_set_t own;
  CPU_ZERO(&own);
  (void)::sched_getaffinity(0, sizeof(own), &own);
  cpu_set_t all = own;
  MPI_Comm machine = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &machine);
  MPI_Allreduce(&own, &all, sizeof(all), MPI_BYTE, MPI_BOR, machine);
  MPI_Comm_free(&machine);
  if (rank == 0) {
    (void)::sched_setaffinity(0, sizeof(all), &all);
  }
  return CPU_COUNT(rank == 0 ? &all : &own);
}

}  // namespace

std::unique_ptr<MpiTeam> MpiTeam::join() {
  if (!is_one_of_several()) {
    return nullptr;
  }
  // If a process dies, mpirun ends the others by SIGTERM. While they wait for a message they could
  // not check a flag.
  (void)std::signal(SIGTERM, SIG_DFL);
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  std::unique_ptr<MpiTeam> team(new MpiTeam);
  MPI_Comm_rank(MPI_COMM_WORLD, &team->rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &team->size_);
  team->threads_ = use_cpus(team->rank_);
  return team;
}

// The processes send one after the other, because the texts are small: MPI counts in int, which
// suffices for the few bytes per tensor.
std::vector<std::string> MpiTeam::from_all(std::string text) {
  wait_for_all();
  std::vector<std::string> texts(static_cast<std::size_t>(size_));
  texts[static_cast<std::size_t>(rank_)] = std::move(text);
  for (int speaker = 0; speaker < size_; ++speaker) {
    std::string& said = texts[static_cast<std::size_t>(speaker)];
    unsigned long long bytes = said.size();
    MPI_Bcast(&bytes, 1, MPI_UNSIGNED_LONG_LONG, speaker, MPI_COMM_WORLD);
    if (bytes > static_cast<unsigned long long>(std::numeric_limits<int>::max())) {
      MPI_Abort(MPI_COMM_WORLD, kFailed);
    }
    said.resize(static_cast<std::size_t>(bytes));
    MPI_Bcast(said.data(), static_cast<int>(bytes), MPI_CHAR, speaker, MPI_COMM_WORLD);
  }
  has_met_ = true;
  return texts;
}

bool MpiTeam::end(bool succeeded) {
  if (succeeded || has_met_) {
    wait_for_all();  // the leader has cleaned up
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
        "save-external: error: started by mpirun, but built without MPI; use save-external-mpi, of "
        "a build with ONNX_EXTERNAL_MPI=ON\n");
    std::exit(kFailed);
  }
  return nullptr;
}

std::vector<std::string> MpiTeam::from_all(std::string text) {
  return {std::move(text)};
}

bool MpiTeam::end(bool /*succeeded*/) {
  return true;
}

#endif

}  // namespace onnx_external
