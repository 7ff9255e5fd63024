#include "tests/support/sample_messages.h"

#include <utility>

#include "base/version.h"
#include "rendezvous/wire/convert.h"

namespace ddprun::rendezvous {

WorkerFailure SampleFailure() {
  WorkerFailure failure;
  failure.rank = 3;
  failure.local_rank = 1;
  failure.node_id = NodeId("node-b");
  failure.hostname = "host1";
  failure.pid = 4711;
  failure.exit_code = 1;
  failure.signal = 9;
  failure.core_dumped = true;
  failure.start_error = "execve 'train.py': Permission denied";
  failure.message = "RuntimeError: größer\n";
  failure.traceback = "Traceback (most recent call last):\n…";
  failure.error_file = "/tmp/error.json";
  failure.stderr_tail = "last words";
  failure.facts = {"core: /tmp/core.1", "memory: all of it"};
  failure.wall_time_ms = 1'700'000'000'123;
  failure.after_first_ms = 17;
  failure.generation = Generation(5);
  failure.hung = true;
  failure.preflight = true;
  failure.texts_left_out = true;
  return failure;
}

AgentMessage SampleJoin(const std::string& run_id, const std::string& node_id, uint32_t nodes) {
  Join join;
  join.protocol_major = kProtocolMajor;
  join.node.release = kVersion;
  join.job.run_id = run_id;
  join.job.nodes_min = nodes;
  join.job.nodes_max = nodes;
  join.job.fingerprint = "f00d";
  join.job.description = "train.py --lr 0.1";
  join.node.hostname = "host-" + node_id;
  join.node.agent_pid = 99;
  join.node.address = "127.0.0.1";
  join.node.master_port = 29500;
  return {.run_id = run_id,
          .term = Term(0),
          .node_id = NodeId(node_id),
          .incarnation = Incarnation(7),
          .stream = StreamNumber(1),
          .generation = Generation(0),
          .sequence = 0,
          .body = std::move(join)};
}

namespace {

NodeTime SampleTime() {
  NodeTime time{.last = absl::Milliseconds(3), .last_in = TimeCause::kCheckpoint};
  time.spent[TimeCause::kTraining] = absl::Seconds(5);
  time.spent[TimeCause::kOther] = absl::Microseconds(7);
  return time;
}

// A Join with every field set.
AgentMessage FullJoin() {
  AgentMessage full = SampleJoin("job7", "node-b", 4);
  auto& join = std::get<Join>(full.body);
  join.token = "geheim";
  join.job.nodes_min = 2;
  join.job.max_restarts = 3;
  join.job.survivors_restart = true;
  join.job.join_timeout = absl::Seconds(11);
  join.job.last_call_timeout = absl::Seconds(12);
  join.job.lease = absl::Seconds(13);
  join.job.reconnect_grace = absl::Milliseconds(14);
  join.job.lease_is_proof = true;
  join.job.stop_grace = absl::Seconds(15);
  join.job.restart = {.max_membership_changes = 16,
                      .restart_window = absl::Seconds(17),
                      .backoff_max = absl::ZeroDuration(),
                      .crash_loop = 0,
                      .give_up_after = 18,
                      .quarantine_after = 19,
                      .quarantine_time = absl::Seconds(20),
                      .quarantine_shrinks = true};
  join.job.agents_started = 21;
  join.node.worker_count = 8;
  join.node.role = "trainer";
  join.node.node_rank = 0;
  join.node.hosts_endpoint = true;
  join.node.store_address = "host1:4444";
  join.node.guards = "keeper, cgroup";
  join.node.hosts_service = true;
  join.group_state = GroupState::kStopping;
  join.job_age = absl::Seconds(78);
  full.term = Term(77);
  full.generation = Generation(5);
  return full;
}

HangReport FullHangReport() {
  return {.workers = {{.local_rank = 0,
                       .phase = ProgressPhase::kTrain,
                       .step = 1234,
                       .silent = absl::Milliseconds(1500),
                       .suspect = true,
                       .overdue = true,
                       .early = true,
                       .activity = Activity::kStill,
                       .where = "futex_wait_queue",
                       .collectives = 57,
                       .expired = true,
                       .idle = true,
                       .deadlocked = true,
                       .left = true,
                       .groups = {{"0", 56, 8}, {"1", 7, 2}},
                       .inside_group = "1",
                       .inside_call = "all_reduce"},
                      {.local_rank = 1}},
          .sample = absl::Milliseconds(400)};
}

}  // namespace

std::vector<AgentMessage> SampleAgentMessages() {
  const AgentMessage full = FullJoin();
  std::vector<AgentMessage> messages = {full};
  const auto add = [&](auto body, uint64_t sequence) {
    AgentMessage message = full;
    message.sequence = sequence;
    message.body = std::move(body);
    messages.push_back(message);
  };
  add(Renewal{.nonce = 42,
              .progress = {uint64_t{2} << 56 | 7, 0},
              .step_time = absl::Milliseconds(20),
              .time = SampleTime(),
              .gpus = {{.index = 3,
                        .utilization = 97,
                        .memory_used = uint64_t{61} << 30,
                        .memory_total = uint64_t{80} << 30},
                       {.index = 4, .lost = true}},
              .warm = WarmUse{.warm_workers = 3,
                              .cold_workers = 1,
                              .saved = absl::Milliseconds(1800),
                              .parked_bytes = uint64_t{200} << 20,
                              .why_cold = "memory is short"},
              .can_rejoin = true,
              .hold_ups = {{1, {.lasted = absl::Milliseconds(4100), .why = "it sleeps"}}},
              .checkpoint_bytes = 7},
      0);
  add(WorkersStarted{}, 1);
  add(WorkerFailed{SampleFailure()}, 2);
  add(GroupSucceeded{.time = SampleTime()}, 3);
  add(GroupStopped{.failures = {SampleFailure(), SampleFailure()},
                   .clean = false,
                   .master_port = 29501,
                   .step = 12,
                   .time = SampleTime(),
                   .left = {0, 3},
                   .kept = 2},
      4);
  add(Leave{.reason = "SIGTERM", .end_job = true, .preempted = true}, 5);
  add(Heartbeat{.key = 43}, 0);
  add(FullHangReport(), 6);
  add(
      Preempt{
          .reason = "SIGUSR1", .deadline = absl::Seconds(21), .ends_job = true, .drained = true},
      7);
  add(StopPrepared{.round = 2,
                   .look = {.heeds = true,
                            .below = true,
                            .highest = 1234,
                            .step_time = absl::Microseconds(56789)}},
      8);
  return messages;
}

std::vector<ServiceMessage> SampleServiceMessages() {
  const Assignment assignment = {.generation = Generation(5),
                                 .restart_count = 2,
                                 .world_size = 12,
                                 .group_rank = 1,
                                 .group_world_size = 2,
                                 .base_rank = 4,
                                 .base_role_rank = 3,
                                 .role_world_size = 11,
                                 .master_addr = "host0",
                                 .master_port = 29500,
                                 .store_address = "host0:4444",
                                 .reason = "node c lost",
                                 .rule = "membership_change",
                                 .restarts_charged = 1,
                                 .redone_to = 77};
  return {Welcome{.term = Term(77),
                  .release = "0.1.0",
                  .lease = absl::Seconds(4),
                  .processed_sequence = 3,
                  .heartbeat_key = 44,
                  .job_age = absl::Seconds(77)},
          Probe{.nonce = 42, .processed_sequence = 4, .lease = absl::Seconds(20)},
          Standby{.reason = "1 of 2 nodes", .spare = true, .nodes_present = 1, .nodes_wanted = 2},
          assignment,
          StopWorkers{.generation = Generation(5), .reason = "rank 3 failed"},
          Verdict{.outcome = Outcome::kStopped,
                  .reason = "stopped on request",
                  .failures = {SampleFailure()},
                  .first_causes = 1,
                  .generation = Generation(5),
                  .restart_count = 2,
                  .rule = "stopped",
                  .failures_left_out = 7,
                  .causes_left_out = 3,
                  .whole_on = "host0"},
          ReportProgress{.generation = Generation(5), .sample = absl::Milliseconds(300)},
          HungWorkers{.generation = Generation(5),
                      .local_ranks = {0, 3},
                      .reason = "stopped by a signal",
                      .end = true},
          PrepareStop{.generation = Generation(5), .round = 2, .step = 1235},
          CommitStop{.generation = Generation(5),
                     .step = 1235,
                     .within = absl::Seconds(19),
                     .reason = "host1 is preempted: SIGUSR1"},
          Drain{.reason = "disk is failing"}};
}

}  // namespace ddprun::rendezvous
