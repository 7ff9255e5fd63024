#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_RECOVERY_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_RECOVERY_H_

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::rendezvous {

// Who took part in a job before its service was started again, and is yet to be heard of (R10).
// Until everybody is back, or lost, no generation begins or is closed: nobody knows yet what they
// have to say. Pure.
//
//   (never was recovered)      Begin ─► open ─(the last one is back or gone; or Close)─► over
class Recovery {
 public:
  // Params: life: how many services had the job before, > 0; awaited: join orders; vanished: the
  // one of them that is known to be gone; 0 = none.
  void Begin(Instant now, uint64_t life, std::set<uint64_t> awaited, uint64_t vanished = 0);
  // A node is back; or it is lost, or has left. True: nobody is awaited any more, since just now.
  bool NoteBack(uint64_t node_order);
  bool NoteGone(uint64_t node_order);
  // The job has ended: nobody is awaited for it.
  void Close() { awaited_.clear(); }
  // True, once, after Begin: it is to be told.
  bool TakeNews() { return std::exchange(news_, false); }

  // Somebody is awaited.
  bool open() const { return !awaited_.empty(); }
  // By join order.
  const std::set<uint64_t>& awaited() const { return awaited_; }
  // Who is known to be gone, and is the only one that is awaited yet; 0 = nobody.
  uint64_t vanished() const;
  // This node is most likely gone, and hasn't been heard of since: all that is known of it is that
  // its service ended.
  bool IsLikelyGone(uint64_t node_order) const { return vanished_ == node_order; }
  // It is heard of after all.
  void NoteHeard(uint64_t node_order) {
    if (vanished_ == node_order) vanished_ = 0;
  }
  // How many services had the job before this one.
  uint64_t life() const { return life_; }
  uint32_t back() const { return back_; }
  uint32_t gone() const { return gone_; }
  absl::Duration Age(Instant now) const { return now - began_; }
  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant() const;

 private:
  uint64_t life_ = 0;
  Instant began_;
  std::set<uint64_t> awaited_;  // empty with life_ == 0
  uint64_t vanished_ = 0;
  bool news_ = false;
  uint32_t back_ = 0;
  uint32_t gone_ = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_RECOVERY_H_
