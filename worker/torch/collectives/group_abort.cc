#include "worker/torch/collectives/group_abort.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <condition_variable>
#include <exception>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "worker/torch/errors/exception_status.h"

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

// Threads whose work nobody waits for any more.
class Abandoned {
 public:
  static Abandoned& Get() {
    static auto* one = new Abandoned();
    return *one;
  }
  void Add(std::thread thread) {
    const std::lock_guard<std::mutex> lock(mutex_);
    threads_.push_back(std::move(thread));
  }
  void Join() {
    std::vector<std::thread> threads;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      threads.swap(threads_);
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::mutex mutex_;
  std::vector<std::thread> threads_;
};

}  // namespace

// A connect that is under way, in its own thread.
struct GroupAbort::Attempt {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  bool aborted = false;
  std::exception_ptr error;  // what it threw; read when it is done

  void Run(const std::function<void()>& connect) {
    std::exception_ptr thrown;
    try {
      connect();
    } catch (...) {
      thrown = std::current_exception();
    }
    const std::lock_guard<std::mutex> lock(mutex);
    error = thrown;
    done = true;
    changed.notify_all();
  }
  void Abort() {
    const std::lock_guard<std::mutex> lock(mutex);
    aborted = true;
    changed.notify_all();
  }
  // False: it was aborted, and isn't done.
  bool Await() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [this] { return done || aborted; });
    return done;
  }
};

GroupAbort::~GroupAbort() { ShutDown(); }

void GroupAbort::Connect(std::function<void()> connect) {
  const std::map<ino_t, int> before = ConnectedSockets();
  const auto attempt = std::make_shared<Attempt>();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    attempt->aborted = aborted_;
    attempt_ = attempt;
  }
  std::thread thread([attempt, connect = std::move(connect)] { attempt->Run(connect); });
  const bool done = attempt->Await();
  const std::lock_guard<std::mutex> lock(mutex_);
  attempt_.reset();
  if (!done) {
    Abandoned::Get().Add(std::move(thread));
    throw PeerFailure("the generation ended while its workers connected");
  }
  thread.join();
  if (attempt->error != nullptr) std::rethrow_exception(attempt->error);
  for (const auto& [number, fd] : ConnectedSockets()) {
    if (before.count(number) > 0) continue;
    Fd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (copy.valid()) sockets_.push_back(std::move(copy));
  }
  if (aborted_) ShutDown();
}

void GroupAbort::DestroyBeside(c10::intrusive_ptr<c10d::Backend> backend) {
  Abandoned::Get().Add(std::thread([held = std::move(backend)]() mutable { held.reset(); }));
}

void GroupAbort::JoinAbandoned() { Abandoned::Get().Join(); }

void GroupAbort::Add(const c10::intrusive_ptr<c10d::Backend>& backend) {
  const std::lock_guard<std::mutex> lock(mutex_);
  backends_.emplace_back(backend);
  if (aborted_) backend->abort();
}

void GroupAbort::Abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = true;
  if (attempt_ != nullptr) attempt_->Abort();
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
