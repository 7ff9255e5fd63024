#include "worker/shm/communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "worker/shm/reduce.h"
#include "worker/shm/segment.h"

// Collectives over slots, with one barrier a chunk.
//
// Goal: move data through shared memory with as few waits as possible. A rank copies a chunk into
// its slot (Deposit), arrives, waits until all have arrived, and reads the others' slots (Collect).
// With one slot a rank, a second barrier would have to say that all have read before a slot is
// written again. With two slots, used in turn, the next chunk's barrier says so:
//
//   rank 0                                    rank 1
//   chunk 0 -> slot 0, arrives: 2
//                                             chunk 0 -> slot 0, arrives: 2
//   all are at 2: reads slots 0
//   chunk 1 -> slot 1, arrives: 4             (still reads slots 0)
//   waits for rank 1 at 4
//                                             chunk 1 -> slot 1, arrives: 4
//   all are at 4, so rank 1 has read slots 0
//   chunk 2 -> slot 0, …
//
// Invariant: a rank that waits for `target_` finds each peer at most one arrival ahead, because the
// peer's next barrier needs this rank as well. So counts may wrap around at 2^31 arrivals: the sign
// of the difference is right (Reached). Bit 0 of a count says that the group is broken; an arrival
// is therefore 2.
//
// An all-reduce can be done in two ways. R ranks, a chunk of N bytes:
//
//   each rank reduces the chunk itself          1 barrier    each reads R * N bytes
//   each reduces its part; then all copy parts  2 barriers   each reads about N + N bytes
//
// The second way pays for many ranks and large chunks. Two ranks read as much in either way, so
// they never take it.

namespace ddprun::worker::shm {
namespace {

// Up to this size of a chunk a second barrier takes longer than the reading that it saves.
constexpr size_t kReduceAloneBytes = size_t{32} << 10;
// Parts of a chunk begin at multiples of this many elements, at least a cache line (64 bytes) for
// every type, so that no two ranks write to one line.
constexpr uint64_t kPartElements = 64;
// The clock is read once in so many looks at the peers, because a look is much cheaper.
constexpr int kLooksAClock = 64;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Where rank `part`'s share of `count` elements begins.
uint64_t PartStart(uint64_t count, uint64_t part, uint64_t ranks) {
  const uint64_t lines = (count + kPartElements - 1) / kPartElements;
  return std::min(count, lines * part / ranks * kPartElements);
}

}  // namespace

std::string Describe(const Announcement& what) {
  const std::string data = absl::StrCat(what.count, " ", NameOf(what.type));
  switch (what.kind) {
    case Kind::kBarrier:
      return "barrier";
    case Kind::kAllReduce:
      return absl::StrCat("all-reduce of ", data, " (", NameOf(what.reduction), ")");
    case Kind::kBroadcast:
      return absl::StrCat("broadcast of ", data, " from rank ", what.root);
    case Kind::kAllGather:
      return absl::StrCat("all-gather of ", data, " a rank");
    case Kind::kReduceScatter:
      return absl::StrCat("reduce-scatter of ", data, " a rank (", NameOf(what.reduction), ")");
  }
  return "?";
}

Communicator::Communicator(std::shared_ptr<Segment> segment, uint32_t rank)
    : segment_(std::move(segment)), rank_(rank) {}

bool Communicator::Reached(uint32_t peer) const {
  const uint32_t state = segment_->line(peer).state.load(std::memory_order_acquire);
  return static_cast<int32_t>((state & ~Segment::kBroken) - target_) >= 0;
}

// A peer that has seen this arrival sees all that this rank wrote before it.
//
// No wake-up is lost: this rank adds to `state`, then reads `waiters`; a sleeper adds to `waiters`,
// then reads `state`. In any order of these four (seq_cst) either this rank sees the sleeper and
// wakes it, or the sleeper sees the new state, and futex(2) doesn't sleep on an old one.
void Communicator::Arrive() {
  target_ += Segment::kArrival;
  Segment::Line& line = segment_->line(rank_);
  line.state.fetch_add(Segment::kArrival, std::memory_order_seq_cst);
  if (line.waiters.load(std::memory_order_seq_cst) > 0) FutexWakeAll(line.state);
}

bool Communicator::SpinUntilAllArrive(absl::Duration patience) const {
  Instant until;
  uint32_t peer = 0;
  for (int looks = 0;; ++looks) {
    while (peer < ranks() && Reached(peer)) ++peer;
    if (peer == ranks()) return true;
    if (looks % kLooksAClock == 0) {
      if (looks == 0) until = MonotonicNow() + patience;
      if (patience <= absl::ZeroDuration() || MonotonicNow() >= until) return false;
      if (segment_->broken()) return false;
    }
    Pause();
  }
}

absl::Status Communicator::Failure() const { return absl::UnavailableError(segment_->reason()); }

// An arrival counts even in a broken group: after its last call a peer may leave, which breaks the
// group, while this rank still has to read what the peer deposited.
absl::Status Communicator::SleepUntilArrived(uint32_t peer, const Call& call, Instant deadline) {
  Segment::Line& line = segment_->line(peer);
  line.waiters.fetch_add(1, std::memory_order_seq_cst);
  absl::Status status;
  while (true) {
    const uint32_t state = line.state.load(std::memory_order_seq_cst);
    if (Reached(peer)) break;
    if ((state & Segment::kBroken) != 0) {
      status = Failure();
      break;
    }
    if (MonotonicNow() >= deadline) {
      status = absl::DeadlineExceededError(absl::StrCat(
          segment_->NameOfRank(peer), " didn't come to ", Describe(call.what), ", collective ",
          sequence_, ", in time; it hangs, is slower than the timeout, or calls another one"));
      segment_->Break(std::string(status.message()));
      break;
    }
    FutexWait(line.state, state, deadline);
  }
  line.waiters.fetch_sub(1, std::memory_order_seq_cst);
  return status;
}

// All ranks read the same announcements, so all report the same pair of ranks.
absl::Status Communicator::CompareAnnouncements(const Call& call) {
  const Announcement first = segment_->member(0).announcements[call.set];
  for (uint32_t peer = 1; peer < ranks(); ++peer) {
    const Announcement other = segment_->member(peer).announcements[call.set];
    if (other == first) continue;
    const std::string reason = absl::StrCat(
        "the ranks called different collectives: ", segment_->NameOfRank(0), " called ",
        Describe(first), ", ", segment_->NameOfRank(peer), " ", Describe(other), " (collective ",
        sequence_, "); every rank must call the same ones, in the same order");
    segment_->Break(reason);
    return absl::InvalidArgumentError(reason);
  }
  return absl::OkStatus();
}

bool Communicator::SharesReduction(const Call& call) const {
  return call.what.kind == Kind::kAllReduce && ranks() > 2 &&
         call.chunk * SizeOf(call.what.type) > kReduceAloneBytes;
}

uint64_t Communicator::ChunkOf(const Call& call) const {
  const size_t pieces = call.what.kind == Kind::kReduceScatter ? ranks() : 1;
  const uint64_t room =
      segment_->slot_bytes() / pieces / SizeOf(call.what.type) / kPartElements * kPartElements;
  return std::min(room, call.what.count - call.done);
}

void Communicator::Begin(Call& call) {
  ++sequence_;
  segment_->member(rank_).announcements[next_set_] = call.what;
  Deposit(call);
}

// Puts this rank's next chunk into its slot of the next set. The slot is free: all ranks have
// arrived at a barrier of the other set since they read it.
void Communicator::Deposit(Call& call) {
  call.set = std::exchange(next_set_, next_set_ ^ 1);
  call.chunk = ChunkOf(call);
  call.phase = Call::Phase::kDeposited;
  const size_t element = SizeOf(call.what.type);
  const size_t offset = call.done * element;
  const size_t bytes = call.chunk * element;
  std::byte* slot = segment_->slot(rank_, call.set);
  const bool gives = call.what.kind != Kind::kBroadcast || call.what.root == rank_;
  if (bytes > 0 && gives) {
    for (const std::byte* input : call.inputs) {
      std::memcpy(slot, input + offset, bytes);
      slot += bytes;
    }
  }
  Arrive();
}

// Reduces elements [first, first + count) of the chunk over all ranks. `own_is_input`: this rank's
// elements are read from its tensor instead of its slot.
void Communicator::ReduceInto(const Call& call, std::byte* out, size_t first, size_t count,
                              bool own_is_input) {
  const size_t element = SizeOf(call.what.type);
  std::vector<const std::byte*> sources(ranks());
  for (uint32_t peer = 0; peer < ranks(); ++peer) {
    sources[peer] = segment_->slot(peer, call.set) + first * element;
  }
  if (own_is_input) sources[rank_] = call.inputs[0] + (call.done + first) * element;
  Reduce(call.what.type, call.what.reduction, sources, out, count);
}

// Reads the peers' slots, after the barrier.
void Communicator::Collect(Call& call) {
  const size_t element = SizeOf(call.what.type);
  const size_t offset = call.done * element;
  const size_t bytes = call.chunk * element;
  if (bytes == 0) return;
  switch (call.what.kind) {
    case Kind::kBarrier:
      break;
    case Kind::kAllReduce:
      ReduceInto(call, call.outputs[0] + offset, 0, call.chunk, /*own_is_input=*/true);
      break;
    case Kind::kBroadcast:
      if (call.what.root == rank_) break;
      std::memcpy(call.outputs[0] + offset, segment_->slot(call.what.root, call.set), bytes);
      break;
    case Kind::kAllGather:
      for (uint32_t peer = 0; peer < ranks(); ++peer) {
        std::memcpy(call.outputs[peer] + offset, segment_->slot(peer, call.set), bytes);
      }
      break;
    case Kind::kReduceScatter:
      ReduceInto(call, call.outputs[0] + offset, rank_ * call.chunk, call.chunk,
                 /*own_is_input=*/false);
      break;
  }
}

// Writes the sum over this rank's input in its slot: no other rank reads that part before the
// second barrier.
void Communicator::ReduceMyPart(Call& call) {
  const uint64_t first = PartStart(call.chunk, rank_, ranks());
  const uint64_t end = PartStart(call.chunk, uint64_t{rank_} + 1, ranks());
  std::byte* out = segment_->slot(rank_, call.set) + first * SizeOf(call.what.type);
  ReduceInto(call, out, first, end - first, /*own_is_input=*/true);
  call.phase = Call::Phase::kReduced;
  Arrive();
}

void Communicator::CollectParts(Call& call) {
  const size_t element = SizeOf(call.what.type);
  std::byte* out = call.outputs[0] + call.done * element;
  for (uint32_t peer = 0; peer < ranks(); ++peer) {
    const uint64_t first = PartStart(call.chunk, peer, ranks());
    const uint64_t end = PartStart(call.chunk, uint64_t{peer} + 1, ranks());
    std::memcpy(out + first * element, segment_->slot(peer, call.set) + first * element,
                (end - first) * element);
  }
}

// Does the work between two barriers: from the one that all ranks have reached to this rank's next
// arrival.
absl::Status Communicator::Advance(Call& call) {
  if (!std::exchange(call.compared, true)) DDPRUN_RETURN_IF_ERROR(CompareAnnouncements(call));
  if (call.phase == Call::Phase::kDeposited && SharesReduction(call)) {
    ReduceMyPart(call);
    return absl::OkStatus();
  }
  if (call.phase == Call::Phase::kReduced) {
    CollectParts(call);
  } else {
    Collect(call);
  }
  call.done += call.chunk;
  if (call.done == call.what.count) {
    call.phase = Call::Phase::kDone;
  } else {
    Deposit(call);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Communicator::Try(Call& call, absl::Duration patience) {
  if (segment_->broken()) return Failure();
  if (call.phase == Call::Phase::kNew) Begin(call);
  while (call.phase != Call::Phase::kDone) {
    if (!SpinUntilAllArrive(patience)) return false;
    DDPRUN_RETURN_IF_ERROR(Advance(call));
  }
  return true;
}

absl::Status Communicator::Finish(Call& call, absl::Duration patience, Instant deadline) {
  if (call.phase == Call::Phase::kNew) {
    if (segment_->broken()) return Failure();
    Begin(call);
  }
  while (call.phase != Call::Phase::kDone) {
    if (!SpinUntilAllArrive(patience)) {
      for (uint32_t peer = 0; peer < ranks(); ++peer) {
        DDPRUN_RETURN_IF_ERROR(SleepUntilArrived(peer, call, deadline));
      }
    }
    DDPRUN_RETURN_IF_ERROR(Advance(call));
  }
  return absl::OkStatus();
}

}  // namespace ddprun::worker::shm
