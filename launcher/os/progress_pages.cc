#include "launcher/os/progress_pages.h"

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

uint64_t* Field(void* page, size_t offset) {
  return reinterpret_cast<uint64_t*>(static_cast<char*>(page) + offset);
}

void Put(void* page, size_t offset, uint64_t value) {
  std::memcpy(static_cast<char*>(page) + offset, &value, sizeof(value));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProgressPages>> ProgressPages::Create(
    EventLoop* loop, uint64_t generation, uint32_t worker_count, std::function<void()> on_opened,
    ProgressPages* last, const std::set<uint32_t>& kept) {
  std::unique_ptr<ProgressPages> pages(new ProgressPages());
  for (uint32_t i = 0; i < worker_count; ++i) {
    if (last != nullptr && i < last->count() && kept.contains(i)) {
      pages->Take(&last->pages_[i], generation);
    } else {
      DDPRUN_RETURN_IF_ERROR(pages->Add(generation));
    }
  }
  pages->Watch(loop, std::move(on_opened), last);
  return pages;
}

absl::Status ProgressPages::Add(uint64_t generation) {
  Page& page = pages_.emplace_back();
  page.file.Reset(memfd_create("ddprun-progress", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!page.file.valid()) return ErrnoStatus(errno, "memfd_create for a progress page");
  if (ftruncate(page.file.get(), kProgressPageBytes) != 0 ||
      fcntl(page.file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "size of a progress page");
  }
  void* memory =
      mmap(nullptr, kProgressPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, page.file.get(), 0);
  if (memory == MAP_FAILED) return ErrnoStatus(errno, "mmap of a progress page");
  page.memory = memory;
  std::memcpy(memory, kProgressMagic, sizeof(kProgressMagic));
  Put(memory, kProgressVersionOffset, kProgressVersion);
  Put(memory, kProgressGenerationOffset, generation);
  return absl::OkStatus();
}

// Takes over the page of a kept worker. Two facts of the worker stay: that it checks for stop
// steps, and how long it has waited for data.
void ProgressPages::Take(Page* page, uint64_t generation) {
  Page& taken = pages_.emplace_back(std::move(*page));
  page->memory = nullptr;
  const auto store = [&](size_t offset, uint64_t value) {
    __atomic_store_n(Field(taken.memory, offset), value, __ATOMIC_SEQ_CST);
  };
  const auto load = [&](size_t offset) {
    return __atomic_load_n(Field(taken.memory, offset), __ATOMIC_SEQ_CST);
  };
  taken.data_wait_before = load(kProgressDataWaitOffset);
  store(kProgressGenerationOffset, generation);
  store(kProgressPrepareOffset, 0);
  store(kProgressCommitOffset, 0);
  store(kProgressAnswerOffset, load(kProgressAnswerOffset) & 1);
  store(kProgressTimeOffset, 0);
  store(kProgressWordOffset, 0);
}

// Waits for the first opening of a page by inotify: before that nothing is marked, so no page needs
// to be read.
void ProgressPages::Watch(EventLoop* loop, std::function<void()> on_opened, ProgressPages* last) {
  if (last != nullptr && last->inotify_.valid()) {
    // The descriptor is reused: to close an inotify descriptor the kernel waits for its readers,
    // which took 8 to 15 ms, and surviving workers would wait that much longer for the one to be
    // started.
    last->watch_.reset();
    inotify_ = std::move(last->inotify_);
    TakeOpened();
  } else {
    inotify_.Reset(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  }
  if (!inotify_.valid()) return;
  for (const Page& page : pages_) {
    const std::string own = absl::StrCat("/proc/self/fd/", page.file.get());
    if (inotify_add_watch(inotify_.get(), own.c_str(), IN_OPEN | IN_ONESHOT) < 0) return;
  }
  watch_ = std::make_unique<FdWatch>(loop, inotify_.get(), [this, call = std::move(on_opened)] {
    if (TakeOpened()) call();
  });
}

// Also returns true for pages that are gone.
bool ProgressPages::TakeOpened() const {
  alignas(inotify_event) char events[4096];
  bool opened = false;
  for (;;) {
    const ssize_t n = read(inotify_.get(), events, sizeof(events));
    if (n <= 0) return opened;
    for (const char* next = events; next < events + n;) {
      const auto* event = reinterpret_cast<const inotify_event*>(next);
      opened = opened || (event->mask & IN_OPEN) != 0;
      next += sizeof(inotify_event) + event->len;
    }
  }
}

ProgressPages::~ProgressPages() {
  watch_.reset();
  for (const Page& page : pages_) {
    if (page.memory != nullptr) munmap(page.memory, kProgressPageBytes);
  }
}

std::string ProgressPages::path(uint32_t local_rank) const {
  return absl::StrCat("/proc/", getpid(), "/fd/", pages_.at(local_rank).file.get());
}

std::vector<uint64_t> ProgressPages::Words() const {
  std::vector<uint64_t> words;
  words.reserve(pages_.size());
  for (const Page& page : pages_) {
    const auto* word = reinterpret_cast<const uint64_t*>(static_cast<const char*>(page.memory) +
                                                         kProgressWordOffset);
    words.push_back(__atomic_load_n(word, __ATOMIC_SEQ_CST));
  }
  return words;
}

std::vector<Instant> ProgressPages::MarkTimes() const {
  std::vector<Instant> times;
  times.reserve(pages_.size());
  for (const Page& page : pages_) {
    const auto* at = reinterpret_cast<const int64_t*>(static_cast<const char*>(page.memory) +
                                                      kProgressTimeOffset);
    times.push_back(Instant::FromNanoseconds(__atomic_load_n(at, __ATOMIC_ACQUIRE)));
  }
  return times;
}

absl::Duration ProgressPages::DataWait() const {
  uint64_t most = 0;
  for (const Page& page : pages_) {
    const auto* waited = reinterpret_cast<const uint64_t*>(static_cast<const char*>(page.memory) +
                                                           kProgressDataWaitOffset);
    const uint64_t all = __atomic_load_n(waited, __ATOMIC_RELAXED);
    if (all > page.data_wait_before) most = std::max(most, all - page.data_wait_before);
  }
  // A worker may have stored anything.
  return absl::Nanoseconds(static_cast<int64_t>(std::min<uint64_t>(most, INT64_MAX)));
}

// A worker may have stored anything: a loss is what it says, a rate that can't be is none.
TrainingReport ProgressPages::Training() const {
  TrainingReport report;
  double losses = 0;
  for (const Page& page : pages_) {
    const auto load = [memory = page.memory](size_t offset) {
      return __atomic_load_n(Field(memory, offset), __ATOMIC_ACQUIRE);
    };
    const uint64_t told = load(kTrainingToldOffset);
    if ((told & kTrainingToldLoss) != 0) {
      losses += std::bit_cast<double>(load(kTrainingLossOffset));
      ++report.loss_workers;
    }
    const auto rate = std::bit_cast<double>(load(kTrainingRateOffset));
    if ((told & kTrainingToldRate) != 0 && std::isfinite(rate) && rate >= 0) {
      report.samples_per_second = report.samples_per_second.value_or(0) + rate;
    }
  }
  if (report.loss_workers > 0) report.loss = losses / report.loss_workers;
  return report;
}

std::vector<Witness> ProgressPages::Witnesses(Instant now, absl::Duration fresh) const {
  std::vector<Witness> witnesses(pages_.size());
  for (size_t i = 0; i < pages_.size(); ++i) {
    const auto load = [memory = pages_[i].memory](size_t offset) {
      return __atomic_load_n(Field(memory, offset), __ATOMIC_ACQUIRE);
    };
    const auto looked = Instant::FromNanoseconds(static_cast<int64_t>(load(kProgressLookedOffset)));
    constexpr uint64_t kTimeoutMost = uint64_t{1} << 40;  // 34 years
    witnesses[i].timeout = absl::Milliseconds(std::min(load(kProgressTimeoutOffset), kTimeoutMost));
    const bool final = (load(kProgressFlagsOffset) & kProgressFinal) != 0;
    if (looked > now) continue;
    Witness& witness = witnesses[i];
    const auto text = [memory = static_cast<const char*>(pages_[i].memory)](size_t offset,
                                                                            size_t bytes) {
      return absl::string_view(memory + offset, strnlen(memory + offset, bytes));
    };
    // A copy: the worker may write meanwhile.
    ReadGroups(std::string(text(kProgressGroupsOffset, kProgressGroupsBytes)), &witness);
    if (now - looked > fresh && !final) {
      witness.inside_group.clear();
      witness.inside_call.clear();
      continue;
    }
    witness.final = final;
    witness.collectives = load(kProgressCollectivesOffset);
    witness.looks = load(kProgressLooksOffset);
    witness.places = load(kProgressPlacesOffset);
    witness.jumps = load(kProgressJumpsOffset);
    witness.place = Shown(text(kProgressPlaceOffset, kProgressPlaceBytes), kProgressPlaceBytes);
    witness.user_place =
        Shown(text(kProgressUserPlaceOffset, kProgressUserPlaceBytes), kProgressUserPlaceBytes);
    witness.at_locks = (load(kProgressFlagsOffset) & kProgressAtLocks) != 0;
    witness.watcher = static_cast<int64_t>(load(kProgressWatcherOffset));
  }
  return witnesses;
}

std::vector<uint64_t> ProgressPages::Collectives() const {
  std::vector<uint64_t> collectives;
  for (const Page& page : pages_) {
    collectives.push_back(
        __atomic_load_n(Field(page.memory, kProgressCollectivesOffset), __ATOMIC_ACQUIRE));
  }
  return collectives;
}

// Our store and the looks after it, the worker's mark and its look at what is prepared: all are
// sequentially consistent, so one of the two sees the other.
void ProgressPages::PrepareStop(uint64_t step) {
  for (const Page& page : pages_) {
    __atomic_store_n(Field(page.memory, kProgressPrepareOffset), step, __ATOMIC_SEQ_CST);
  }
}

void ProgressPages::CommitStop(uint64_t step) {
  for (const Page& page : pages_) {
    __atomic_store_n(Field(page.memory, kProgressCommitOffset), step, __ATOMIC_SEQ_CST);
  }
}

StopAnswer ProgressPages::Answer(uint32_t local_rank) const {
  void* page = pages_.at(local_rank).memory;
  // The answer is written after the mark: read in the other order, they belong together.
  const uint64_t answer = __atomic_load_n(Field(page, kProgressAnswerOffset), __ATOMIC_SEQ_CST);
  const uint64_t word = __atomic_load_n(Field(page, kProgressWordOffset), __ATOMIC_SEQ_CST);
  return {.heeds = (answer & 1) != 0, .step = ProgressStepOf(word), .stands_at = answer >> 1};
}

}  // namespace ddprun::launcher
