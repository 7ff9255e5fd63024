#include "worker/torch/collectives/group_abort.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <map>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"

namespace ddprun::worker {
namespace {

bool IsConnectedTcp(int fd) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) return false;
  if (domain != AF_INET && domain != AF_INET6) return false;
  sockaddr_storage peer = {};
  socklen_t length = sizeof(peer);
  return getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0;
}

// Descriptors of this process by the numbers of their sockets.
std::map<ino_t, int> ConnectedSockets() {
  std::map<ino_t, int> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), &closedir);
  if (folder == nullptr) return found;
  while (const dirent* entry = readdir(folder.get())) {
    int fd = -1;
    struct stat status = {};
    if (!absl::SimpleAtoi(entry->d_name, &fd) || fstat(fd, &status) != 0) continue;
    if (S_ISSOCK(status.st_mode) && IsConnectedTcp(fd)) found.emplace(status.st_ino, fd);
  }
  return found;
}

}  // namespace

GroupAbort::~GroupAbort() { ShutDown(); }

void GroupAbort::RecordSockets(const std::function<void()>& connect) {
  const std::map<ino_t, int> before = ConnectedSockets();
  connect();
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [number, fd] : ConnectedSockets()) {
    if (before.count(number) > 0) continue;
    Fd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (copy.valid()) sockets_.push_back(std::move(copy));
  }
  if (aborted_) ShutDown();
}

void GroupAbort::Add(const c10::intrusive_ptr<c10d::Backend>& backend) {
  const std::lock_guard<std::mutex> lock(mutex_);
  backends_.emplace_back(backend);
  if (aborted_) backend->abort();
}

void GroupAbort::Abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = true;
  ShutDown();
  for (const auto& weak : backends_) {
    const c10::intrusive_ptr<c10d::Backend> backend = weak.lock();
    if (backend) backend->abort();
  }
}

void GroupAbort::ShutDown() {
  for (const Fd& socket : sockets_) shutdown(socket.get(), SHUT_RDWR);
}

}  // namespace ddprun::worker
