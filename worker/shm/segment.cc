#include "worker/shm/segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/errno_status.h"
#include "base/status_macros.h"
#include "worker/shm/peer_watch.h"

namespace ddprun::worker::shm {
namespace {

constexpr int64_t kNanosecondsASecond = 1'000'000'000;

// The kernel takes only the word's address; FUTEX_WAIT doesn't write to it.
uint32_t* AddressOf(const std::atomic<uint32_t>& word) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  return reinterpret_cast<uint32_t*>(const_cast<std::atomic<uint32_t>*>(&word));
}

}  // namespace

void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected, Instant deadline) {
  timespec until{};
  until.tv_sec = deadline.nanoseconds() / kNanosecondsASecond;
  until.tv_nsec = deadline.nanoseconds() % kNanosecondsASecond;
  // The variant with a bit set takes an absolute time.
  syscall(SYS_futex, AddressOf(word), FUTEX_WAIT_BITSET, expected,
          deadline.is_infinite() ? nullptr : &until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void FutexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, AddressOf(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

namespace {

constexpr uint64_t kSegmentMagic = 0x31304d4853504444;  // "DDPSHM01"
constexpr size_t kPage = 4096;
constexpr size_t kReasonBytes = 500;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

struct Segment::Header {
  uint64_t magic;
  uint64_t nonce;
  uint64_t slot_bytes;
  uint32_t ranks;
  enum class Phase : uint32_t { kWhole, kWriting, kWritten };
  std::atomic<Phase> break_phase;
  std::array<char, kReasonBytes + 1> reason;
};

namespace {

// Header, lines, members, then the slots: all that changes hands often is in lines of its own.
size_t LinesOffset(size_t header_bytes) { return RoundUp(header_bytes, alignof(Segment::Line)); }
size_t MembersOffset(size_t header_bytes, uint32_t ranks) {
  return LinesOffset(header_bytes) + ranks * sizeof(Segment::Line);
}
size_t SlotsOffset(size_t header_bytes, uint32_t ranks) {
  return RoundUp(MembersOffset(header_bytes, ranks) + ranks * sizeof(Segment::Member), kPage);
}

}  // namespace

std::string Segment::Address::ToText() const { return absl::StrCat(pid, " ", fd, " ", nonce); }

absl::StatusOr<Segment::Address> Segment::Address::FromText(const std::string& text) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  Address address;
  if (words.size() == 3 && absl::SimpleAtoi(words[0], &address.pid) &&
      absl::SimpleAtoi(words[1], &address.fd) && absl::SimpleAtoi(words[2], &address.nonce)) {
    return address;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not the address of a shared-memory segment"));
}

absl::StatusOr<std::unique_ptr<Segment>> Segment::Map(Fd file, size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) {
    return ErrnoStatus(errno, absl::StrCat("mmap of ", bytes, " shared bytes"));
  }
  return std::unique_ptr<Segment>(
      new Segment(std::move(file), static_cast<std::byte*>(memory), bytes));
}

absl::StatusOr<std::unique_ptr<Segment>> Segment::Create(uint32_t ranks, uint64_t nonce,
                                                         size_t slot_bytes) {
  if (ranks == 0 || ranks > kMaxRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory serves 1 to ", kMaxRanks, " workers of a host, not ", ranks));
  }
  const size_t bytes = SlotsOffset(sizeof(Header), ranks) + size_t{2} * ranks * slot_bytes;
  Fd file(memfd_create("ddprun-workers", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return ErrnoStatus(errno, "memfd_create");
  if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("ftruncate of shared memory to ", bytes, " bytes"));
  }
  // So that no process can shrink the file while peers use it.
  fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<Segment> segment, Map(std::move(file), bytes));
  Header& header = segment->header();
  header.nonce = nonce;
  header.slot_bytes = slot_bytes;
  header.ranks = ranks;
  header.magic = kSegmentMagic;
  segment->ranks_ = ranks;
  segment->slot_bytes_ = slot_bytes;
  return segment;
}

absl::StatusOr<std::unique_ptr<Segment>> Segment::Open(const Address& address, uint32_t ranks) {
  const std::string path = absl::StrCat("/proc/", address.pid, "/fd/", address.fd);
  Fd file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.valid()) return ErrnoStatus(errno, absl::StrCat("open '", path, "' of a peer"));
  struct stat facts {};
  if (fstat(file.get(), &facts) != 0) return ErrnoStatus(errno, absl::StrCat("fstat '", path, "'"));
  const auto bytes = static_cast<size_t>(std::max<off_t>(facts.st_size, 0));
  const absl::Status foreign = absl::FailedPreconditionError(
      absl::StrCat("'", path,
                   "' is not the memory that rank 0 of this host shares; the workers of "
                   "one host need the same pid namespace"));
  if (!S_ISREG(facts.st_mode) || bytes < SlotsOffset(sizeof(Header), ranks)) return foreign;
  DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<Segment> segment, Map(std::move(file), bytes));
  const Header& header = segment->header();
  if (header.magic != kSegmentMagic || header.nonce != address.nonce || header.ranks != ranks ||
      header.slot_bytes != (bytes - SlotsOffset(sizeof(Header), ranks)) / (size_t{2} * ranks)) {
    return foreign;
  }
  segment->ranks_ = ranks;
  segment->slot_bytes_ = header.slot_bytes;
  segment->CloseFile();
  return segment;
}

Segment::~Segment() { munmap(memory_, bytes_); }

Segment::Address Segment::address() const {
  return {.pid = getpid(), .fd = file_.get(), .nonce = header().nonce};
}

void Segment::Join(uint32_t rank, uint32_t world_rank) {
  Member& self = member(rank);
  self.world_rank = world_rank;
  self.start_ticks = StartTicksOf(getpid());
  self.pid = getpid();
}

std::string Segment::NameOfRank(uint32_t rank) const {
  const Member& peer = member(rank);
  return absl::StrCat("rank ", peer.world_rank.load(), " (pid ", peer.pid.load(), ")");
}

Segment::Header& Segment::header() const { return *reinterpret_cast<Header*>(memory_); }

Segment::Line& Segment::line(uint32_t rank) const {
  return reinterpret_cast<Line*>(memory_ + LinesOffset(sizeof(Header)))[rank];
}

Segment::Member& Segment::member(uint32_t rank) const {
  return reinterpret_cast<Member*>(memory_ + MembersOffset(sizeof(Header), ranks_))[rank];
}

std::byte* Segment::slot(uint32_t rank, uint32_t set) const {
  return memory_ + SlotsOffset(sizeof(Header), ranks_) + (size_t{2} * rank + set) * slot_bytes_;
}

void Segment::Break(const std::string& reason) {
  Header& head = header();
  Header::Phase whole = Header::Phase::kWhole;
  if (head.break_phase.compare_exchange_strong(whole, Header::Phase::kWriting)) {
    const size_t length = std::min(reason.size(), kReasonBytes);
    std::memcpy(head.reason.data(), reason.data(), length);
    head.reason[length] = '\0';
    head.break_phase.store(Header::Phase::kWritten, std::memory_order_release);
  }
  for (uint32_t rank = 0; rank < ranks_; ++rank) {
    line(rank).state.fetch_or(kBroken);
    FutexWakeAll(line(rank).state);
  }
}

bool Segment::broken() const {
  return header().break_phase.load(std::memory_order_acquire) != Header::Phase::kWhole;
}

std::string Segment::reason() const {
  switch (header().break_phase.load(std::memory_order_acquire)) {
    case Header::Phase::kWhole:
      return "";
    case Header::Phase::kWriting:
      return "the group of this host's workers broke";  // the writer is still writing, or died
    case Header::Phase::kWritten:
      break;
  }
  return header().reason.data();
}

}  // namespace ddprun::worker::shm
