#ifndef DDPRUN_WORKER_SHM_PEER_WATCH_H_
#define DDPRUN_WORKER_SHM_PEER_WATCH_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fd.h"
#include "worker/shm/segment.h"

namespace ddprun::worker::shm {

// Breaks a segment as soon as a process of its other ranks ends, however it ends: a thread sleeps
// on their pidfds. Threads: one, and its own. Source: pidfd_open(2).
class PeerWatch {
 public:
  // Requires: all ranks have joined. A peer that has ended meanwhile breaks the segment at once.
  // Errors: of pidfd_open, eventfd.
  static absl::StatusOr<std::unique_ptr<PeerWatch>> Start(std::shared_ptr<Segment> segment,
                                                          uint32_t rank);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

 private:
  struct Peer {
    uint32_t rank;
    Fd pidfd;
  };

  PeerWatch(std::shared_ptr<Segment> segment, std::vector<Peer> peers, Fd stop);
  void Watch() const;

  const std::shared_ptr<Segment> segment_;
  const std::vector<Peer> peers_;
  const Fd stop_;
  std::thread thread_;
};

// Whether this kernel, and sandbox, lets a process watch another. Errors: of pidfd_open.
absl::Status CheckPeerWatch();

// When the process was started, in clock ticks since boot; 0: no such process. Source: proc(5),
// stat.
uint64_t StartTicksOf(pid_t pid);

}  // namespace ddprun::worker::shm

#endif  // DDPRUN_WORKER_SHM_PEER_WATCH_H_
