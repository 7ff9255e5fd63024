#ifndef DDPRUN_RENDEZVOUS_CORE_MEMBERS_NODE_H_
#define DDPRUN_RENDEZVOUS_CORE_MEMBERS_NODE_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/core/events.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/message.h"
#include "rendezvous/core/timing.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// What a node's renewals told. But for `can_rejoin` for people who watch.
struct NodeTold {
  std::vector<uint64_t> progress;  // at most a word for each worker; empty without a rank
  absl::Duration step_time;
  Instant progress_at;
  bool can_rejoin = false;  // its workers; false without progress
  std::vector<GpuUse> gpus;
  Instant gpus_at;
  std::optional<WarmUse> warm;
  std::map<uint32_t, HoldUp> hold_ups;  // by local rank; none without progress

  // Takes what a renewal of the live generation tells. Renewals over connections for heartbeats
  // tell nothing: false.
  bool TakeProgress(Instant now, const Renewal& renewal, uint32_t worker_count);
  // Returns the indices of GPUs that are lost since the last time.
  std::vector<uint32_t> TakeGpus(Instant now, const std::vector<GpuUse>& now_used);
};

// An agent process that has joined and is neither lost nor gone: its stream, how long it may be
// silent, and what it does. Fields are for all to read; they change by the verbs, through
// Roster::Change, which knows what hangs on them.
struct Node {
  uint64_t order = 0;  // join order, from 1; unique for the life of the job
  NodeId id;           // not empty
  Incarnation incarnation;
  NodeInfo info;                    // its master_port: 0 once a generation has used it (R11)
  StreamNumber stream_number;       // never goes down
  std::optional<StreamKey> stream;  // empty: in its reconnect grace. Changed by NodeTable.
  uint64_t processed = 0;  // sequence of the last event that was processed; never goes down
  // Events of the live generation from this one on are in no record, and must be said again to a
  // service that recovers; 0 = there are none. <= processed.
  uint64_t unsettled = 0;
  uint64_t recording = 0;  // what was settled when the last record was taken; <= settled()
  uint64_t confirmed = 0;  // what a record that is kept has settled; <= recording

  Instant proof;                             // when the last renewed probe was sent; <= heard
  Instant heard;                             // when the last renewal or Join came
  Instant closed_at = Instant::Infinite();   // when the stream closed; infinite with a stream
  Instant lease_end = Instant::Infinite();   // finite until the job ends
  Instant grace_end = Instant::Infinite();   // of the reconnect grace; infinite with a stream
  Instant stop_bound = Instant::Infinite();  // when StopWorkers must have been answered

  std::optional<uint32_t> group_rank;  // member of the live generation; never beside `cleaning`
  Generation cleaning;      // workers of this one must stop first; 0 = none. Then with a stop_bound
  uint64_t idle_nonce = 0;  // a renewal of this probe shows that a member never got its assignment
  std::optional<Standby> standby;  // the last one sent on this stream; empty with a group_rank
  bool draining = false;           // it was asked to leave (R15); for good
  bool answered = false;           // a probe, since it joined; for good
  // Its lease is over, and it is waited for all the same until lease_end (R4). Only of a member of
  // a generation that runs.
  bool silent = false;
  bool counted = false;            // among the candidates; Roster's
  bool counted_answering = false;  // among those who have answered; Roster's
  bool counted_silent = false;     // among the silent; Roster's

  NodeTold told;

  // Live: it has a stream and spoke within the last two probes.
  bool IsLive(Instant now, const ProbePace& pace) const;
  // When the first of its bounds is over; infinite = it has none.
  Instant deadline() const;
  // What it said last may be old news: it has renewed none of the last probes.
  bool IsSilent(Instant now, absl::Duration probes) const { return now - proof > probes; }

  // It was here before, and its events up to this one were processed. Requires: no stream yet.
  void Resume(uint64_t sequence);
  // It was here in another life of the service. Params: lease: to come back. Requires: no stream.
  void Recover(const NodeRecord& record, Instant now, std::optional<absl::Duration> lease);
  // What it says of itself when it is back. Params: idle: it has no workers, so that its port is
  // for the next ones.
  void Update(const NodeInfo& said, bool idle);
  // It has a new stream. Params: lease: counts from now; nullopt = the job has ended.
  void Greet(Instant now, std::optional<absl::Duration> lease);
  // Its stream is closed. Params: grace: to come back; nullopt = until its lease is over.
  void MissStream(Instant now, std::optional<absl::Duration> grace);
  // It renewed the probe of `sent`. Params: lease: and what is forgiven since then.
  void Renew(Instant now, Instant sent, absl::Duration lease);
  // It is asked by this probe, which comes after all that it may still have to say.
  void AskIfIdle(uint64_t nonce) { idle_nonce = nonce; }
  // True, once: that renewal shows that a member never got its assignment.
  bool ShowsIdle(uint64_t nonce);
  // Where an event of this number stands; kNext is thereby processed (R6).
  enum class Sequence { kNext, kSeen, kGap };
  Sequence TakeSequence(uint64_t sequence);

  // What it does to the live generation is settled by a record of what that came to, not before.
  void AwaitSettlement();
  void Settle() { unsettled = 0; }
  // Its last event that needn't be said again to a service that recovers from a record of now.
  uint64_t settled() const { return unsettled == 0 ? processed : unsettled - 1; }
  // A record is taken; and it is kept.
  void TakeForRecord() { recording = settled(); }
  void Confirm() { confirmed = recording; }

  // It is asked to end workers, of a generation that goes on without it or of its own. The first
  // bound stands.
  void BeginCleaning(Generation generation, Instant bound);
  void BeginStopping(Instant bound);
  // It has no workers any more. Params: master_port: reserved for the next generation (R11).
  void EndStopping();
  void EndStopping(uint32_t master_port);

  // A generation has it as this rank; it has none any more.
  void BecomeMember(uint32_t rank);
  void BecomeWaiting();
  // It is to leave.
  void Drain() { draining = true; }
  void TakeStandby(const Standby& sent);
  // Its port is used up by a generation (R11). Returns it.
  uint32_t UsePort();
  // The job has ended; and it isn't waited for any more.
  void Retire();
  void GiveUp() { grace_end = Instant::Infinite(); }
  // The service was held up for so long, which is nobody's silence (R4).
  void Extend(Instant now, absl::Duration stall, const ProbePace& pace, absl::Duration grace);

  // Nor is what an isolated service doesn't hear (R4): its lease isn't over before `until`.
  void Excuse(Instant until) { lease_end = std::max(lease_end, until); }

  // Its lease is over: it is silent, and lost only if it still is then.
  void Await(Instant until) {
    silent = true;
    lease_end = until;
  }

  // The same once somebody is heard again; what it was suspected of before doesn't count either.
  void Pardon(Instant until) {
    if (silent) lease_end = until;
    silent = false;
    Excuse(until);
  }

  // It has until then to be back, no longer.
  void BoundLease(Instant until) { lease_end = std::min(lease_end, until); }

  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant() const;
};

// "node a", "node a on host1".
std::string NodeText(const Node& node);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MEMBERS_NODE_H_
