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
#include "rendezvous/core/agent_message.h"
#include "rendezvous/core/events.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/node_info.h"
#include "rendezvous/core/service_message.h"
#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous {

// The contents of a node's renewals; for people who watch, except `can_rejoin`.
struct NodeTold {
  std::vector<uint64_t> progress;  // at most a word for each worker; empty without a rank
  absl::Duration step_time;
  Instant progress_at;
  bool can_rejoin = false;  // its workers can keep their processes; false without progress
  std::vector<GpuUse> gpus;
  Instant gpus_at;
  std::optional<WarmUse> warm;
  std::map<uint32_t, HoldUp> hold_ups;  // by local rank; none without progress
  std::optional<uint64_t> checkpoint_bytes;

  // Takes the progress from a renewal of the live generation. Returns false for renewals over
  // connections for heartbeats, which have none.
  bool TakeProgress(Instant now, const Renewal& renewal, uint32_t worker_count);
  // Takes the GPUs from a renewal. Returns the indices of those lost since the last time.
  std::vector<uint32_t> TakeGpus(Instant now, const std::vector<GpuUse>& now_used);
};

// An agent process that has joined and is neither lost nor gone: its stream, its leases and bounds,
// and its state. Any code may read the fields. They change only by the methods below, called
// through Roster::Change, which keeps its counters up to date.
struct Node {
  uint64_t order = 0;  // join order, from 1; unique for the life of the job
  NodeId id;           // not empty
  Incarnation incarnation;
  NodeInfo info;                    // its master_port: 0 once a generation has used it (R11)
  StreamNumber stream_number;       // never goes down
  std::optional<StreamKey> stream;  // nullopt: in its reconnect grace. Changed by NodeTable.
  uint64_t processed = 0;  // sequence of the last event that was processed; never goes down
  // The first event of the live generation that no record covers. The agent must send events from
  // here on again to a service that recovers; 0 = there are none. <= processed.
  uint64_t unsettled = 0;
  uint64_t recording = 0;  // settled() when the last record was taken; <= settled()
  uint64_t confirmed = 0;  // `recording` of the last record that is durable; <= recording

  Instant proof;                             // when the last renewed probe was sent; <= heard
  Instant heard;                             // when the last renewal or Join came
  Instant closed_at = Instant::Infinite();   // when the stream closed; infinite with a stream
  Instant lease_end = Instant::Infinite();   // finite until the job ends
  Instant grace_end = Instant::Infinite();   // of the reconnect grace; infinite with a stream
  Instant stop_bound = Instant::Infinite();  // when StopWorkers must have been answered

  std::optional<uint32_t> group_rank;  // member of the live generation; never beside `cleaning`
  Generation cleaning;  // workers of this generation must stop first; 0 = none. With a stop_bound
  uint64_t idle_nonce = 0;         // a member that renews this probe never got its assignment
  std::optional<Standby> standby;  // the last one sent on this stream; empty with a group_rank
  bool draining = false;           // it was asked to leave (R15); never false again
  bool answered = false;           // it has answered a probe since it joined; never false again
  // The lease is over, and the job waits for the node until lease_end (R4). Only for a member of a
  // running generation.
  bool silent = false;
  bool counted = false;            // counted as a candidate; set by Roster
  bool counted_answering = false;  // counted as answering; set by Roster
  bool counted_silent = false;     // counted as silent; set by Roster

  NodeTold told;

  // Whether the node has a stream and was heard within the last two probes.
  bool IsLive(Instant now, const ProbePace& pace) const;
  // The earliest of the node's bounds; infinite = it has none.
  Instant deadline() const;
  // Whether the node has renewed none of the probes of the last `probes`, so that its last message
  // may be old.
  bool IsSilent(Instant now, absl::Duration probes) const { return now - proof > probes; }

  // The node was here before, and its events up to `sequence` were processed. Requires: no stream
  // so far.
  void Resume(uint64_t sequence);
  // The node took part in a former life of the service. Params: lease: the time to come back.
  // Requires: no stream.
  void Recover(const NodeRecord& record, Instant now, std::optional<absl::Duration> lease);
  // Takes the node's own description when it is back. Params: idle: it has no workers, so its port
  // is for the next generation.
  void Update(const NodeInfo& said, bool idle);
  // The node has a new stream. Params: lease: counts from now; nullopt = the job has ended.
  void Greet(Instant now, std::optional<absl::Duration> lease);
  // The node's stream has closed. Params: grace: the time to come back; nullopt = until the lease
  // is over.
  void MissStream(Instant now, std::optional<absl::Duration> grace);
  // The node renewed the probe that was sent at `sent`. Params: lease: with the stalls since then.
  void Renew(Instant now, Instant sent, absl::Duration lease);
  // This probe asks the node whether it is idle; all earlier messages of the node arrive before the
  // answer.
  void AskIfIdle(uint64_t nonce) { idle_nonce = nonce; }
  // Returns true once, if the renewal of this probe shows that a member never got its assignment.
  bool ShowsIdle(uint64_t nonce);
  // Classifies an event's number; kNext marks it as processed (R6).
  enum class Sequence { kNext, kSeen, kGap };
  Sequence TakeSequence(uint64_t sequence);

  // The last event's effect on the live generation is decided later, so only a record made after
  // that settles the event.
  void AwaitSettlement();
  void Settle() { unsettled = 0; }
  // The last event that the agent need not send again to a service that recovers from a record made
  // now.
  uint64_t settled() const { return unsettled == 0 ? processed : unsettled - 1; }
  // A record is taken; the record is durable.
  void TakeForRecord() { recording = settled(); }
  void Confirm() { confirmed = recording; }

  // The node is asked to stop workers: of a generation that goes on without it, or of its own. The
  // first bound stands.
  void BeginCleaning(Generation generation, Instant bound);
  void BeginStopping(Instant bound);
  // The node has no workers any more. Params: master_port: reserved for the next generation (R11).
  void EndStopping();
  void EndStopping(uint32_t master_port);

  // The node gets this rank; the node loses its rank.
  void BecomeMember(uint32_t rank);
  void BecomeWaiting();
  // The node is asked to leave.
  void Drain() { draining = true; }
  void TakeStandby(const Standby& sent);
  // A generation uses the node's port (R11). Returns the port.
  uint32_t UsePort();
  // The job has ended; the job no longer waits for the node.
  void Retire();
  void GiveUp() { grace_end = Instant::Infinite(); }
  // The service stalled for `stall`, which doesn't count as silence of the node (R4).
  void Extend(Instant now, absl::Duration stall, const ProbePace& pace, absl::Duration grace);

  // An isolated service doesn't judge leases (R4): the node's lease isn't over before `until`.
  void Excuse(Instant until) { lease_end = std::max(lease_end, until); }

  // The lease is over: the node is silent, and lost if it still is at `until`.
  void Await(Instant until) {
    silent = true;
    lease_end = until;
  }

  // Ends the wait of Await() when an isolation ends: the node isn't suspected any more, and its
  // lease isn't over before `until`.
  void Pardon(Instant until) {
    if (silent) lease_end = until;
    silent = false;
    Excuse(until);
  }

  // The node has until `until` to be back, at the latest.
  void BoundLease(Instant until) { lease_end = std::min(lease_end, until); }

  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant() const;
};

// "node a", "node a on host1".
std::string NodeText(const Node& node);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MEMBERS_NODE_H_
