#include "worker/shm/peer_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/errno_status.h"

namespace ddprun::worker::shm {
namespace {

// The start time's index among the fields behind the name in /proc/<pid>/stat (proc(5): the 22nd).
constexpr size_t kStartTimeField = 19;

Fd OpenPidfd(pid_t pid) { return Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))); }

}  // namespace

uint64_t StartTicksOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(") ");  // the name may hold anything
  if (name_end == std::string::npos) return 0;
  const std::vector<std::string> fields = absl::StrSplit(text.substr(name_end + 2), ' ');
  uint64_t ticks = 0;
  if (fields.size() <= kStartTimeField || !absl::SimpleAtoi(fields[kStartTimeField], &ticks)) {
    return 0;
  }
  return ticks;
}

absl::Status CheckPeerWatch() {
  if (OpenPidfd(getpid()).valid()) return absl::OkStatus();
  return ErrnoStatus(errno, "pidfd_open, which needs Linux 5.3");
}

absl::StatusOr<std::unique_ptr<PeerWatch>> PeerWatch::Start(std::shared_ptr<Segment> segment,
                                                            uint32_t rank) {
  std::vector<Peer> peers;
  for (uint32_t other = 0; other < segment->ranks(); ++other) {
    if (other == rank) continue;
    const Segment::Member& member = segment->member(other);
    Fd pidfd = OpenPidfd(member.pid);
    if (!pidfd.valid() && errno != ESRCH) {
      return ErrnoStatus(errno, absl::StrCat("pidfd_open of ", segment->NameOfRank(other)));
    }
    // After the descriptor is open, the pid can't become another process' unnoticed.
    if (!pidfd.valid() || StartTicksOf(member.pid) != member.start_ticks) {
      segment->Break(absl::StrCat(segment->NameOfRank(other), " ended"));
      continue;
    }
    peers.push_back({.rank = other, .pidfd = std::move(pidfd)});
  }
  Fd stop(eventfd(0, EFD_CLOEXEC));
  if (!stop.valid()) return ErrnoStatus(errno, "eventfd");
  return std::unique_ptr<PeerWatch>(
      new PeerWatch(std::move(segment), std::move(peers), std::move(stop)));
}

PeerWatch::PeerWatch(std::shared_ptr<Segment> segment, std::vector<Peer> peers, Fd stop)
    : segment_(std::move(segment)),
      peers_(std::move(peers)),
      stop_(std::move(stop)),
      thread_([this] { Watch(); }) {}

PeerWatch::~PeerWatch() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void PeerWatch::Watch() const {
  std::vector<pollfd> waits;
  waits.push_back({.fd = stop_.get(), .events = POLLIN, .revents = 0});
  for (const Peer& peer : peers_) {
    waits.push_back({.fd = peer.pidfd.get(), .events = POLLIN, .revents = 0});
  }
  while (poll(waits.data(), waits.size(), -1) < 0) {
    if (errno != EINTR) return segment_->Break("poll of the peers' pidfds failed");
  }
  if (waits[0].revents != 0) return;
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (waits[i + 1].revents == 0) continue;
    return segment_->Break(absl::StrCat(segment_->NameOfRank(peers_[i].rank), " ended"));
  }
}

}  // namespace ddprun::worker::shm
