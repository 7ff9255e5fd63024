#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_RECORD_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_RECORD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/job_spec.h"
#include "rendezvous/core/node_info.h"
#include "rendezvous/core/restart_history.h"
#include "rendezvous/core/time_spent.h"
#include "rendezvous/core/verdict.h"
#include "rendezvous/core/views.h"

// The part of a job that outlives its service (R10): every decision. Reports of the live
// generation's nodes since then aren't in it; their agents keep those until they are settled, and
// send them again.
//
// Clocks end with the machine, so times are ages at the moment of the record, or durations to come.
// A service that recovers adds the time since the record was made, if that is known.
namespace ddprun::rendezvous {

// A node of the job.
struct NodeRecord {
  NodeId id;
  Incarnation incarnation;
  NodeInfo info;
  StreamNumber stream_number;  // its newest stream
  uint64_t settled = 0;        // the agent need not send events up to this one again
  bool draining = false;
  bool answered = false;

  friend bool operator==(const NodeRecord&, const NodeRecord&) = default;
};

// What is kept about an agent process that has gone but may come back.
struct Departed {
  NodeId id;
  StreamNumber stream_number;
  uint64_t processed = 0;
  absl::Status refusal;               // not OK: why it may not come back
  bool left = false;                  // it left on its own
  Generation done_in;                 // it had succeeded in this generation,
  std::optional<uint32_t> done_rank;  // with this group rank

  friend bool operator==(const Departed&, const Departed&) = default;
};

struct DepartedRecord : Departed {
  Incarnation incarnation;

  friend bool operator==(const DepartedRecord&, const DepartedRecord&) = default;
};

// One node of the live generation; see RoundMember.
struct MemberRecord {
  enum class Fate { kHere, kLost, kLeft };

  std::optional<uint32_t> node;  // index into JobRecord::nodes; nullopt = the node has gone
  NodeId node_id;
  uint32_t worker_count = 0;
  uint32_t base_rank = 0;
  uint32_t base_role_rank = 0;
  uint32_t role_world_size = 0;
  Fate fate = Fate::kHere;
  bool started = false;
  bool succeeded = false;

  friend bool operator==(const MemberRecord&, const MemberRecord&) = default;
};

// Why the live generation ends; see Closing.
struct ClosingRecord {
  absl::Duration age;     // since the trigger
  absl::Duration uptime;  // at the trigger
  std::string reason;
  bool for_growth = false;
  std::string loss;

  friend bool operator==(const ClosingRecord&, const ClosingRecord&) = default;
};

// The part of an assignment that is the same for all members of a generation.
struct RoundTerms {
  std::string master_addr;    // of the workers' store (R11)
  uint32_t master_port = 0;   // 0 = it could not be reserved
  std::string store_address;  // of rank 0's agent
  std::string reason;         // why the generation began
  std::string rule;           // the name of the rule by which it began
  uint32_t restart_count = 0;
  uint32_t restarts_charged = 0;

  friend bool operator==(const RoundTerms&, const RoundTerms&) = default;
};

// The live generation; see Round.
struct RoundRecord {
  absl::Duration age;                 // since its assignment
  std::vector<MemberRecord> members;  // by group rank
  RoundTerms terms;
  std::optional<ClosingRecord> closing;  // nullopt = it runs

  friend bool operator==(const RoundRecord&, const RoundRecord&) = default;
};

// The wait for the next generation; see Forming.
struct FormingRecord {
  enum class Cause { kFirst, kFault, kGrowth };

  Cause cause = Cause::kFirst;
  absl::Duration pause;  // still to come
  std::string why;
  std::string rule;                    // "" before the first generation
  std::vector<NodeId> previous_ranks;  // by group rank

  friend bool operator==(const FormingRecord&, const FormingRecord&) = default;
};

// The state of Growth.
struct GrowthRecord {
  std::optional<uint32_t> members_before;
  uint32_t wanted = 0;
  uint32_t fruitless = 0;

  friend bool operator==(const GrowthRecord&, const GrowthRecord&) = default;
};

// Failures that count against a node; see NodeBlame.
struct BlameRecord {
  NodeId node;
  std::string hostname;
  std::vector<absl::Duration> ages;  // oldest first

  friend bool operator==(const BlameRecord&, const BlameRecord&) = default;
};

// One generation, for people; see GenerationView.
struct GenerationSummary {
  Generation generation;
  uint32_t world_size = 0;
  uint32_t nodes = 0;
  std::string reason;
  std::string rule;
  absl::Duration age;                   // since it began
  std::optional<absl::Duration> ended;  // age of its end; nullopt = it is live
  std::string end_reason;
  std::optional<uint64_t> first_step;
  std::optional<uint64_t> last_step;
  std::optional<WarmStart> warm;

  friend bool operator==(const GenerationSummary&, const GenerationSummary&) = default;
};

// How the job's time was spent; see Ledger.
struct LedgerRecord {
  absl::Duration age;  // of the job
  TimeSpent booked;    // until the live generation, or the wait for it, began
  bool first = true;
  bool marks = false;

  friend bool operator==(const LedgerRecord&, const LedgerRecord&) = default;
};

struct JobRecord {
  Term term;          // not 0; the same in all lives of the service
  uint64_t life = 0;  // how many services have recovered the job
  // The node that most likely ended with its machine: its service was silent for a lease, or
  // another node has the service in its place. Set by the code that loads the record, never stored;
  // "" = none.
  NodeId vanished;
  std::optional<JobSpec> spec;  // nullopt = no node has joined
  Generation generation;        // the newest one
  std::string reason;           // of the phase
  uint64_t begun_step = 0;      // see GenerationRecord
  RestartHistory history;
  std::string taken;                     // see Preemption
  bool takes_service = false;            // see Preemption
  std::vector<NodeRecord> nodes;         // in join order
  std::vector<DepartedRecord> departed;  // oldest first
  // At most one of the two is set; neither: the job waits for a generation.
  std::optional<RoundRecord> round;
  std::optional<Verdict> verdict;
  FormingRecord forming;
  GrowthRecord growth;
  std::vector<BlameRecord> blame;
  std::vector<DrainedNode> drained;
  std::vector<GenerationSummary> generations;  // oldest first
  LedgerRecord ledger;

  friend bool operator==(const JobRecord&, const JobRecord&) = default;
};

// Makes all ages in the record greater by `elapsed`, and shortens what is left of a pause.
void Age(absl::Duration elapsed, JobRecord& record);
// Sets `vanished` to the node that hosted the service, unless that node's agent is `host`, which
// hosts it now.
void MarkFormerHost(Incarnation host, JobRecord& record);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_RECORD_H_
