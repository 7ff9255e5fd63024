#include "launcher/schedulers/slurm_run.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/log.h"
#include "launcher/schedulers/node_socket.h"

namespace ddprun::launcher {
namespace {

// How much later than this one the first task of a node may start.
constexpr absl::Duration kFirstTaskPatience = absl::Seconds(10);

}  // namespace

int GiveScript(const SlurmJob& job) {
  if (!job.submit) {
    std::fputs(job.script.c_str(), stdout);
    return 0;
  }
  absl::StatusOr<FdPair> pipe = MakePipe();
  absl::Status status = pipe.status();
  if (status.ok() && (write(pipe->second.get(), job.script.data(), job.script.size()) !=
                          static_cast<ssize_t>(job.script.size()) ||
                      dup2(pipe->first.get(), STDIN_FILENO) < 0)) {
    status = ErrnoStatus(errno, "give the script to sbatch");
  }
  if (status.ok()) {
    execlp("sbatch", "sbatch", static_cast<char*>(nullptr));
    status = ErrnoStatus(errno, "run sbatch");
  }
  Notify(absl::StrCat("error: ", status.message(),
                      "; without --submit the script is printed, for a machine that has Slurm"));
  return 1;
}

int AwaitFirstTask(const std::string& node_socket) {
  const absl::StatusOr<bool> held = AwaitNodeSocket(node_socket, kFirstTaskPatience);
  if (held.ok()) return 0;
  Notify(absl::StrCat("error: ", held.status().message()));
  return 1;
}

void RequeueJob(const std::string& job) {
  Notify(absl::StrCat(
      "the node of the service is lost, and the batch script with it: requeueing job ", job));
  execlp("scontrol", "scontrol", "requeue", job.c_str(), static_cast<char*>(nullptr));
  Notify(absl::StrCat("warning: ", ErrnoStatus(errno, "run scontrol").message()));
}

}  // namespace ddprun::launcher
