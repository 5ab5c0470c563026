#include "common/mpi_team.h"

#include <sched.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
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

bool is_several(const char* size) {
  return size != nullptr && std::string_view(size) != "1";
}

bool is_one_of_several() {
  return is_several(std::getenv("OMPI_COMM_WORLD_SIZE")) || is_several(std::getenv("PMI_SIZE"));
}

#ifdef ONNX_EXTERNAL_MPI

// A process that waits inside MPI would take CPU time from those that work, so it polls with
// pauses. Errors of MPI end the job, which is MPI's default.
void wait_for_all() {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  for (int met = 0; MPI_Test(&request, &met, MPI_STATUS_IGNORE), met == 0;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// mpirun binds each process to CPUs of its own. Gives the leader those of all on its machine.
int use_cpus(int rank) {
  cpu_set_t own{};
  (void)::sched_getaffinity(0, sizeof(own), &own);
  cpu_set_t all = own;
  MPI_Comm machine = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &machine);
  MPI_Allreduce(&own, &all, sizeof(all), MPI_BYTE, MPI_BOR, machine);
  MPI_Comm_free(&machine);
  const cpu_set_t& mine = rank == 0 ? all : own;
  (void)::sched_setaffinity(0, sizeof(mine), &mine);
  return CPU_COUNT(&mine);
}

// The processes send one after the other, because the texts are small: MPI counts in int, which
// suffices for the 8 bytes per tensor.
std::vector<std::string> gather(MpiTeam& joined, std::string text) {
  wait_for_all();
  std::vector<std::string> texts(static_cast<std::size_t>(joined.team.size));
  texts[static_cast<std::size_t>(joined.team.rank)] = std::move(text);
  for (int rank = 0; rank < joined.team.size; ++rank) {
    std::string& sent = texts[static_cast<std::size_t>(rank)];
    if (!std::in_range<int>(sent.size())) {
      MPI_Abort(MPI_COMM_WORLD, kFailed);
    }
    auto bytes = static_cast<int>(sent.size());
    MPI_Bcast(&bytes, 1, MPI_INT, rank, MPI_COMM_WORLD);
    sent.resize(static_cast<std::size_t>(bytes));
    MPI_Bcast(sent.data(), bytes, MPI_CHAR, rank, MPI_COMM_WORLD);
  }
  joined.has_met = true;
  return texts;
}

bool leave(const MpiTeam& joined, bool succeeded) {
  if (succeeded || joined.has_met) {
    wait_for_all();  // the leader has cleaned up
    MPI_Finalize();
    return joined.team.rank == 0;
  }
  std::atexit([] { MPI_Abort(MPI_COMM_WORLD, kFailed); });
  return true;
}

#endif

}  // namespace

std::unique_ptr<MpiTeam> join_team() {
  if (!is_one_of_several()) {
    return nullptr;
  }
#ifdef ONNX_EXTERNAL_MPI
  // If a process dies, mpirun ends the others by SIGTERM. While they wait for a message they could
  // not check a flag.
  (void)std::signal(SIGTERM, SIG_DFL);
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  auto joined = std::make_unique<MpiTeam>();
  MPI_Comm_rank(MPI_COMM_WORLD, &joined->team.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &joined->team.size);
  joined->threads = use_cpus(joined->team.rank);
  joined->team.from_all = [self = joined.get()](std::string text) {
    return gather(*self, std::move(text));
  };
  joined->end = [self = joined.get()](bool succeeded) { return leave(*self, succeeded); };
  return joined;
#else
  write_stderr(
      "save-external: error: it was built without MPI; use save-external-mpi with mpirun\n");
  std::exit(kFailed);
#endif
}

}  // namespace onnx_external
