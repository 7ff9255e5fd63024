#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_RECORD_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_RECORD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "rendezvous/core/message.h"
#include "rendezvous/core/restart_history.h"
#include "rendezvous/core/time_spent.h"
#include "rendezvous/core/types.h"

// What of a job outlives its service (R10): all that was decided. What the live generation's nodes
// have reported since is not in it; their agents keep that until it is settled, and say it again.
//
// Clocks end with the machine, so times are ages at the moment of the record, and durations to
// come; who recovers adds the time that passed since, as far as it is known.
namespace ddprun::rendezvous {

// A node that was here.
struct NodeRecord {
  NodeId id;
  Incarnation incarnation;
  NodeInfo info;
  StreamNumber stream_number;  // of its newest stream
  uint64_t settled = 0;        // its events up to this one need not be said again
  bool draining = false;
  bool answered = false;

  friend bool operator==(const NodeRecord&, const NodeRecord&) = default;
};

// An agent process that isn't there any more, but may come back; see Departed.
struct DepartedRecord {
  Incarnation incarnation;
  NodeId id;
  StreamNumber stream_number;
  uint64_t processed = 0;
  absl::Status refusal;
  bool left = false;
  Generation done_in;
  std::optional<uint32_t> done_rank;

  friend bool operator==(const DepartedRecord&, const DepartedRecord&) = default;
};

// One node of the live generation; see RoundMember.
struct MemberRecord {
  enum class Fate { kHere, kLost, kLeft };

  std::optional<uint32_t> node;  // index into JobRecord::nodes; nullopt = it isn't there any more
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

// What ends the live generation; see Closing.
struct ClosingRecord {
  absl::Duration age;     // since the trigger
  absl::Duration uptime;  // at the trigger
  std::string reason;
  bool for_growth = false;
  std::string loss;

  friend bool operator==(const ClosingRecord&, const ClosingRecord&) = default;
};

// The live generation; see Round and RoundTerms.
struct RoundRecord {
  absl::Duration age;                 // since its assignment
  std::vector<MemberRecord> members;  // by group rank
  std::string master_addr;
  uint32_t master_port = 0;
  std::string store_address;
  std::string reason;
  std::string rule;
  uint32_t restart_count = 0;
  uint32_t restarts_charged = 0;
  std::optional<ClosingRecord> closing;  // nullopt = it runs

  friend bool operator==(const RoundRecord&, const RoundRecord&) = default;
};

// The wait for the next generation; see Forming.
struct FormingRecord {
  enum class Cause { kFirst, kFault, kGrowth };

  Cause cause = Cause::kFirst;
  absl::Duration pause;  // still to come
  std::string why;
  std::string rule;                    // "" = the first is waited for
  std::vector<NodeId> previous_ranks;  // by group rank

  friend bool operator==(const FormingRecord&, const FormingRecord&) = default;
};

// See Growth.
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

// A machine that was drained; see DrainedNode.
struct DrainRecord {
  NodeId node_id;
  std::string hostname;
  std::string address;
  std::string reason;

  friend bool operator==(const DrainRecord&, const DrainRecord&) = default;
};

// One generation, for people; see GenerationView.
struct GenerationSummary {
  Generation generation;
  uint32_t world_size = 0;
  uint32_t nodes = 0;
  std::string reason;
  std::string rule;
  absl::Duration age;                   // since it began
  std::optional<absl::Duration> ended;  // so long ago; nullopt = it lives
  std::string end_reason;
  std::optional<uint64_t> first_step;
  std::optional<uint64_t> last_step;
  std::optional<WarmStart> warm;

  friend bool operator==(const GenerationSummary&, const GenerationSummary&) = default;
};

// What the job's time went into; see Ledger.
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
  // The node whose service ended without a word, for which it had the time of a lease, or in whose
  // place another node has the service now: it most likely ended with its machine. Said by who
  // loads the record, never kept; "" = none.
  NodeId vanished;
  std::optional<JobSpec> spec;  // nullopt = nobody has joined yet
  Generation generation;        // the last that was formed
  std::string reason;           // of the phase
  uint64_t begun_step = 0;      // see GenerationRecord
  RestartHistory history;
  std::string taken;                     // see Preemption
  bool takes_service = false;            // see Preemption
  std::vector<NodeRecord> nodes;         // in join order
  std::vector<DepartedRecord> departed;  // oldest first
  // At most one of the two; none = a generation is waited for.
  std::optional<RoundRecord> round;
  std::optional<Verdict> verdict;
  FormingRecord forming;
  GrowthRecord growth;
  std::vector<BlameRecord> blame;
  std::vector<DrainRecord> drained;
  std::vector<GenerationSummary> generations;  // oldest first
  LedgerRecord ledger;

  friend bool operator==(const JobRecord&, const JobRecord&) = default;
};

// Makes the record's times those of so much later.
void Age(absl::Duration elapsed, JobRecord& record);
// Sets `vanished` to the node that hosted the service, unless the agent `host` does, which hosts
// it now.
void MarkFormerHost(Incarnation host, JobRecord& record);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_RECORD_H_
