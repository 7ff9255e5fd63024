#include "worker/torch/collectives/group_abort.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <list>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "worker/torch/errors/exception_status.h"

namespace ddprun::worker {
namespace {

constexpr const char* kEndedMeanwhile = "the generation ended while its workers connected";

bool IsTcp(int fd) {
  int domain = 0;
  int type = 0;
  socklen_t size = sizeof(int);
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) return false;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0) return false;
  return (domain == AF_INET || domain == AF_INET6) && type == SOCK_STREAM;
}

bool IsConnected(int fd) {
  sockaddr_storage peer = {};
  socklen_t length = sizeof(peer);
  return getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0;
}

// Descriptors of this process' TCP sockets by the sockets' numbers.
std::map<ino_t, int> TcpSockets() {
  std::map<ino_t, int> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), &closedir);
  if (folder == nullptr) return found;
  while (const dirent* entry = readdir(folder.get())) {
    int fd = -1;
    struct stat status = {};
    if (!absl::SimpleAtoi(entry->d_name, &fd) || fstat(fd, &status) != 0) continue;
    if (S_ISSOCK(status.st_mode) && IsTcp(fd)) found.emplace(status.st_ino, fd);
  }
  return found;
}

// Threads that were abandoned: their work isn't waited for any more.
class Abandoned {
 public:
  static Abandoned& Get() {
    static auto* one = new Abandoned();
    return *one;
  }
  // Adds a connect, which ends by Gloo's timeouts.
  void Add(std::thread thread) {
    const std::lock_guard<std::mutex> lock(mutex_);
    connects_.push_back(std::move(thread));
  }
  // Runs work that may never end.
  void Run(std::function<void()> work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Task& task = tasks_.emplace_back();
    task.thread = std::thread([this, &task, work = std::move(work)]() mutable {
      work();
      work = nullptr;  // with what it held
      const std::lock_guard<std::mutex> done(mutex_);
      task.is_done = true;
      changed_.notify_all();
    });
  }
  // Returns how many were left.
  size_t Join(absl::Duration patience) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, absl::ToChronoMilliseconds(patience), [this] {
      return std::all_of(tasks_.begin(), tasks_.end(),
                         [](const Task& task) { return task.is_done; });
    });
    std::list<Task> stuck;
    for (auto next = tasks_.begin(); next != tasks_.end();) {
      const auto task = next++;
      if (!task->is_done) stuck.splice(stuck.end(), tasks_, task);
    }
    std::vector<std::thread> ended = std::exchange(connects_, {});
    for (Task& task : tasks_) ended.push_back(std::move(task.thread));
    tasks_.clear();
    const size_t left = stuck.size();
    left_.splice(left_.end(), stuck);
    lock.unlock();
    for (std::thread& thread : ended) thread.join();
    return left;
  }

 private:
  struct Task {
    std::thread thread;
    bool is_done = false;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread> connects_;
  std::list<Task> tasks_;
  std::list<Task> left_;  // never joined
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
  // Waits for the connect. False: it was aborted before it was done.
  bool Await() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [this] { return done || aborted; });
    return done;
  }
};

GroupAbort::~GroupAbort() { ShutDown(); }

// NCCL's connect ends with its sockets' errors; the process doesn't wait for longer than for a
// group.
void GroupAbort::Abandon(std::thread connecting) {
  const auto held = std::make_shared<std::thread>(std::move(connecting));
  Abandoned::Get().Run([held] { held->join(); });
}

void GroupAbort::Connect(std::function<void()> connect, Sockets sockets) {
  const std::map<ino_t, int> before = TcpSockets();
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
    if (sockets == Sockets::kNccl) {
      for (const auto& [number, fd] : TcpSockets()) {
        if (before.count(number) == 0) shutdown(fd, SHUT_RDWR);
      }
      Abandon(std::move(thread));
    } else {
      Abandoned::Get().Add(std::move(thread));
    }
    throw PeerFailure(kEndedMeanwhile);
  }
  thread.join();
  if (attempt->error != nullptr) {
    // Whatever the error's text is, peers that were aborted as well are the likely reason.
    if (aborted_) throw PeerFailure(kEndedMeanwhile);
    std::rethrow_exception(attempt->error);
  }
  if (sockets == Sockets::kNccl) return;
  for (const auto& [number, fd] : TcpSockets()) {
    if (before.count(number) > 0 || !IsConnected(fd)) continue;
    Fd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (copy.valid()) sockets_.push_back(std::move(copy));
  }
  if (aborted_) ShutDown();
}

void GroupAbort::DestroyBeside(c10::intrusive_ptr<c10d::Backend> backend, at::Tensor memory) {
  // A std::function must be copyable, so the group is behind a shared pointer.
  const auto held = std::make_shared<c10::intrusive_ptr<c10d::Backend>>(std::move(backend));
  Abandoned::Get().Run([held, memory = std::move(memory)] { held->reset(); });
}

void GroupAbort::JoinAbandoned(absl::Duration patience) {
  const size_t left = Abandoned::Get().Join(patience);
  if (left == 0) return;
  Log(LogLevel::kInfo, absl::StrCat(left,
                                    " of the groups that peers have broken still wait for "
                                    "Gloo, and are left to the end of the process"));
}

void GroupAbort::Add(const c10::intrusive_ptr<c10d::Backend>& backend) {
  const std::lock_guard<std::mutex> lock(mutex_);
  backends_.emplace_back(backend);
  if (aborted_) AbortOne(backend);
}

void GroupAbort::AbortOne(const c10::intrusive_ptr<c10d::Backend>& backend) {
  if (backend->getBackendName() != "nccl") return backend->abort();
  const auto held = std::make_shared<c10::intrusive_ptr<c10d::Backend>>(backend);
  Abandoned::Get().Run([held] {
    const absl::Status aborted = CatchExceptions([&] {
      (*held)->abort();
      return absl::OkStatus();
    });
    if (!aborted.ok()) Log(LogLevel::kWarning, absl::StrCat("NCCL's abort: ", aborted.message()));
    held->reset();
  });
}

void GroupAbort::Abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = true;
  if (attempt_ != nullptr) attempt_->Abort();
  ShutDown();
  for (const auto& weak : backends_) {
    const c10::intrusive_ptr<c10d::Backend> backend = weak.lock();
    if (backend) AbortOne(backend);
  }
}

void GroupAbort::ShutDown() {
  for (const Fd& socket : sockets_) shutdown(socket.get(), SHUT_RDWR);
}

}  // namespace ddprun::worker
