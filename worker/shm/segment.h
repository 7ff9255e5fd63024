#ifndef DDPRUN_WORKER_SHM_SEGMENT_H_
#define DDPRUN_WORKER_SHM_SEGMENT_H_

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fd.h"
#include "base/instant.h"
#include "worker/shm/reduce.h"

namespace ddprun::worker::shm {

// Sleeps while `word` is `expected`, until a wake-up or `deadline` (CLOCK_MONOTONIC); may also
// return without reason, so the caller must check `word` again.
// The word may lie in memory that processes share. Threads: any. Source: futex(2).
void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected, Instant deadline);

// Wakes all threads that sleep on `word`, in all processes.
void FutexWakeAll(std::atomic<uint32_t>& word);

enum class Kind : uint32_t { kBarrier, kAllReduce, kBroadcast, kAllGather, kReduceScatter };

// The collective that a rank has called; all ranks must have called the same.
struct Announcement {
  Kind kind = Kind::kBarrier;
  DataType type = DataType::kUint8;
  Reduction reduction = Reduction::kSum;
  uint32_t root = 0;   // broadcast
  uint64_t count = 0;  // elements that a rank gives; reduce-scatter: that a rank gets

  friend bool operator==(const Announcement&, const Announcement&) = default;
};

// The memory that the ranks of one host share: for each rank a line that counts its arrivals, its
// process, and two slots for data with their announcements, used in turn.
//
// The memory is a memfd: it has no name that could be left behind, doesn't count against the size
// of /dev/shm, and is freed with the last process that maps it, however that ends. Peers open it as
// /proc/<pid>/fd/<number>, which needs the same user and pid namespace.
// Threads: fields that are atomic can be used from any; the lines order access to the rest.
//
// Peers' tensors aren't read in place: process_vm_readv(2) needs the rights of ptrace(2).
class Segment {
 public:
  static constexpr uint32_t kMaxRanks = 256;
  static constexpr size_t kSlotBytes = size_t{1} << 20;

  // The address by which a peer opens the segment. As text: "<pid> <fd> <nonce>".
  struct Address {
    pid_t pid = 0;
    int fd = -1;
    uint64_t nonce = 0;  // differs if another file has taken the number meanwhile
    std::string ToText() const;
    static absl::StatusOr<Address> FromText(const std::string& text);
  };

  // One cache line. `state`: bit 0 says that the group is broken, the other bits count this rank's
  // arrivals at barriers (modulo 2^31). Other ranks wait on `state` as a futex.
  struct alignas(64) Line {
    std::atomic<uint32_t> state;
    std::atomic<uint32_t> waiters;  // processes that may sleep on `state`
  };
  static constexpr uint32_t kBroken = 1;
  static constexpr uint32_t kArrival = 2;

  struct alignas(64) Member {
    std::atomic<pid_t> pid;
    std::atomic<uint32_t> world_rank;   // for people
    std::atomic<uint64_t> start_ticks;  // differs for a later process of this pid; 0 = unknown
    std::array<Announcement, 2> announcements;
  };

  // Makes a segment for `ranks` (1 to kMaxRanks). `nonce`: any number that other segments don't
  // have. `slot_bytes`: a multiple of 4096; the most that one rank deposits at a time.
  // Errors: RESOURCE_EXHAUSTED and others — the kernel refuses memory or descriptors.
  static absl::StatusOr<std::unique_ptr<Segment>> Create(uint32_t ranks, uint64_t nonce,
                                                         size_t slot_bytes = kSlotBytes);
  // Maps a peer's segment. Errors: PERMISSION_DENIED, NOT_FOUND — a process of another user or pid
  // namespace. FAILED_PRECONDITION — the file isn't a segment with this nonce and number of ranks.
  static absl::StatusOr<std::unique_ptr<Segment>> Open(const Address& address, uint32_t ranks);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Requires: this process has made the segment, and hasn't called CloseFile.
  Address address() const;
  // Registers this process as `rank`, which is called `world_rank` in error texts.
  void Join(uint32_t rank, uint32_t world_rank);
  // "rank 3 (pid 1234)"; for people.
  std::string NameOfRank(uint32_t rank) const;

  // Closes the descriptor, which no process needs when all peers have mapped the segment.
  void CloseFile() { file_.Reset(); }

  uint32_t ranks() const { return ranks_; }
  size_t slot_bytes() const { return slot_bytes_; }
  Line& line(uint32_t rank) const;
  Member& member(uint32_t rank) const;
  // `set`: 0 or 1.
  std::byte* slot(uint32_t rank, uint32_t set) const;

  // Ends the group for all its processes: wakes and fails every wait that isn't satisfied. Keeps
  // the first reason, cut at 500 bytes. Threads: any, also while others use the segment.
  void Break(const std::string& reason);
  bool broken() const;
  // Why the group is broken; "" = it isn't.
  std::string reason() const;

 private:
  struct Header;

  Segment(Fd file, std::byte* memory, size_t bytes)
      : file_(std::move(file)), memory_(memory), bytes_(bytes) {}
  static absl::StatusOr<std::unique_ptr<Segment>> Map(Fd file, size_t bytes);
  Header& header() const;

  Fd file_;
  std::byte* memory_;
  size_t bytes_;
  uint32_t ranks_ = 0;
  size_t slot_bytes_ = 0;
};

}  // namespace ddprun::worker::shm

#endif  // DDPRUN_WORKER_SHM_SEGMENT_H_
