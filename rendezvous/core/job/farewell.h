#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_FAREWELL_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_FAREWELL_H_

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "base/instant.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/members/node_table.h"
#include "rendezvous/core/service_message.h"
#include "rendezvous/core/verdict.h"

namespace ddprun::rendezvous {

// The nodes that receive the verdict.
struct Audience {
  size_t nodes = 1;
  // The node that gets the whole verdict, because people read its log: the service's node, else the
  // endpoint's host, else rank 0's; connected nodes come first. "" = there is none of these.
  NodeId reader;
  std::string reader_host;
};

// Requires: nodes still have the ranks of the last generation.
Audience AudienceOf(const NodeTable::Nodes& nodes);

// The end of a job: delivers its verdict to every agent that can be reached (R8). The message is
// made at most twice, in whole and in the size that the other nodes get, however many there are.
// Pure.
//
//   alive ─Begin─► notifying ─(all are gone, or its time is over)─► forgotten
//
// The time is kFarewell. If a scheduler starts the job's agents, it lasts until the last of them
// can't be late any more: without a service, a late agent would look for one until the join
// timeout, and hold its node for a job that is over.
//
//   step of 3 nodes, --nnodes 2     0 s        5 s              20 s
//   agents 0, 1                     join, run  verdict
//   agent 2                                    (not here yet)   join: gets the verdict, exits
//   service                                    waits ─────────► ends
//
// A job that lasts longer than kAgentsStart never waits so, nor does one that was stopped. The
// tasks of a step may also run one job after the other under one name: an agent that joins from a
// host that took part belongs to the next one, and the wait ends for it.
//
// Agents don't confirm the verdict by a message: that would be a round trip at the end of each job.
// A stream that the agent closed has been read to its end; one that was reset may not have been, so
// its agent gets the rest of kFarewell to come back.
class Farewell {
 public:
  // The job begins. Params: agents: how many a scheduler starts, 0 = not known; until: the last of
  // them joins before.
  void ExpectAgents(size_t agents, Instant until) {
    agents_ = agents;
    agents_until_ = until;
  }
  // One of the agents has joined from this host.
  void OnAgent(const std::string& host);
  // A node that may come back was lost while the job lived.
  void NoteLoss(Instant now) { last_loss_ = now; }
  // The job is over. Requires: Begin wasn't called before.
  void Begin(Instant now, Verdict verdict, const Audience& audience = {});
  // Returns true once, when the job is to be forgotten; streams that are still open are to be ended
  // then. Params: anybody_left: there is a node, or a stream that isn't closed. Requires: Begin.
  bool Finish(Instant now, bool anybody_left);

  bool begun() const { return state_ != State::kAlive; }
  // No agent can get the verdict any more.
  bool forgotten() const { return state_ == State::kForgotten; }
  // When to call Finish at the latest; infinite = never.
  Instant deadline() const { return late_agents_ > 0 ? std::max(end_, agents_until_) : end_; }
  const Verdict& verdict() const { return verdict_; }
  // The verdict as this node gets it. Requires: Begin.
  const SharedMessage& WordsFor(const NodeId& node) const;
  // How to answer a node that joins for the first time. Requires: Begin.
  enum class Newcomer {
    kLate,     // a scheduler started it with the others: it gets the verdict
    kNextJob,  // of the next job of this name: it has to join again when this one is forgotten
    kStranger,
  };
  Newcomer OnNewcomer(Instant now, const std::string& host);
  // The answer to any other Join that is too late. Requires: Begin.
  absl::Status Refusal() const;

  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant() const;

 private:
  enum class State { kAlive, kNotifying, kForgotten };

  State state_ = State::kAlive;
  Instant end_ = Instant::Infinite();       // finite only in kNotifying
  Verdict verdict_;                         // has a rule from Begin on, and never changes
  size_t agents_ = 0;                       // started by a scheduler; 0 = not known
  Instant agents_until_;                    // the last of them joins before
  size_t joined_ = 0;                       // agents that joined
  absl::flat_hash_set<std::string> hosts_;  // of agents that joined
  size_t late_agents_ = 0;                  // agents still to join; 0 before Begin
  std::optional<Instant> last_loss_;
  bool awaits_lost_ = false;  // a node lost shortly before the end may come back
  NodeId reader_;
  // The verdict for the reader, and for all others; the same message if it needn't be cut.
  SharedMessage whole_;
  SharedMessage shared_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_FAREWELL_H_
