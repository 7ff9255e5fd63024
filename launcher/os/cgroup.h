#ifndef DDPRUN_LAUNCHER_OS_CGROUP_H_
#define DDPRUN_LAUNCHER_OS_CGROUP_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fd.h"

namespace ddprun::launcher {

// Makes a cgroup of version 2 below the one that this process is in, for one agent's workers, and
// gives its folder. `root` comes before /proc and is for tests.
//
// What an earlier agent's workers left there is killed and removed first, where that agent is gone:
// it was killed together with its keeper, which else would have done that. Of an agent in another
// PID namespace it is removed if it is empty and nobody claims it.
//
// Errors: FAILED_PRECONDITION — it can't be used here, with the reason: no cgroup2 file system, a
// kernel without cgroup.kill (before 5.14), the folder belongs to somebody else (a user without a
// delegated cgroup), or Slurm runs the job and keeps its own account of processes by cgroups.
// Threads: any. Source: cgroups(7); the kernel's cgroup-v2.rst.
absl::StatusOr<std::string> MakeWorkerCgroup(const std::string& root = "");

// The folder of the cgroup of version 2 that this process is in; "" = there is none to be seen.
std::string OwnCgroupFolder();

// As long as this is open no agent of another PID namespace, which can't see who lives, takes an
// empty folder for one that was left. Not valid: the folder is gone, or is being removed.
// Threads: any. Source: flock(2).
Fd ClaimCgroup(const std::string& folder);

// Moves a process into the cgroup of this folder. Takes up to some 10 ms where the machine forks
// much. Errors: of open(2), write(2): who moves it needs the right at both ends' common parent.
absl::Status EnterCgroup(const std::string& folder, pid_t pid);

// Such a cgroup, for the process that fills it; claims it.
class WorkerCgroup {
 public:
  WorkerCgroup() = default;  // none
  explicit WorkerCgroup(std::string path);

  // For clone3(2) with CLONE_INTO_CGROUP; -1 = there is none, or it can't be used.
  int folder() const { return folder_.get(); }
  // SIGKILLs all that is in it, also what is being forked meanwhile. Takes 10 to 20 ms, so it is
  // for trees that don't go by themselves.
  void Kill() const;
  // Makes it anew, when nothing is left in it: some kernels (seen: 6.18) kill whatever is cloned
  // into a cgroup that was killed before.
  void Renew();
  // Moves what is in it to the cgroup of this folder, as far as that can be done.
  void MoveOut(const std::string& folder) const;
  // When nothing is left in it.
  void Remove() const;

 private:
  std::string path_;
  Fd folder_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_CGROUP_H_
