#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_FAREWELL_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_FAREWELL_H_

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "base/instant.h"
#include "rendezvous/core/members/node_table.h"
#include "rendezvous/core/message.h"

namespace ddprun::rendezvous {

// Who is told how a job ended.
struct Audience {
  size_t nodes = 1;
  // The one whose log people look at, which is told all: that of the service, else the endpoint's
  // host, else that of rank 0; who is here goes before who isn't. "" = there is none of these.
  NodeId reader;
  std::string reader_host;
};

// Requires: the last generation's ranks still stand.
Audience AudienceOf(const NodeTable::Nodes& nodes);

// The end of a job: its verdict, until everybody who can be told was told (R8). What is told is
// made at most twice, whole and as large as the others may have it, however many there are. Pure.
//
//   (it lives) ─Begin─► telling ─(all are gone, or its time is over)─► forgotten
//
// Its time is kFarewell, but where agents are still to come that a scheduler has started, it lasts
// until they may no longer be late. Without a service such an agent would wait for one until the
// join timeout, and hold its node for a job that is over:
//
//   step of 3 nodes, --nnodes 2     0 s        5 s              20 s
//   agents 0, 1                     join, run  verdict
//   agent 2                                    (not here yet)   join: hears the verdict, exits
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
  // The job begins. A scheduler starts `agents` of it, the last of them before `until`.
  void ExpectAgents(size_t agents, Instant until) {
    agents_ = agents;
    agents_until_ = until;
  }
  // One of them is here, on this host.
  void OnAgent(const std::string& host);
  // A node was lost that may come back, while the job lived.
  void NoteLoss(Instant now) { last_loss_ = now; }
  // The job is over. Requires: it wasn't before.
  void Begin(Instant now, Verdict verdict, const Audience& audience = {});
  // True, once: the job is to be forgotten now. Streams that are still open are to be ended.
  // Params: anybody_left: a node, or a stream that is not closed yet. Requires: Begin.
  bool Finish(Instant now, bool anybody_left);

  bool begun() const { return state_ != State::kAlive; }
  // Nobody may come back for the verdict any more.
  bool forgotten() const { return state_ == State::kForgotten; }
  // When Finish is wanted at the latest; infinite = not at all.
  Instant deadline() const { return late_agents_ > 0 ? std::max(end_, agents_until_) : end_; }
  const Verdict& verdict() const { return verdict_; }
  // What this node is told of it. Requires: Begin.
  const SharedMessage& WordsFor(const NodeId& node) const;
  // A node joins that was never here. Requires: Begin.
  enum class Newcomer {
    kLate,     // a scheduler started it with the others: it hears the verdict
    kNextJob,  // of the same name: it has to come again when this one is forgotten, which is soon
    kStranger,
  };
  Newcomer OnNewcomer(Instant now, const std::string& host);
  // What any other Join hears that comes too late. Requires: Begin.
  absl::Status Refusal() const;

  // What is wrong with it; "" = nothing.
  std::string BrokenInvariant() const;

 private:
  enum class State { kAlive, kNotifying, kForgotten };

  State state_ = State::kAlive;
  Instant end_ = Instant::Infinite();       // finite while telling, and only then
  Verdict verdict_;                         // has a rule from Begin on, and never changes
  size_t agents_ = 0;                       // that a scheduler starts; 0 = not known
  Instant agents_until_;                    // the last of them is here before
  size_t joined_ = 0;                       // of them
  absl::flat_hash_set<std::string> hosts_;  // where they are or were
  size_t late_agents_ = 0;                  // those that are still to come; 0 before Begin
  std::optional<Instant> last_loss_;
  bool awaits_lost_ = false;  // somebody was lost so shortly before the end that it may come back
  NodeId reader_;
  // The verdict for the reader, and for all others; the same one where it needn't be cut.
  SharedMessage whole_;
  SharedMessage shared_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_FAREWELL_H_
