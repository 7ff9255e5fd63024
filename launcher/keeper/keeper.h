#ifndef DDPRUN_LAUNCHER_KEEPER_KEEPER_H_
#define DDPRUN_LAUNCHER_KEEPER_KEEPER_H_

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/fd.h"

namespace ddprun::launcher {

struct KeeperOptions {
  // Silence of a living agent after which the keeper empties its tree (R1).
  absl::Duration isolation_timeout = absl::Seconds(120);
  // Folders that the keeper removes when it ends, because it outlives an agent that is killed: one
  // with its contents, and one whose empty folders go (launcher/os/files.h). "" = none.
  std::string remove_folder;
  std::string remove_empty_folders;
  // The workers' cgroup, made by MakeWorkerCgroup(); the keeper removes it. "" = none.
  std::string cgroup;
  // Whether processes that a worker leaves behind are killed as soon as it ends; false: they have
  // the time that Sweep says (leftovers.h).
  bool kills_leftovers = true;
  // A descriptor of the caller's that the keeper keeps open until nothing is left of the tree, so
  // that a reader that waits for its end of file waits for the tree. Close-on-exec: workers don't
  // get it. -1 = none.
  int held_fd = -1;
};

struct KeeperProcess {
  pid_t pid = 0;
  Fd channel;          // SOCK_SEQPACKET; proto keeper/v1: Command out, Event in
  std::string cgroup;  // as in the options
  absl::Duration isolation_timeout;
  // For a keeper that a warden (launcher/daemon/warden.h) forked ahead, so that it isn't the
  // agent's child; else invalid.
  Fd pidfd;
  Fd warden_pidfd;  // readable when the keeper and all that was below it are gone
  Fd warden;        // closing it shows the warden that the agent is gone

  bool is_own_child() const { return !warden_pidfd.valid(); }
};

// Forks the keeper, a shim between the agent and its workers (as containerd's): the workers' parent
// and subreaper. The keeper kills the tree of workers when the agent dies (its end of the channel
// closes, or its pidfd fires), when the agent is silent for the isolation timeout, or on a Sweep.
// It ends only when wait(2) says that nothing is left.
//
// It has a session of its own and all signals blocked, so that only SIGKILL ends it early. Workers
// inherit the environment, directory, limits and descriptors 0-2 that the caller has now; their
// signal mask is empty and all dispositions are the default.
//
// Requires: the calling process has one thread and no gRPC yet; SIGCHLD is not ignored.
// The child never returns from here. Errors: of fork(2), socketpair(2).
absl::StatusOr<KeeperProcess> ForkKeeper(const KeeperOptions& options);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_KEEPER_KEEPER_H_
