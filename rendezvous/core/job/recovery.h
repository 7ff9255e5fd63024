#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_RECOVERY_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_RECOVERY_H_

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::rendezvous {

// The nodes that took part in a job before its service was started again, and haven't been heard
// since (R10). Until all of them are back or lost, no generation begins or closes, because their
// reports are unknown. Pure.
//
//   (never was recovered)      Begin ─► open ─(the last one is back or gone; or Close)─► over
class Recovery {
 public:
  // Params: life: how many services had the job before, > 0; awaited: join orders; vanished: the
  // awaited node that is probably gone; 0 = none.
  void Begin(Instant now, uint64_t life, std::set<uint64_t> awaited, uint64_t vanished = 0);
  // A node is back; a node is lost or has left. Returns true for the last one: no node is awaited
  // any more.
  bool NoteBack(uint64_t node_order);
  bool NoteGone(uint64_t node_order);
  // The job has ended: no node is awaited any more.
  void Close() { awaited_.clear(); }
  // Returns true once after Begin: the recovery is to be reported.
  bool TakeNews() { return std::exchange(news_, false); }

  // Some node is awaited.
  bool open() const { return !awaited_.empty(); }
  // Join orders of the awaited nodes.
  const std::set<uint64_t>& awaited() const { return awaited_; }
  // The probably vanished node, if it is the only one still awaited; 0 = none.
  uint64_t vanished() const;
  // Whether this node is probably gone: its service ended, and it hasn't been heard since.
  bool IsLikelyGone(uint64_t node_order) const { return vanished_ == node_order; }
  // The node is heard after all.
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

// When the job's record has to be written, so that no node learns anything that a restart of the
// service would forget (R10). Pure.
//
//   kept ─Note─► due ─TakeDue─► kept …           ─Lose─► lost, for good
class Recorder {
 public:
  // Params: keeps: there is a journal; recorded: it already has a record of the job.
  explicit Recorder(bool keeps, bool recorded = false)
      : keeps_(keeps), withholds_(keeps && !recorded) {}

  // Something was decided, or may be confirmed once it is recorded.
  void Note() { due_ = keeps_; }
  // The step is over. Returns whether its decisions have to be recorded before they are sent.
  bool TakeDue() { return std::exchange(due_, false); }
  // A record is written, or can't be. Returns true once: from now on nodes get messages.
  bool TakeFirst() { return std::exchange(withholds_, false); }
  // The journal failed. From now on the job depends on its service.
  void Lose(const absl::Status& why) {
    keeps_ = false;
    due_ = false;
    lost_ = why.ToString();
  }

  // There is a journal, so agents keep the events that no record covers.
  bool keeps() const { return keeps_; }
  // No node gets a message, not even a probe, because there is no record of the job so far.
  bool withholds() const { return withholds_; }
  // Why the journal is lost; "" = it isn't, or there never was one.
  const std::string& lost() const { return lost_; }
  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant() const {
    if (due_ && !keeps_) return "a record that nobody keeps";
    return keeps_ && !lost_.empty() ? "a journal that is lost and goes on" : "";
  }

 private:
  bool keeps_;
  bool withholds_;    // until the first record; then never again
  bool due_ = false;  // only while keeps_; false between two steps
  std::string lost_;  // empty while keeps_
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_RECOVERY_H_
