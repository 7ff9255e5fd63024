#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/bounds.h"
#include "rendezvous/wire/convert.h"
#include "tests/support/sample_messages.h"

// What the network may say and is refused for (R9): each row breaks one field of a valid message.
namespace ddprun::rendezvous {
namespace {

using ::testing::HasSubstr;

constexpr auto kMalformed = absl::StatusCode::kInvalidArgument;
constexpr auto kTooMuch = absl::StatusCode::kResourceExhausted;
constexpr auto kMajor = absl::StatusCode::kFailedPrecondition;
constexpr uint32_t kWeek = 7 * 24 * 3600 * 1000;

enum AgentSample {
  kJoin,
  kRenewal,
  kStarted,
  kFailed,
  kSucceeded,
  kStopped,
  kLeave,
  kHeartbeat,
  kHangs,
  kPreempt,
  kPrepared
};
enum ServiceSample {
  kWelcome,
  kProbe,
  kStandby,
  kAssignment,
  kStopWorkers,
  kVerdict,
  kAsk,
  kHungWorkers,
  kPrepare,
  kCommit
};

const std::string kLongName(kNameBytesMax + 1, 'n');
const std::string kLongText(kTextBytesMax + 1, 't');

struct AgentRow {
  AgentSample sample;
  std::function<void(v1::AgentMessage*)> damage;
  absl::StatusCode code;
  std::string text;  // what the error must name
};

using M = v1::AgentMessage;
using AgentRows = std::vector<AgentRow>;
constexpr uint32_t kHuge = std::numeric_limits<uint32_t>::max();

AgentRows EnvelopeRows() {
  return {

      {kRenewal, [](M* m) { m->clear_run_id(); }, kMalformed, "run_id: is empty"},
      {kRenewal, [](M* m) { m->set_run_id(kLongName); }, kTooMuch, "run_id: has 257 bytes"},
      {kRenewal, [](M* m) { m->set_run_id("a\nb"); }, kMalformed, "run_id: 'a\\nb' holds"},
      {kRenewal, [](M* m) { m->clear_node_id(); }, kMalformed, "node_id: is empty"},
      {kRenewal, [](M* m) { m->set_node_id(kLongName); }, kTooMuch, "node_id: has 257 bytes"},
      {kRenewal, [](M* m) { m->clear_incarnation(); }, kMalformed, "incarnation: is 0"},
      {kRenewal, [](M* m) { m->clear_stream(); }, kMalformed, "stream: is 0"},
      {kRenewal, [](M* m) { m->set_sequence(3); }, kMalformed, "sequence: is not 0"},
      {kJoin, [](M* m) { m->set_sequence(3); }, kMalformed, "sequence: is not 0"},
      {kStarted, [](M* m) { m->clear_sequence(); }, kMalformed, "sequence: is 0"},
      {kLeave, [](M* m) { m->clear_sequence(); }, kMalformed, "sequence: is 0"},
      {kHeartbeat, [](M* m) { m->set_sequence(3); }, kMalformed, "sequence: is not 0"},
      {kHeartbeat, [](M* m) { m->mutable_heartbeat()->clear_key(); }, kMalformed,
       "heartbeat.key: is 0"},
      {kRenewal,
       [](M* m) {
         m->mutable_renewal()->clear_progress();
         for (uint32_t i = 0; i <= kWorkersPerNodeMax; ++i) m->mutable_renewal()->add_progress(1);
       },
       kMalformed, "renewal.progress: reports 4097 workers, a node has at most 4096"},
      {kRenewal, [](M* m) { m->mutable_renewal()->mutable_time()->set_last_us(UINT64_MAX); },
       kMalformed, "renewal.time.last_us: 18446744073709551615 is above 2^56"},
      {kRenewal, [](M* m) { m->mutable_renewal()->mutable_gpus(0)->set_utilization_percent(101); },
       kMalformed, "renewal.gpus.utilization_percent: 101"},
      {kRenewal, [](M* m) { m->mutable_renewal()->add_gpus()->set_index(3); }, kMalformed,
       "renewal.gpus: reports GPU 3 twice"},
      {kRenewal,
       [](M* m) {
         auto* gpus = m->mutable_renewal()->mutable_gpus();
         while (gpus->size() <= static_cast<int>(kGpusMax)) gpus->Add();
       },
       kTooMuch, "renewal.gpus: has 257 entries"},
      {kRenewal, [](M* m) { m->mutable_renewal()->mutable_warm()->set_cold_workers(4097); },
       kMalformed, "renewal.warm.cold_workers: 4097"},
      {kRenewal,
       [](M* m) { m->mutable_renewal()->mutable_warm()->set_why_cold(std::string(257, 'x')); },
       kTooMuch, "renewal.warm.why_cold: "},
      {kRenewal, [](M* m) { m->clear_body(); }, kMalformed, "body: is missing"},
      {kJoin, [](M* m) { m->mutable_join()->set_protocol_major(2); }, kMajor,
       "upgrade ddprun where the rendezvous service runs"},
      {kJoin, [](M* m) { m->mutable_join()->set_protocol_major(0); }, kMajor,
       "upgrade ddprun on the agent's node"},
      // Nothing else of another major is judged.
      {kJoin, [](M* m) { m->clear_run_id(), m->mutable_join()->set_protocol_major(9); }, kMajor,
       "speaks protocol 9"},
  };
}

AgentRows JobRows() {
  const auto job = [](M* m) { return m->mutable_join()->mutable_job(); };
  return {
      {kJoin, [](M* m) { m->mutable_join()->clear_job(); }, kMalformed, "join.job: is missing"},
      {kJoin, [](M* m) { m->mutable_join()->clear_node(); }, kMalformed, "join.node: is missing"},
      {kJoin, [](M* m) { m->mutable_join()->set_release(kLongName); }, kTooMuch, "join.release"},
      {kJoin, [](M* m) { m->mutable_join()->set_token(kLongText); }, kTooMuch, "join.token"},
      {kJoin, [](M* m) { m->mutable_join()->clear_group_state(); }, kMalformed,
       "join.group_state: 0"},
      {kJoin, [](M* m) { m->mutable_join()->set_group_state(static_cast<v1::GroupState>(5)); },
       kMalformed, "join.group_state: 5"},
      {kJoin, [=](M* m) { job(m)->set_nodes_min(0); }, kMalformed, "join.job.nodes_min: 0"},
      {kJoin, [=](M* m) { job(m)->set_nodes_min(5); }, kMalformed,
       "join.job.nodes_min: 5 is not within 1 to 4"},
      {kJoin, [=](M* m) { job(m)->set_nodes_max(0); }, kMalformed, "join.job.nodes_max: 0"},
      {kJoin, [=](M* m) { job(m)->set_nodes_max(kNodesMax + 1); }, kMalformed,
       "join.job.nodes_max: 16385 is not within 1 to 16384"},
      {kJoin, [=](M* m) { job(m)->set_max_restarts(kHuge); }, kMalformed, "join.job.max_restarts"},
      {kJoin, [=](M* m) { job(m)->set_fingerprint(kLongName); }, kTooMuch, "join.job.fingerprint"},
      {kJoin, [=](M* m) { job(m)->set_description(kLongText); }, kTooMuch, "join.job.description"},
      {kJoin, [=](M* m) { job(m)->set_join_timeout_ms(kWeek + 1); }, kMalformed,
       "join.job.join_timeout_ms: 604800001 ms is not within"},
      {kJoin, [=](M* m) { job(m)->set_last_call_timeout_ms(kHuge); }, kMalformed,
       "join.job.last_call_timeout_ms"},
      {kJoin, [=](M* m) { job(m)->set_lease_ms(kHuge); }, kMalformed, "join.job.lease_ms"},
      {kJoin, [=](M* m) { job(m)->set_lease_ms(199); }, kMalformed, "join.job.lease_ms: 199 ms"},
      {kJoin, [=](M* m) { job(m)->set_reconnect_grace_ms(kHuge); }, kMalformed,
       "join.job.reconnect_grace_ms"},
      {kJoin, [=](M* m) { job(m)->set_stop_grace_ms(kHuge); }, kMalformed,
       "join.job.stop_grace_ms"},
  };
}

AgentRows HangRows() {
  const auto report = [](M* m) { return m->mutable_hang_report(); };
  return {
      {kHangs, [=](M* m) { m->set_sequence(0); }, kMalformed, "sequence: is 0"},
      {kHangs, [=](M* m) { report(m)->set_sample_ms(kHuge); }, kMalformed, "hang_report.sample_ms"},
      {kHangs, [=](M* m) { report(m)->mutable_workers(0)->set_local_rank(4096); }, kMalformed,
       "hang_report.workers.local_rank: 4096"},
      {kHangs, [=](M* m) { report(m)->mutable_workers(0)->set_local_rank(1); }, kMalformed,
       "hang_report.workers.local_rank: 1 comes twice"},
      {kHangs, [=](M* m) { report(m)->mutable_workers(0)->set_phase(8); }, kMalformed,
       "hang_report.workers.phase: 8"},
      {kHangs, [=](M* m) { report(m)->mutable_workers(0)->set_step(uint64_t{1} << 56); },
       kMalformed, "hang_report.workers.step"},
      {kHangs,
       [=](M* m) { report(m)->mutable_workers(0)->set_activity(static_cast<v1::Activity>(4)); },
       kMalformed, "hang_report.workers.activity: 4"},
      {kHangs, [=](M* m) { report(m)->mutable_workers(0)->set_where(std::string(257, 'w')); },
       kTooMuch, "hang_report.workers.where"},
      {kHangs, [=](M* m) { report(m)->mutable_workers(0)->mutable_groups(0)->set_name(kLongText); },
       kTooMuch, "hang_report.workers.groups.name"},
      {kHangs,
       [=](M* m) {
         for (size_t i = 0; i <= kGroupsMax; ++i) report(m)->mutable_workers(0)->add_groups();
       },
       kTooMuch, "hang_report.workers.groups: has"},
      {kHangs, [=](M* m) { report(m)->mutable_workers(0)->set_inside_group(kLongText); }, kTooMuch,
       "hang_report.workers.inside_group"},
      {kHangs, [=](M* m) { report(m)->mutable_workers(0)->set_inside_call(kLongText); }, kTooMuch,
       "hang_report.workers.inside_call"},
      {kHangs,
       [=](M* m) {
         for (uint32_t i = 0; i < kWorkersPerNodeMax; ++i) report(m)->add_workers();
       },
       kTooMuch, "hang_report.workers: has 4098 entries"},
  };
}

AgentRows RestartRows() {
  const auto rules = [](M* m) { return m->mutable_join()->mutable_job()->mutable_restart(); };
  return {
      {kJoin, [=](M* m) { rules(m)->set_max_membership_changes(kHuge); }, kMalformed,
       "join.job.restart.max_membership_changes"},
      {kJoin, [=](M* m) { rules(m)->set_restart_window_ms(kHuge); }, kMalformed,
       "join.job.restart.restart_window_ms"},
      {kJoin, [=](M* m) { rules(m)->set_backoff_max_ms(kWeek + 1); }, kMalformed,
       "join.job.restart.backoff_max_ms: 604800001 ms"},
      {kJoin, [=](M* m) { rules(m)->set_crash_loop(kHuge); }, kMalformed,
       "join.job.restart.crash_loop"},
      {kJoin, [=](M* m) { rules(m)->set_give_up_after(kHuge); }, kMalformed,
       "join.job.restart.give_up_after"},
      {kJoin, [=](M* m) { rules(m)->set_quarantine_after(kBlameMax + 1); }, kMalformed,
       "join.job.restart.quarantine_after: 1001 is not within 0 to 1000"},
      {kJoin, [=](M* m) { rules(m)->set_quarantine_time_ms(kHuge); }, kMalformed,
       "join.job.restart.quarantine_time_ms"},
  };
}

AgentRows NodeRows() {
  const auto node = [](M* m) { return m->mutable_join()->mutable_node(); };
  return {
      {kJoin, [=](M* m) { node(m)->clear_hostname(); }, kMalformed, "join.node.hostname"},
      {kJoin, [=](M* m) { node(m)->set_hostname(kLongName); }, kTooMuch, "join.node.hostname"},
      {kJoin, [=](M* m) { node(m)->set_agent_pid(kHuge); }, kMalformed, "join.node.agent_pid"},
      {kJoin, [=](M* m) { node(m)->clear_address(); }, kMalformed, "join.node.address: is empty"},
      {kJoin, [=](M* m) { node(m)->set_address(kLongName); }, kTooMuch, "join.node.address"},
      {kJoin, [=](M* m) { node(m)->set_worker_count(0); }, kMalformed,
       "join.node.worker_count: 0 is not within 1 to 4096"},
      {kJoin, [=](M* m) { node(m)->set_worker_count(4097); }, kMalformed,
       "join.node.worker_count: 4097"},
      {kJoin, [=](M* m) { node(m)->set_role(kLongName); }, kTooMuch, "join.node.role"},
      {kJoin, [=](M* m) { node(m)->set_node_rank(4); }, kMalformed,
       "join.node.node_rank: 4 is not below nodes_max"},
      {kJoin, [=](M* m) { node(m)->set_master_port(65536); }, kMalformed, "join.node.master_port"},
      {kJoin, [=](M* m) { node(m)->set_store_address(kLongName); }, kTooMuch,
       "join.node.store_address"},
      {kJoin, [=](M* m) { node(m)->set_guards(kLongName); }, kTooMuch, "join.node.guards"},
  };
}

AgentRows StopRows() {
  return {
      {kPreempt, [](M* m) { m->mutable_preempt()->set_reason(kLongText); }, kTooMuch,
       "preempt.reason"},
      {kPreempt, [](M* m) { m->mutable_preempt()->set_deadline_ms(kWeek + 1); }, kMalformed,
       "preempt.deadline_ms"},
      {kPreempt, [](M* m) { m->set_sequence(0); }, kMalformed, "sequence: is 0"},
      {kPrepared, [](M* m) { m->mutable_stop_prepared()->clear_round(); }, kMalformed,
       "stop_prepared.round: is 0"},
      {kPrepared, [](M* m) { m->mutable_stop_prepared()->set_highest_step(uint64_t{1} << 56); },
       kMalformed, "stop_prepared.highest_step"},
  };
}

AgentRows EventRows() {
  const auto failure = [](M* m) { return m->mutable_worker_failed()->mutable_failure(); };
  return {
      {kFailed, [](M* m) { m->mutable_worker_failed()->clear_failure(); }, kMalformed,
       "worker_failed.failure: is missing"},
      {kFailed, [=](M* m) { failure(m)->set_rank(kHuge); }, kMalformed, "failure.rank"},
      {kFailed, [=](M* m) { failure(m)->set_local_rank(4096); }, kMalformed, "failure.local_rank"},
      {kFailed, [=](M* m) { failure(m)->set_node_id(kLongName); }, kTooMuch, "failure.node_id"},
      {kFailed, [=](M* m) { failure(m)->set_hostname("a\x1b[2J"); }, kMalformed,
       "failure.hostname: 'a\\x1b[2J' holds a control character"},
      {kFailed, [=](M* m) { failure(m)->set_pid(kHuge); }, kMalformed, "failure.pid"},
      {kFailed, [=](M* m) { failure(m)->set_exit_code(256); }, kMalformed, "failure.exit_code"},
      {kFailed, [=](M* m) { failure(m)->set_signal(65); }, kMalformed, "failure.signal"},
      {kFailed, [=](M* m) { failure(m)->set_start_error(kLongText); }, kTooMuch, "start_error"},
      {kFailed, [=](M* m) { failure(m)->set_message(kLongText); }, kTooMuch, "failure.message"},
      {kFailed, [=](M* m) { failure(m)->set_traceback(std::string(kTracebackBytesMax + 1, 'x')); },
       kTooMuch, "failure.traceback: has 16385 bytes, at most 16384"},
      {kFailed, [=](M* m) { failure(m)->set_error_file(kLongText); }, kTooMuch, "error_file"},
      {kFailed, [=](M* m) { failure(m)->set_stderr_tail(kLongText); }, kTooMuch, "stderr_tail"},
      {kFailed, [=](M* m) { failure(m)->add_facts(std::string(kFactBytesMax + 1, 'x')); }, kTooMuch,
       "failure.facts: has 513 bytes"},
      {kFailed,
       [=](M* m) {
         for (int i = 0; i < 9; ++i) failure(m)->add_facts("x");
       },
       kTooMuch, "failure.facts: has "},
      {kStopped, [](M* m) { m->mutable_group_stopped()->set_step(uint64_t{1} << 56); }, kMalformed,
       "group_stopped.step: is above"},
      {kStopped,
       [](M* m) {
         for (int i = 0; i < 63; ++i) m->mutable_group_stopped()->add_failures();
       },
       kTooMuch, "group_stopped.failures: has 65 entries"},
      {kStopped, [](M* m) { m->mutable_group_stopped()->mutable_failures(1)->set_signal(99); },
       kMalformed, "group_stopped.failures[1].signal: 99"},
      {kStopped, [](M* m) { m->mutable_group_stopped()->set_master_port(70000); }, kMalformed,
       "group_stopped.master_port"},
      {kLeave, [](M* m) { m->mutable_leave()->set_reason(kLongText); }, kTooMuch, "leave.reason"},
  };
}

TEST(FromProtoRefuses, EachDamagedAgentMessage) {
  const std::vector<AgentMessage> samples = SampleAgentMessages();
  AgentRows rows;
  for (const AgentRows& part : {EnvelopeRows(), JobRows(), RestartRows(), NodeRows(), EventRows(),
                                HangRows(), StopRows()}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  for (const AgentRow& row : rows) {
    v1::AgentMessage proto = ToProto(samples[row.sample]);
    ASSERT_TRUE(FromProto(proto).ok()) << FromProto(proto).status();
    row.damage(&proto);
    const absl::Status status = FromProto(proto).status();
    EXPECT_EQ(status.code(), row.code) << row.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.text));
  }
}

struct ServiceRow {
  ServiceSample sample;
  std::function<void(v1::ServiceMessage*)> damage;
  absl::StatusCode code;
  std::string text;
};

std::vector<ServiceRow> HangServiceRows() {
  using S = v1::ServiceMessage;
  return {
      {kAsk, [](S* m) { m->mutable_report_progress()->clear_generation(); }, kMalformed,
       "report_progress.generation"},
      {kAsk, [](S* m) { m->mutable_report_progress()->set_sample_ms(kWeek + 1); }, kMalformed,
       "report_progress.sample_ms"},
      {kHungWorkers, [](S* m) { m->mutable_hung_workers()->clear_generation(); }, kMalformed,
       "hung_workers.generation"},
      {kHungWorkers, [](S* m) { m->mutable_hung_workers()->clear_local_ranks(); }, kMalformed,
       "hung_workers.local_ranks: is empty"},
      {kHungWorkers,
       [](S* m) { m->mutable_hung_workers()->set_local_ranks(0, kWorkersPerNodeMax); }, kMalformed,
       "hung_workers.local_ranks: 4096"},
      {kHungWorkers,
       [](S* m) {
         for (uint32_t i = 0; i < kWorkersPerNodeMax; ++i)
           m->mutable_hung_workers()->add_local_ranks(i);
       },
       kTooMuch, "hung_workers.local_ranks: has 4098 entries"},
      {kHungWorkers, [](S* m) { m->mutable_hung_workers()->set_reason(kLongText); }, kTooMuch,
       "reason"},
  };
}

std::vector<ServiceRow> StopServiceRows() {
  using S = v1::ServiceMessage;
  return {
      {kPrepare, [](S* m) { m->mutable_prepare_stop()->clear_generation(); }, kMalformed,
       "prepare_stop.generation"},
      {kPrepare, [](S* m) { m->mutable_prepare_stop()->clear_round(); }, kMalformed,
       "prepare_stop.round"},
      {kPrepare, [](S* m) { m->mutable_prepare_stop()->set_step(uint64_t{1} << 56); }, kMalformed,
       "prepare_stop.step"},
      {kCommit, [](S* m) { m->mutable_commit_stop()->clear_generation(); }, kMalformed,
       "commit_stop.generation"},
      {kCommit, [](S* m) { m->mutable_commit_stop()->clear_step(); }, kMalformed,
       "commit_stop.step"},
      {kCommit, [](S* m) { m->mutable_commit_stop()->set_step(uint64_t{1} << 56); }, kMalformed,
       "commit_stop.step"},
      {kCommit, [](S* m) { m->mutable_commit_stop()->set_within_ms(kWeek + 1); }, kMalformed,
       "commit_stop.within_ms"},
      {kCommit, [](S* m) { m->mutable_commit_stop()->set_reason(kLongText); }, kTooMuch,
       "commit_stop.reason"},
  };
}

std::vector<ServiceRow> ServiceRows() {
  using S = v1::ServiceMessage;
  const auto assignment = [](S* m) { return m->mutable_assignment(); };
  return {
      {kProbe, [](S* m) { m->clear_body(); }, kMalformed, "body: is missing"},
      {kWelcome, [](S* m) { m->mutable_welcome()->set_protocol_major(2); }, kMajor,
       "upgrade ddprun on this node"},
      {kWelcome, [](S* m) { m->mutable_welcome()->set_protocol_major(0); }, kMajor,
       "upgrade ddprun where the rendezvous service runs"},
      {kWelcome, [](S* m) { m->mutable_welcome()->clear_term(); }, kMalformed, "welcome.term"},
      {kWelcome, [](S* m) { m->mutable_welcome()->set_release(kLongName); }, kTooMuch, "release"},
      {kWelcome, [](S* m) { m->mutable_welcome()->set_lease_ms(5); }, kMalformed, "lease_ms"},
      {kStandby, [](S* m) { m->mutable_standby()->set_reason(kLongText); }, kTooMuch, "reason"},
      {kStandby, [](S* m) { m->mutable_standby()->set_nodes_present(16385); }, kMalformed,
       "standby.nodes_present"},
      {kStandby, [](S* m) { m->mutable_standby()->set_nodes_wanted(16385); }, kMalformed,
       "standby.nodes_wanted"},
      {kAssignment, [=](S* m) { assignment(m)->clear_generation(); }, kMalformed, "generation"},
      {kAssignment, [=](S* m) { assignment(m)->set_world_size(0); }, kMalformed, "world_size: 0"},
      {kAssignment, [=](S* m) { assignment(m)->set_group_rank(2); }, kMalformed, "group_rank"},
      {kAssignment, [=](S* m) { assignment(m)->set_group_world_size(0); }, kMalformed,
       "group_world_size"},
      {kAssignment, [=](S* m) { assignment(m)->set_base_rank(12); }, kMalformed, "base_rank"},
      {kAssignment, [=](S* m) { assignment(m)->set_base_role_rank(11); }, kMalformed,
       "base_role_rank"},
      {kAssignment, [=](S* m) { assignment(m)->set_role_world_size(13); }, kMalformed,
       "role_world_size: 13 is not within 1 to 12"},
      {kAssignment, [=](S* m) { assignment(m)->clear_master_addr(); }, kMalformed, "master_addr"},
      {kAssignment, [=](S* m) { assignment(m)->set_master_port(65536); }, kMalformed,
       "master_port"},
      {kAssignment, [=](S* m) { assignment(m)->set_store_address(kLongName); }, kTooMuch,
       "store_address"},
      {kAssignment, [=](S* m) { assignment(m)->set_reason(kLongText); }, kTooMuch, "reason"},
      {kAssignment, [=](S* m) { assignment(m)->set_rule(kLongName); }, kTooMuch, "assignment.rule"},
      {kAssignment, [=](S* m) { assignment(m)->set_restarts_charged(3); }, kMalformed,
       "assignment.restarts_charged"},
      {kAssignment, [=](S* m) { assignment(m)->set_redone_to(uint64_t{1} << 56); }, kMalformed,
       "assignment.redone_to"},
      {kStopWorkers, [](S* m) { m->mutable_stop_workers()->clear_generation(); }, kMalformed,
       "stop_workers.generation"},
      {kStopWorkers, [](S* m) { m->mutable_stop_workers()->set_reason(kLongText); }, kTooMuch,
       "stop_workers.reason"},
      {kVerdict, [](S* m) { m->mutable_verdict()->clear_outcome(); }, kMalformed, "outcome: 0"},
      {kVerdict, [](S* m) { m->mutable_verdict()->set_outcome(static_cast<v1::Outcome>(6)); },
       kMalformed, "outcome: 6"},
      {kVerdict, [](S* m) { m->mutable_verdict()->set_reason(kLongText); }, kTooMuch, "reason"},
      {kVerdict, [](S* m) { m->mutable_verdict()->set_rule(kLongName); }, kTooMuch, "verdict.rule"},
      {kVerdict, [](S* m) { m->mutable_verdict()->set_first_causes(2); }, kMalformed,
       "first_causes"},
      {kVerdict, [](S* m) { m->mutable_verdict()->set_failures_left_out(65); }, kMalformed,
       "verdict.failures_left_out: 65 is not within 0 to 64"},
      {kVerdict, [](S* m) { m->mutable_verdict()->set_causes_left_out(8); }, kMalformed,
       "verdict.causes_left_out: 8 is not within 0 to 7"},
      {kVerdict, [](S* m) { m->mutable_verdict()->set_whole_on(kLongName); }, kTooMuch,
       "verdict.whole_on"},
      {kVerdict, [](S* m) { m->mutable_verdict()->mutable_failures(0)->set_signal(65); },
       kMalformed, "verdict.failures[0].signal"},
  };
}

TEST(FromProtoRefuses, EachDamagedServiceMessage) {
  const std::vector<ServiceMessage> samples = SampleServiceMessages();
  std::vector<ServiceRow> rows = ServiceRows();
  for (ServiceRow& row : HangServiceRows()) rows.push_back(std::move(row));
  for (ServiceRow& row : StopServiceRows()) rows.push_back(std::move(row));
  for (const ServiceRow& row : rows) {
    v1::ServiceMessage proto = ToProto(samples[row.sample]);
    ASSERT_TRUE(FromProto(proto).ok()) << FromProto(proto).status();
    row.damage(&proto);
    const absl::Status status = FromProto(proto).status();
    EXPECT_EQ(status.code(), row.code) << row.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.text));
  }
}

// The bounds themselves are allowed.
TEST(FromProtoTakes, ValuesAtTheirBounds) {
  v1::AgentMessage proto = ToProto(SampleAgentMessages()[kJoin]);
  proto.set_run_id(std::string(kNameBytesMax, 'r'));
  v1::JobSpec* job = proto.mutable_join()->mutable_job();
  job->set_nodes_max(kNodesMax);
  job->set_nodes_min(kNodesMax);
  job->set_description(std::string(kTextBytesMax, 'd'));
  job->set_join_timeout_ms(kWeek);
  job->set_lease_ms(200);
  proto.mutable_join()->mutable_node()->set_worker_count(kWorkersPerNodeMax);
  proto.mutable_join()->mutable_node()->set_node_rank(kNodesMax - 1);
  proto.mutable_join()->mutable_node()->set_master_port(65535);
  EXPECT_TRUE(FromProto(proto).ok()) << FromProto(proto).status();
}

}  // namespace
}  // namespace ddprun::rendezvous
