#include "launcher/side_channels/finish_barrier.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/address.h"
#include "base/errno_status.h"
#include "base/status_macros.h"

namespace ddprun::launcher {

absl::StatusOr<std::unique_ptr<FinishBarrier>> FinishBarrier::Create(
    EventLoop* loop, const std::string& path, std::function<void(uint32_t local_rank)> finished) {
  const std::string what = absl::StrCat("listen at ", path, " for workers that have finished");
  DDPRUN_ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(path));
  Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid() ||
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener.get(), SOMAXCONN) != 0) {
    return ErrnoStatus(errno, what);
  }
  return std::unique_ptr<FinishBarrier>(
      new FinishBarrier(loop, std::move(listener), std::move(finished)));
}

FinishBarrier::FinishBarrier(EventLoop* loop, Fd listener,
                             std::function<void(uint32_t local_rank)> finished)
    : listener_(std::move(listener)),
      finished_(std::move(finished)),
      acceptable_(std::make_unique<FdWatch>(loop, listener_.get(), [this] { Accept(); })) {}

FinishBarrier::~FinishBarrier() = default;

void FinishBarrier::Begin(uint32_t count) {
  workers_.clear();
  early_.clear();
  for (uint32_t local_rank = 0; local_rank < count; ++local_rank) workers_[local_rank];
}

void FinishBarrier::OnStarted(uint32_t local_rank, pid_t pid) {
  workers_[local_rank].pid = pid;
  if (auto early = early_.extract(pid); !early.empty()) Hold(pid, std::move(early.mapped()));
  if (AllAreStarted()) early_.clear();
}

void FinishBarrier::OnEnded(uint32_t local_rank) {
  workers_[local_rank].done = true;
  LetGoWhenAllAreDone();
}

bool FinishBarrier::AllAreStarted() const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [](const auto& entry) { return entry.second.pid != 0; });
}

void FinishBarrier::Accept() {
  Fd connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (connection.valid()) {
    ucred peer{};
    socklen_t size = sizeof(peer);
    getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size);
    return Hold(peer.pid, std::move(connection));
  }
  if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
  // Out of descriptors: no further worker can be held. Closing the listener releases those in its
  // queue.
  acceptable_.reset();
  listener_.Reset();
}

void FinishBarrier::Hold(pid_t pid, Fd connection) {
  const auto found = std::find_if(workers_.begin(), workers_.end(),
                                  [pid](const auto& entry) { return entry.second.pid == pid; });
  if (found == workers_.end()) {
    // If all workers are known, this is a worker's child that has finished the script, too. The
    // child is released, because its parent may wait for it.
    if (!AllAreStarted()) early_[pid] = std::move(connection);
    return;
  }
  auto& [local_rank, worker] = *found;
  worker.done = true;
  worker.waits = std::move(connection);
  finished_(local_rank);
  LetGoWhenAllAreDone();
}

void FinishBarrier::LetGoWhenAllAreDone() {
  for (const auto& [local_rank, worker] : workers_) {
    if (!worker.done) return;
  }
  for (auto& [local_rank, worker] : workers_) worker.waits.Reset();
}

}  // namespace ddprun::launcher
