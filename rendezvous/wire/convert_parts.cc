#include "rendezvous/wire/convert_parts.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/wire/fields.h"

namespace ddprun::rendezvous {
namespace {

constexpr uint32_t kExitCodeMax = 255;
constexpr uint32_t kSignalMax = 64;  // SIGRTMAX on Linux, signal(7)

}  // namespace

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, WorkerFailure>& core, ProtoOf<Wire, v1::WorkerFailure>& proto) {
  wire.Number(DDPRUN_FIELD(rank), 0, kWorkersMax - 1);
  wire.Number(DDPRUN_FIELD(local_rank), 0, kWorkersPerNodeMax - 1);
  wire.CutName(DDPRUN_FIELD(node_id));
  wire.CutName(DDPRUN_FIELD(hostname));
  wire.ProcessId(DDPRUN_FIELD(pid));
  wire.Number(DDPRUN_FIELD(exit_code), 0, kExitCodeMax);
  wire.Number(DDPRUN_FIELD(signal), 0, kSignalMax);
  wire.Any(DDPRUN_FIELD(core_dumped));
  wire.Text(DDPRUN_FIELD(start_error));
  wire.Text(DDPRUN_FIELD(message));
  wire.TextEnd(DDPRUN_FIELD(traceback), kTracebackBytesMax);
  wire.Text(DDPRUN_FIELD(error_file));
  wire.TextEnd(DDPRUN_FIELD(stderr_tail));
  wire.Any(DDPRUN_FIELD(wall_time_ms));
  wire.Any(DDPRUN_FIELD(after_first_ms));
  wire.Any(DDPRUN_FIELD(generation));
  wire.Any(DDPRUN_FIELD(hung));
  wire.Any(DDPRUN_FIELD(preflight));
  wire.Any(DDPRUN_FIELD(texts_left_out));
  if constexpr (Wire::kReads) {
    wire.checker()->Count(wire.Path("facts"), proto.facts_size(), kFactsMax);
    if (!wire.checker()->status().ok()) return;
    for (const std::string& fact : proto.facts()) {
      core.facts.push_back(wire.checker()->Text(wire.Path("facts"), fact, kFactBytesMax));
    }
  } else {
    for (size_t i = 0; i < std::min(core.facts.size(), kFactsMax); ++i) {
      proto.add_facts(CutText(core.facts[i], kFactBytesMax));
    }
  }
}

WorkerFailure ReadFailure(FieldChecker* checker, absl::string_view field,
                          const v1::WorkerFailure& proto) {
  return Read<WorkerFailure>(checker, field, proto);
}

void WriteFailure(const WorkerFailure& failure, v1::WorkerFailure* proto) { Write(failure, proto); }

std::vector<WorkerFailure> ReadFailures(
    FieldChecker* checker, absl::string_view field,
    const google::protobuf::RepeatedPtrField<v1::WorkerFailure>& protos) {
  std::vector<WorkerFailure> failures;
  checker->Count(field, protos.size(), kFailuresMax);
  if (!checker->status().ok()) return failures;
  for (int i = 0; i < protos.size(); ++i) {
    failures.push_back(ReadFailure(checker, absl::StrCat(field, "[", i, "]"), protos[i]));
  }
  return failures;
}

void WriteFailures(const std::vector<WorkerFailure>& failures,
                   google::protobuf::RepeatedPtrField<v1::WorkerFailure>* protos) {
  const size_t count = std::min(failures.size(), kFailuresMax);
  for (size_t i = 0; i < count; ++i) WriteFailure(failures[i], protos->Add());
}

namespace {

constexpr EnumTable<Outcome, v1::Outcome, 5> kOutcomes = {
    "outcome",
    {{Outcome::kFailed, v1::OUTCOME_FAILED},
     {Outcome::kSucceeded, v1::OUTCOME_SUCCEEDED},
     {Outcome::kStopped, v1::OUTCOME_STOPPED},
     {Outcome::kFailedForGood, v1::OUTCOME_FAILED_FOR_GOOD},
     {Outcome::kPreempted, v1::OUTCOME_PREEMPTED}}};
static_assert(std::size(kOutcomes.values) + 1 == v1::Outcome_ARRAYSIZE);

}  // namespace

// Absent fields keep their defaults.
template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, RestartRules>& core, ProtoOf<Wire, v1::RestartRules>& proto) {
  const auto wanted = [](bool has) { return has || !Wire::kReads; };
  if (wanted(proto.has_max_membership_changes())) {
    wire.Number(DDPRUN_FIELD(max_membership_changes), 0, kNoLimit);
  }
  wire.MillisecondsOrZero(DDPRUN_FIELD_AS(restart_window, restart_window_ms));
  if (wanted(proto.has_backoff_max_ms())) {
    wire.MillisecondsOrZero(DDPRUN_FIELD_AS(backoff_max, backoff_max_ms));
  }
  if (wanted(proto.has_crash_loop())) wire.Number(DDPRUN_FIELD(crash_loop), 0, kNoLimit);
  wire.Number(DDPRUN_FIELD(give_up_after), 0, kNoLimit);
  if (wanted(proto.has_quarantine_after())) {
    wire.Number(DDPRUN_FIELD(quarantine_after), 0, kBlameMax);
  }
  wire.Milliseconds(DDPRUN_FIELD_AS(quarantine_time, quarantine_time_ms), core.quarantine_time);
  wire.Any(DDPRUN_FIELD(quarantine_shrinks));
}

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, JobSpec>& core, ProtoOf<Wire, v1::JobSpec>& proto) {
  wire.Number(DDPRUN_FIELD(nodes_max), 1, kNodesMax);
  wire.Number(DDPRUN_FIELD(nodes_min), 1, proto.nodes_max());
  wire.Number(DDPRUN_FIELD(max_restarts), 0, kNoLimit);
  wire.Any(DDPRUN_FIELD(survivors_restart));
  wire.OptionalName(DDPRUN_FIELD(fingerprint));
  wire.Text(DDPRUN_FIELD(description));
  wire.Milliseconds(DDPRUN_FIELD_AS(join_timeout, join_timeout_ms), core.join_timeout);
  wire.Milliseconds(DDPRUN_FIELD_AS(last_call_timeout, last_call_timeout_ms),
                    core.last_call_timeout);
  wire.Milliseconds(DDPRUN_FIELD_AS(lease, lease_ms), core.lease, kLeaseMin);
  wire.Any(DDPRUN_FIELD(lease_is_proof));
  wire.Milliseconds(DDPRUN_FIELD_AS(reconnect_grace, reconnect_grace_ms), core.reconnect_grace);
  wire.Milliseconds(DDPRUN_FIELD_AS(stop_grace, stop_grace_ms), core.stop_grace);
  if constexpr (Wire::kReads) {
    Fields(FieldReader(wire.checker(), wire.Path("restart")), core.restart, proto.restart());
  } else {
    Write(core.restart, proto.mutable_restart());
  }
  wire.Number(DDPRUN_FIELD(agents_started), 0, kNodesMax);
}

// Params: nodes_max: of the job; a writer doesn't need it.
template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, NodeInfo>& core, ProtoOf<Wire, v1::NodeInfo>& proto,
            uint32_t nodes_max = 0) {
  wire.Name(DDPRUN_FIELD(hostname));
  wire.ProcessId(DDPRUN_FIELD(agent_pid));
  wire.Name(DDPRUN_FIELD(address));
  wire.Number(DDPRUN_FIELD(worker_count), 1, kWorkersPerNodeMax);
  if (!Wire::kReads || !proto.role().empty()) wire.Name(DDPRUN_FIELD(role));
  wire.Optional(DDPRUN_FIELD(node_rank), proto.has_node_rank());
  wire.Require(!proto.has_node_rank() || proto.node_rank() < nodes_max, "node_rank",
               proto.node_rank(), " is not below nodes_max, which is ", nodes_max);
  wire.Any(DDPRUN_FIELD(hosts_endpoint));
  wire.Port(DDPRUN_FIELD(master_port));
  wire.OptionalName(DDPRUN_FIELD(store_address));
  wire.OptionalName(DDPRUN_FIELD(guards));
  wire.Any(DDPRUN_FIELD(hosts_service));
}

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, Verdict>& core, ProtoOf<Wire, v1::Verdict>& proto) {
  wire.Enum(DDPRUN_FIELD(outcome), kOutcomes);
  wire.Text(DDPRUN_FIELD(reason));
  wire.Any(DDPRUN_FIELD(first_causes));
  if constexpr (Wire::kReads) {
    core.failures = ReadFailures(wire.checker(), wire.Path("failures"), proto.failures());
  } else {
    WriteFailures(core.failures, proto.mutable_failures());
    proto.set_first_causes(
        std::min(core.first_causes, static_cast<uint32_t>(proto.failures_size())));
  }
  wire.Require(proto.first_causes() <= static_cast<uint32_t>(proto.failures_size()), "first_causes",
               "is more than the number of failures");
  wire.Any(DDPRUN_FIELD(generation));
  wire.Any(DDPRUN_FIELD(restart_count));
  wire.CutName(DDPRUN_FIELD(rule));
  wire.Number(DDPRUN_FIELD(failures_left_out), 0, kFailuresMax);
  wire.Number(DDPRUN_FIELD(causes_left_out), 0, core.failures_left_out);
  wire.CutName(DDPRUN_FIELD(whole_on));
}

uint32_t ToMilliseconds(absl::Duration time) {
  const int64_t ms = absl::ToInt64Milliseconds(absl::Ceil(time, absl::Milliseconds(1)));
  return static_cast<uint32_t>(std::clamp<int64_t>(ms, 1, std::numeric_limits<uint32_t>::max()));
}

uint32_t ToMillisecondsOrZero(absl::Duration time) {
  return time <= absl::ZeroDuration() ? 0 : ToMilliseconds(time);
}

uint64_t ToWholeMilliseconds(absl::Duration time) {
  return static_cast<uint64_t>(absl::ToInt64Milliseconds(std::max(time, absl::ZeroDuration())));
}

uint32_t ToBoundedMicroseconds(absl::Duration time) {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  return static_cast<uint32_t>(std::clamp<int64_t>(absl::ToInt64Microseconds(time), 0, kMost));
}

uint64_t ToMicroseconds(absl::Duration time) {
  return static_cast<uint64_t>(absl::ToInt64Microseconds(std::max(time, absl::ZeroDuration())));
}

JobSpec ReadJobSpec(FieldChecker* checker, absl::string_view field, const std::string& run_id,
                    const v1::JobSpec& proto) {
  JobSpec job = Read<JobSpec>(checker, field, proto);
  job.run_id = run_id;
  return job;
}

void WriteJobSpec(const JobSpec& job, v1::JobSpec* proto) { Write(job, proto); }

NodeInfo ReadNodeInfo(FieldChecker* checker, absl::string_view field, const v1::NodeInfo& proto,
                      uint32_t nodes_max) {
  NodeInfo node;
  Fields(FieldReader(checker, field), node, proto, nodes_max);
  return node;
}

void WriteNodeInfo(const NodeInfo& node, v1::NodeInfo* proto) { Write(node, proto); }

Verdict ReadVerdict(FieldChecker* checker, absl::string_view field, const v1::Verdict& proto) {
  return Read<Verdict>(checker, field, proto);
}

void WriteVerdict(const Verdict& verdict, v1::Verdict* proto) { Write(verdict, proto); }

void WriteGpus(const std::vector<GpuUse>& gpus,
               google::protobuf::RepeatedPtrField<v1::GpuStatus>* protos) {
  for (size_t i = 0; i < std::min(gpus.size(), kGpusMax); ++i) {
    v1::GpuStatus* proto = protos->Add();
    proto->set_index(gpus[i].index);
    if (gpus[i].utilization.has_value()) proto->set_utilization_percent(*gpus[i].utilization);
    proto->set_memory_used_bytes(gpus[i].memory_used);
    proto->set_memory_total_bytes(gpus[i].memory_total);
    proto->set_lost(gpus[i].lost);
  }
}

void WriteWarm(const WarmUse& warm, v1::WarmStatus* proto) {
  proto->set_warm_workers(warm.warm_workers);
  proto->set_cold_workers(warm.cold_workers);
  proto->set_saved_ms(ToMillisecondsOrZero(warm.saved));
  proto->set_parked_bytes(warm.parked_bytes);
  proto->set_why_cold(CutText(warm.why_cold, kNameBytesMax));
}

TimeCause ReadTimeCause(int cause) {
  if (cause < v1::TIME_CAUSE_RENDEZVOUS || cause > v1::TIME_CAUSE_OTHER) return TimeCause::kOther;
  return static_cast<TimeCause>(cause - 1);
}

// The wire counts causes from 1.
v1::TimeCause WriteTimeCause(TimeCause cause) {
  static_assert(kTimeCauses == static_cast<size_t>(v1::TIME_CAUSE_OTHER));
  return static_cast<v1::TimeCause>(static_cast<int>(cause) + 1);
}

}  // namespace ddprun::rendezvous
