#include "rendezvous/wire/convert_parts.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/wire/convert_failure.h"
#include "rendezvous/wire/text.h"

namespace ddprun::rendezvous {
namespace {

// A time for which 0 has a meaning of its own.
absl::Duration ReadTimeOrZero(FieldChecker* checker, absl::string_view field, uint32_t ms) {
  return checker->Milliseconds(field, ms, absl::ZeroDuration());
}

RestartRules ReadRestartRules(FieldChecker* checker, absl::string_view field,
                              const v1::RestartRules& proto) {
  const auto path = [field](absl::string_view name) { return absl::StrCat(field, ".", name); };
  RestartRules rules;  // absent fields keep their defaults
  const auto count = [checker](absl::string_view name, uint32_t value) {
    return checker->Number(name, value, 0, std::numeric_limits<int32_t>::max());
  };
  if (proto.has_max_membership_changes()) {
    rules.max_membership_changes =
        count(path("max_membership_changes"), proto.max_membership_changes());
  }
  rules.restart_window =
      ReadTimeOrZero(checker, path("restart_window_ms"), proto.restart_window_ms());
  if (proto.has_backoff_max_ms()) {
    rules.backoff_max = ReadTimeOrZero(checker, path("backoff_max_ms"), proto.backoff_max_ms());
  }
  if (proto.has_crash_loop()) {
    rules.crash_loop = count(path("crash_loop"), proto.crash_loop());
  }
  rules.give_up_after = count(path("give_up_after"), proto.give_up_after());
  if (proto.has_quarantine_after()) {
    rules.quarantine_after =
        checker->Number(path("quarantine_after"), proto.quarantine_after(), 0, kBlameMax);
  }
  rules.quarantine_time = checker->Milliseconds(path("quarantine_time_ms"),
                                                proto.quarantine_time_ms(), rules.quarantine_time);
  rules.quarantine_shrinks = proto.quarantine_shrinks();
  return rules;
}

Outcome ReadOutcome(FieldChecker* checker, absl::string_view field, int outcome) {
  switch (outcome) {
    case v1::OUTCOME_SUCCEEDED:
      return Outcome::kSucceeded;
    case v1::OUTCOME_FAILED:
      return Outcome::kFailed;
    case v1::OUTCOME_STOPPED:
      return Outcome::kStopped;
    case v1::OUTCOME_FAILED_FOR_GOOD:
      return Outcome::kFailedForGood;
    case v1::OUTCOME_PREEMPTED:
      return Outcome::kPreempted;
    default:  // open enumerations of proto3 take any number
      checker->Require(false, field, absl::StrCat(outcome, " is no known outcome"));
      return Outcome::kFailed;
  }
}

v1::Outcome ToProto(Outcome outcome) {
  switch (outcome) {
    case Outcome::kSucceeded:
      return v1::OUTCOME_SUCCEEDED;
    case Outcome::kFailed:
      return v1::OUTCOME_FAILED;
    case Outcome::kFailedForGood:
      return v1::OUTCOME_FAILED_FOR_GOOD;
    case Outcome::kStopped:
      return v1::OUTCOME_STOPPED;
    case Outcome::kPreempted:
      return v1::OUTCOME_PREEMPTED;
  }
  return v1::OUTCOME_UNSPECIFIED;
}

void Write(const RestartRules& rules, v1::RestartRules* proto) {
  proto->set_max_membership_changes(rules.max_membership_changes);
  proto->set_restart_window_ms(ToMillisecondsOrZero(rules.restart_window));
  proto->set_backoff_max_ms(ToMillisecondsOrZero(rules.backoff_max));
  proto->set_crash_loop(rules.crash_loop);
  proto->set_give_up_after(rules.give_up_after);
  proto->set_quarantine_after(rules.quarantine_after);
  proto->set_quarantine_time_ms(ToMilliseconds(rules.quarantine_time));
  proto->set_quarantine_shrinks(rules.quarantine_shrinks);
}

}  // namespace

uint32_t ToMilliseconds(absl::Duration time) {
  const int64_t ms = absl::ToInt64Milliseconds(absl::Ceil(time, absl::Milliseconds(1)));
  return static_cast<uint32_t>(std::clamp<int64_t>(ms, 1, std::numeric_limits<uint32_t>::max()));
}

uint32_t ToMillisecondsOrZero(absl::Duration time) {
  return time <= absl::ZeroDuration() ? 0 : ToMilliseconds(time);
}

JobSpec ReadJobSpec(FieldChecker* checker, absl::string_view field, const std::string& run_id,
                    const v1::JobSpec& proto) {
  const auto path = [field](absl::string_view name) { return absl::StrCat(field, ".", name); };
  const JobSpec defaults;
  JobSpec job;
  job.run_id = run_id;
  job.nodes_max = checker->Number(path("nodes_max"), proto.nodes_max(), 1, kNodesMax);
  job.nodes_min = checker->Number(path("nodes_min"), proto.nodes_min(), 1, proto.nodes_max());
  job.max_restarts = checker->Number(path("max_restarts"), proto.max_restarts(), 0,
                                     std::numeric_limits<int32_t>::max());
  job.survivors_restart = proto.survivors_restart();
  job.fingerprint = checker->OptionalName(path("fingerprint"), proto.fingerprint());
  job.description = checker->Text(path("description"), proto.description());
  job.join_timeout = checker->Milliseconds(path("join_timeout_ms"), proto.join_timeout_ms(),
                                           defaults.join_timeout);
  job.last_call_timeout = checker->Milliseconds(
      path("last_call_timeout_ms"), proto.last_call_timeout_ms(), defaults.last_call_timeout);
  job.lease = checker->Milliseconds(path("lease_ms"), proto.lease_ms(), defaults.lease, kLeaseMin);
  job.lease_is_proof = proto.lease_is_proof();
  job.reconnect_grace = checker->Milliseconds(path("reconnect_grace_ms"),
                                              proto.reconnect_grace_ms(), defaults.reconnect_grace);
  job.stop_grace =
      checker->Milliseconds(path("stop_grace_ms"), proto.stop_grace_ms(), defaults.stop_grace);
  job.restart = ReadRestartRules(checker, path("restart"), proto.restart());
  job.agents_started =
      checker->Number(path("agents_started"), proto.agents_started(), 0, kNodesMax);
  return job;
}

NodeInfo ReadNodeInfo(FieldChecker* checker, absl::string_view field, const v1::NodeInfo& proto,
                      uint32_t nodes_max) {
  const auto path = [field](absl::string_view name) { return absl::StrCat(field, ".", name); };
  NodeInfo node;
  node.hostname = checker->Name(path("hostname"), proto.hostname());
  node.agent_pid = checker->ProcessId(path("agent_pid"), proto.agent_pid());
  node.address = checker->Name(path("address"), proto.address());
  node.worker_count =
      checker->Number(path("worker_count"), proto.worker_count(), 1, kWorkersPerNodeMax);
  if (!proto.role().empty()) node.role = checker->Name(path("role"), proto.role());
  if (proto.has_node_rank()) {
    node.node_rank = proto.node_rank();
    checker->Require(
        proto.node_rank() < nodes_max, path("node_rank"),
        absl::StrCat(proto.node_rank(), " is not below nodes_max, which is ", nodes_max));
  }
  node.hosts_endpoint = proto.hosts_endpoint();
  node.master_port = checker->Port(path("master_port"), proto.master_port());
  node.store_address = checker->OptionalName(path("store_address"), proto.store_address());
  node.guards = checker->OptionalName(path("guards"), proto.guards());
  node.hosts_service = proto.hosts_service();
  return node;
}

// Names are not cut: they are identities, and the receiver refuses a long one by its field's name.
void WriteJobSpec(const JobSpec& job, v1::JobSpec* proto) {
  proto->set_nodes_min(job.nodes_min);
  proto->set_nodes_max(job.nodes_max);
  proto->set_max_restarts(job.max_restarts);
  proto->set_survivors_restart(job.survivors_restart);
  proto->set_fingerprint(ValidUtf8(job.fingerprint));
  proto->set_description(CutText(job.description, kTextBytesMax));
  proto->set_join_timeout_ms(ToMilliseconds(job.join_timeout));
  proto->set_last_call_timeout_ms(ToMilliseconds(job.last_call_timeout));
  proto->set_lease_ms(ToMilliseconds(job.lease));
  proto->set_lease_is_proof(job.lease_is_proof);
  proto->set_reconnect_grace_ms(ToMilliseconds(job.reconnect_grace));
  proto->set_stop_grace_ms(ToMilliseconds(job.stop_grace));
  Write(job.restart, proto->mutable_restart());
  proto->set_agents_started(job.agents_started);
}

void WriteNodeInfo(const NodeInfo& node, v1::NodeInfo* proto) {
  proto->set_hostname(ValidUtf8(node.hostname));
  proto->set_agent_pid(node.agent_pid);
  proto->set_address(ValidUtf8(node.address));
  proto->set_worker_count(node.worker_count);
  proto->set_role(ValidUtf8(node.role));
  if (node.node_rank.has_value()) proto->set_node_rank(*node.node_rank);
  proto->set_hosts_endpoint(node.hosts_endpoint);
  proto->set_master_port(node.master_port);
  proto->set_store_address(ValidUtf8(node.store_address));
  proto->set_guards(ValidUtf8(node.guards));
  proto->set_hosts_service(node.hosts_service);
}

Verdict ReadVerdict(FieldChecker* checker, absl::string_view field, const v1::Verdict& proto) {
  const auto path = [field](absl::string_view name) { return absl::StrCat(field, ".", name); };
  Verdict verdict;
  verdict.outcome = ReadOutcome(checker, path("outcome"), proto.outcome());
  verdict.reason = checker->Text(path("reason"), proto.reason());
  verdict.failures = ReadFailures(checker, path("failures"), proto.failures());
  verdict.first_causes = proto.first_causes();
  checker->Require(proto.first_causes() <= static_cast<uint32_t>(proto.failures_size()),
                   path("first_causes"), "is more than the number of failures");
  verdict.generation = Generation(proto.generation());
  verdict.restart_count = proto.restart_count();
  verdict.rule = checker->OptionalName(path("rule"), proto.rule());
  verdict.failures_left_out =
      checker->Number(path("failures_left_out"), proto.failures_left_out(), 0, kFailuresMax);
  verdict.causes_left_out = checker->Number(path("causes_left_out"), proto.causes_left_out(), 0,
                                            verdict.failures_left_out);
  verdict.whole_on = checker->OptionalName(path("whole_on"), proto.whole_on());
  return verdict;
}

void WriteVerdict(const Verdict& verdict, v1::Verdict* proto) {
  proto->set_outcome(ToProto(verdict.outcome));
  proto->set_reason(CutText(verdict.reason, kTextBytesMax));
  WriteFailures(verdict.failures, proto->mutable_failures());
  proto->set_first_causes(
      std::min(verdict.first_causes, static_cast<uint32_t>(proto->failures_size())));
  proto->set_generation(verdict.generation.value());
  proto->set_restart_count(verdict.restart_count);
  proto->set_rule(CutText(verdict.rule, kNameBytesMax));
  proto->set_failures_left_out(verdict.failures_left_out);
  proto->set_causes_left_out(verdict.causes_left_out);
  proto->set_whole_on(CutText(verdict.whole_on, kNameBytesMax));
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
