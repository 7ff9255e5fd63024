#include "tools/chaos/worker_marks.h"

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/progress_page.h"

namespace ddprun::launcher {
namespace {

// How late a mark may be noticed while its time matters.
constexpr absl::Duration kMarkLook = absl::Milliseconds(2);
constexpr absl::Duration kStartLook = absl::Milliseconds(10);
constexpr absl::Duration kStartTime = absl::Seconds(1);
constexpr size_t kEnvironmentMax = size_t{4} << 20;

// The value of DDPRUN_PROGRESS in the environment that a process was started with; "" = none.
std::string ProgressPathOf(pid_t pid) {
  const Fd file(open(absl::StrCat("/proc/", pid, "/environ").c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char bytes[16384];
  while (file.valid() && text.size() < kEnvironmentMax) {
    const ssize_t n = read(file.get(), bytes, sizeof(bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(bytes, static_cast<size_t>(n));
  }
  for (absl::string_view entry : absl::StrSplit(text, '\0')) {
    if (absl::ConsumePrefix(&entry, "DDPRUN_PROGRESS=")) return std::string(entry);
  }
  return "";
}

}  // namespace

WorkerMarks::WorkerMarks(EventLoop* loop, uint32_t worker_count, std::function<void()> on_opened)
    : loop_(loop), on_opened_(std::move(on_opened)), pages_(worker_count) {
  inotify_.Reset(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify_.valid()) return;
  watch_ = std::make_unique<FdWatch>(loop_, inotify_.get(), [this] {
    char events[4096];
    while (read(inotify_.get(), events, sizeof(events)) > 0) {
    }
    opened_ = true;
    on_opened_();
  });
}

WorkerMarks::~WorkerMarks() {
  watch_.reset();
  for (const Page& page : pages_) {
    if (page.memory != nullptr) munmap(const_cast<void*>(page.memory), kProgressPageBytes);
  }
}

void WorkerMarks::OnStarted(uint32_t local_rank, pid_t pid) {
  if (local_rank >= pages_.size()) return;
  Page& page = pages_[local_rank];
  if (page.memory != nullptr) return;
  page.pid = pid;
  page.started = loop_->Now();
  Map(&page);
}

// Fails quietly: a worker that has not called execve(2) yet is tried again, and one that marks
// nothing is an ordinary thing.
void WorkerMarks::Map(Page* page) {
  const std::string path = ProgressPathOf(page->pid);
  if (path.empty()) return;
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts {};
  if (!file.valid() || fstat(file.get(), &facts) != 0 ||
      facts.st_size < static_cast<off_t>(kProgressPageBytes)) {
    return;
  }
  // A file that isn't the agent's could shrink, and our loads would fault.
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return;
  void* memory = mmap(nullptr, kProgressPageBytes, PROT_READ, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return;
  page->memory = memory;
  // After our own open(2), which is not the worker's.
  if (inotify_.valid()) inotify_add_watch(inotify_.get(), path.c_str(), IN_OPEN | IN_ONESHOT);
}

std::vector<uint64_t> WorkerMarks::Words() {
  std::vector<uint64_t> words;
  words.reserve(pages_.size());
  for (Page& page : pages_) {
    if (page.memory == nullptr && page.pid != 0 && loop_->Now() < page.started + kStartTime) {
      Map(&page);
    }
    uint64_t word = 0;
    if (page.memory != nullptr) {
      word = __atomic_load_n(reinterpret_cast<const uint64_t*>(
                                 static_cast<const char*>(page.memory) + kProgressWordOffset),
                             __ATOMIC_ACQUIRE);
    }
    if (word != 0) opened_ = true;
    words.push_back(word);
  }
  return words;
}

Instant WorkerMarks::NextLook(Instant now) const {
  if (opened_) return now + kMarkLook;
  const bool young = std::any_of(pages_.begin(), pages_.end(), [now](const Page& page) {
    return page.pid != 0 && now < page.started + kStartTime;
  });
  return young ? now + kStartLook : Instant::Infinite();
}

}  // namespace ddprun::launcher
