#include "worker/env/progress_page.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/progress_page.h"

namespace ddprun::worker {
namespace {

// The pause between two looks whether to stop or to go on. A futex isn't used, because it would
// cost the agent a system call for each page, and Python has none.
constexpr absl::Duration kHeldPause = absl::Milliseconds(1);

}  // namespace

absl::StatusOr<ProgressPage> ProgressPage::Open(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.valid()) return ErrnoStatus(errno, absl::StrCat("open progress page '", path, "'"));
  void* page = mmap(nullptr, kProgressPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (page == MAP_FAILED) return ErrnoStatus(errno, absl::StrCat("map progress page '", path, "'"));
  ProgressPage opened(page);
  uint64_t version = 0;
  std::memcpy(&version, static_cast<const char*>(page) + kProgressVersionOffset, sizeof(version));
  if (std::memcmp(page, kProgressMagic, sizeof(kProgressMagic)) != 0 ||
      version != kProgressVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", path, "' of DDPRUN_PROGRESS is no progress page of version ",
                     kProgressVersion, ": build the program with the ddprun that starts it"));
  }
  return opened;
}

ProgressPage::~ProgressPage() {
  if (page_ != nullptr) munmap(page_, kProgressPageBytes);
}

ProgressPage::ProgressPage(ProgressPage&& other) noexcept
    : page_(std::exchange(other.page_, nullptr)) {}

ProgressPage& ProgressPage::operator=(ProgressPage&& other) noexcept {
  std::swap(page_, other.page_);
  return *this;
}

std::atomic<uint64_t>* ProgressPage::Field(size_t offset) const {
  static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t) &&
                std::atomic<uint64_t>::is_always_lock_free);
  return reinterpret_cast<std::atomic<uint64_t>*>(static_cast<char*>(page_) + offset);
}

void ProgressPage::Mark(ProgressPhase phase, uint64_t step) {
  if (!is_open()) return;
  StoreTime();
  Field(kProgressWordOffset)->store(PackProgress(phase, step), std::memory_order_release);
}

bool ProgressPage::StopAt(uint64_t step) {
  if (!is_open()) return false;
  StoreTime();
  // seq_cst orders this mark before the look at what is prepared. The agent prepares before it
  // looks at the mark, so at least one of both sees the other.
  Field(kProgressWordOffset)
      ->store(PackProgress(ProgressPhase::kTrain, step), std::memory_order_seq_cst);
  Field(kProgressAnswerOffset)->store(1, std::memory_order_seq_cst);
  for (;;) {
    const uint64_t prepared = Field(kProgressPrepareOffset)->load(std::memory_order_seq_cst);
    if (prepared == 0 || step < prepared) return false;
    Field(kProgressAnswerOffset)->store(step << 1 | 1, std::memory_order_seq_cst);
    // A commit of a later step means that this step was given up after the look. Look again.
    const uint64_t committed = Field(kProgressCommitOffset)->load(std::memory_order_seq_cst);
    if (committed != 0 && committed <= step) return true;
    absl::SleepFor(kHeldPause);
  }
}

// Stores the time of the mark that follows.
void ProgressPage::StoreTime() {
  Field(kProgressTimeOffset)
      ->store(static_cast<uint64_t>(MonotonicNow().nanoseconds()), std::memory_order_relaxed);
}

void ProgressPage::AddDataWait(absl::Duration waited) {
  if (!is_open() || waited <= absl::ZeroDuration()) return;
  Field(kProgressDataWaitOffset)
      ->fetch_add(static_cast<uint64_t>(absl::ToInt64Nanoseconds(waited)),
                  std::memory_order_relaxed);
}

void ProgressPage::CountCollectives(uint64_t begun_and_one) {
  if (!is_open()) return;
  Field(kProgressCollectivesOffset)->store(begun_and_one, std::memory_order_relaxed);
}

void ProgressPage::Report(std::optional<double> loss, std::optional<double> samples_per_second) {
  if (!is_open()) return;
  const auto store = [this](size_t offset, uint64_t bit, double figure) {
    Field(offset)->store(std::bit_cast<uint64_t>(figure), std::memory_order_relaxed);
    Field(kTrainingToldOffset)->fetch_or(bit, std::memory_order_release);
  };
  if (loss.has_value()) store(kTrainingLossOffset, kTrainingToldLoss, *loss);
  if (samples_per_second.has_value()) {
    store(kTrainingRateOffset, kTrainingToldRate, *samples_per_second);
  }
}

uint64_t ProgressPage::word() const {
  return is_open() ? Field(kProgressWordOffset)->load(std::memory_order_acquire) : 0;
}

}  // namespace ddprun::worker
