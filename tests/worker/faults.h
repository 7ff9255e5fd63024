#ifndef DDPRUN_TESTS_WORKER_FAULTS_H_
#define DDPRUN_TESTS_WORKER_FAULTS_H_

#include <cstdint>
#include <string>

#include "worker/torch/checkpoint/atomic_file.h"

namespace ddprun::testing {

// Injects a fault into a worker at an instant that the test knows: in a step, or at one of the
// kernel's file calls. While the file FAULT exists, it has the next fault, for the first worker
// that gets there:
//
//   CALL WHOSE WHAT
//   CALL   forward, reduce (in the backward pass, its gradients aren't there yet), commit (they are
//          averaged), done (so is the step); and, of a checkpoint's file: create, write, sync,
//          rename, named (the directory is synced, with the new name), remove
//   WHOSE  a rank's step or shard; "whole": the file that lists the shards
//   WHAT   kill: SIGKILL before the call; kill_after: after it; hold: it waits while somebody has a
//          flock() on FAULT.gate
//
// To JOURNAL go JSON lines: "fault", and "renamed" for each file that got its name. Threads: any.
class Faults : public worker::FileCalls {
 public:
  Faults(std::string fault, std::string journal);

  // A step of this rank has come to CALL.
  void At(const std::string& call, uint32_t rank) const;

  absl::StatusOr<Fd> Create(const std::string& path) override;
  absl::Status Write(const Fd& file, const std::string& path, absl::string_view bytes) override;
  absl::Status SyncFile(const Fd& file, const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::Status Remove(const std::string& path) override;

 private:
  // Returns the fault for this call, and takes it from all other workers; "" = none.
  std::string TakeFault(const std::string& call, const std::string& whose) const;
  void Note(const std::string& event, const std::string& call, const std::string& path) const;
  // Makes the call, with its fault.
  template <typename Function>
  auto During(const std::string& call, const std::string& whose, const std::string& path,
              Function&& function) const;

  const std::string fault_;
  const std::string journal_;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_FAULTS_H_
