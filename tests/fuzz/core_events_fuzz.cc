#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/rng.h"
#include "base/version.h"
#include "rendezvous/core/job/state_machine.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/input_bytes.h"
#include "tests/support/inputs.h"
#include "tests/support/trace_digest.h"

namespace ddprun::rendezvous {

// Plays the bytes as events into the rendezvous core and checks its invariants after each: agents
// that mostly follow the protocol and now and then send what no agent would. Aborts when an
// invariant breaks or an effect names a stream that isn't open. Returns how many generations
// formed. Params: digest: takes every step in; null = none is wanted.
uint64_t FuzzCoreEvents(const uint8_t* data, size_t size, testing::TraceDigest* digest = nullptr);

namespace {

constexpr size_t kAgents = 6;
constexpr Term kTerm(7);

class Player {
 public:
  Player(const uint8_t* data, size_t size, testing::TraceDigest* digest)
      : bytes_(data, size), digest_(digest) {
    const uint8_t shape = bytes_.Next();
    machine_ = std::make_unique<StateMachine>(kTerm, "", /*keeps=*/shape < 128);
    spec_.run_id = "job7";
    spec_.nodes_max = 1 + shape % 4;
    spec_.nodes_min = 1 + (shape / 4) % spec_.nodes_max;
    spec_.max_restarts = shape / 16 % 4 * 3;
    spec_.survivors_restart = spec_.max_restarts == 0;
    spec_.join_timeout = absl::Seconds(20);
    spec_.last_call_timeout = absl::Seconds(1);
    spec_.lease = absl::Seconds(2);
    spec_.stop_grace = absl::Seconds(1);
    for (size_t i = 0; i < kAgents; ++i) {
      agents_[i].id = NodeId(absl::StrCat("n", i % 5));  // two agents of one node
      agents_[i].incarnation = Incarnation(i + 1);
    }
  }

  uint64_t Play() {
    while (!bytes_.empty()) PlayOne();
    return generations_;
  }

 private:
  struct Agent {
    NodeId id;
    Incarnation incarnation;
    StreamNumber stream_number;
    StreamKey stream;  // 0 = none
    bool joined = false;
    uint64_t sequence = 0;
    Generation generation;
    uint64_t nonce = 0;
  };

  void PlayOne() {
    const uint8_t choice = bytes_.Next();
    Agent& agent = agents_[choice % kAgents];
    switch (choice / kAgents % 12) {
      case 0:
      case 1:
        return SendJoin(agent);
      case 2:
        if (agent.stream != StreamKey()) Close(agent);
        return;
      case 3:
        now_ = now_ + absl::Milliseconds(bytes_.Next() * 16);
        return Step(TimerDue{});
      case 4:
        return AdvanceToDeadline();
      case 5:
        return Send(agent, Renewal{bytes_.Around(agent.nonce)}, /*event=*/false);
      case 6:
        return Send(agent, WorkersStarted{});
      case 7:
        return Send(agent, WorkerFailed{Failure()});
      case 8:
        return Send(agent, GroupSucceeded{});
      case 9:
      case 10:
        return Send(agent, Stopped());
      default:
        return PlayRare(agent);
    }
  }

  void PlayRare(Agent& agent) {
    switch (bytes_.Next() % 19) {
      case 18:
        return Restart();
      case 0:
        return Send(agent, Leave{"SIGINT", true});
      case 1:
      case 2:
      case 3:
        return Send(agent, Leave{"SIGTERM", false});
      case 4:
        return Step(StopRequested{"asked"});
      case 16:
      case 17:
        return Step(DrainRequested{.node = agent.id, .reason = "", .undo = bytes_.Next() % 4 == 0});
      case 5:
        return Step(PersistDone{absl::DataLossError("disk full")});
      case 6:
        agent.incarnation = Incarnation(agent.incarnation.value() + kAgents);
        agent.sequence = 0;
        agent.stream_number = StreamNumber();
        if (agent.stream != StreamKey()) Close(agent);
        return;
      case 7:
        return Step(StreamClosed{StreamKey(bytes_.Next() + 1'000'000u)});
      case 8:
      case 9:
      case 10:
        return Send(agent, Hangs());
      case 11:
        return Send(agent, Preempt{.reason = "SIGUSR1",
                                   .deadline = absl::Milliseconds(bytes_.Next() * 100),
                                   .ends_job = bytes_.Next() % 4 == 0});
      case 12:
      case 13:
        return Send(agent, StopPrepared{.round = bytes_.Next() % 4u,
                                        .look = {.heeds = bytes_.Next() % 8 != 0,
                                                 .below = bytes_.Next() % 2 == 0,
                                                 .highest = bytes_.Next(),
                                                 .step_time = absl::ZeroDuration()}});
      default:
        return Step(PersistDone{absl::OkStatus()});
    }
  }

  WorkerFailure Failure() {
    WorkerFailure failure;
    failure.local_rank = static_cast<uint32_t>(bytes_.Around(0));
    failure.signal = static_cast<int>(bytes_.Next());
    failure.message.assign(bytes_.Next() % 3 * 3000, 'x');
    return failure;
  }

  HangReport Hangs() {
    HangReport report{.workers = {}, .sample = absl::Milliseconds(250)};
    for (int i = bytes_.Next() % 4; i > 0; --i) {
      report.workers.push_back({.local_rank = bytes_.Next() % 5u,
                                .phase = static_cast<ProgressPhase>(bytes_.Next() % 7),
                                .step = bytes_.Next() % 3u,
                                .silent = absl::Seconds(bytes_.Next()),
                                .suspect = bytes_.Next() % 2 == 0,
                                .overdue = bytes_.Next() % 2 == 0,
                                .activity = static_cast<Activity>(bytes_.Next() % 4),
                                .where = std::string(bytes_.Next() % 3, 'w')});
    }
    return report;
  }

  GroupStopped Stopped() {
    GroupStopped stopped;
    stopped.clean = bytes_.Next() < 250;
    stopped.master_port = static_cast<uint32_t>(bytes_.Around(5000));
    if (bytes_.Next() < 80) stopped.failures.push_back(Failure());
    if (bytes_.Next() < 80) stopped.left = {bytes_.Next() % 3U, bytes_.Next()};
    stopped.kept =
        static_cast<uint32_t>(stopped.left.size());  // no byte: inputs keep their meaning
    return stopped;
  }

  AgentMessage Header(const Agent& agent) {
    AgentMessage message;
    message.run_id = bytes_.Next() == 255 ? "job8" : "job7";
    message.term = Term(bytes_.Around(agent.joined ? kTerm.value() : 0));
    message.node_id = agent.id;
    message.incarnation = Incarnation(bytes_.Around(agent.incarnation.value()));
    message.stream = StreamNumber(bytes_.Around(agent.stream_number.value()));
    return message;
  }

  void SendJoin(Agent& agent) {
    agent.stream_number = agent.stream_number.Next();
    agent.stream = StreamKey(next_stream_++);
    owners_[agent.stream] = &agent;
    Join join;
    join.protocol_major = static_cast<uint32_t>(bytes_.Around(kProtocolMajor));
    join.job = spec_;
    join.job.nodes_max = static_cast<uint32_t>(bytes_.Around(spec_.nodes_max));
    join.node.hostname = agent.id.value();
    join.node.worker_count = static_cast<uint32_t>(bytes_.Around(2));
    join.node.hosts_endpoint = bytes_.Next() % 4 == 0;
    if (const uint8_t claim = bytes_.Next(); claim > 200) join.node.node_rank = claim % 5;
    join.group_state = static_cast<GroupState>(bytes_.Next() % 16 % 5 % 4);
    AgentMessage message = Header(agent);
    message.generation = Generation(bytes_.Around(agent.generation.value()));
    message.body = std::move(join);
    Step(MessageReceived{agent.stream, std::move(message)});
  }

  void Send(Agent& agent, decltype(AgentMessage::body) body, bool event = true) {
    StreamKey stream = agent.stream;
    if (stream == StreamKey()) {
      if (bytes_.Next() < 200) return;
      stream = StreamKey(next_stream_++);  // no Join before it
      owners_[stream] = &agent;
    }
    AgentMessage message = Header(agent);
    message.generation = Generation(bytes_.Around(agent.generation.value()));
    if (event) message.sequence = bytes_.Around(++agent.sequence);
    message.body = std::move(body);
    Step(MessageReceived{stream, std::move(message)});
  }

  void Close(Agent& agent) {
    const StreamKey stream = std::exchange(agent.stream, StreamKey());
    owners_.erase(stream);
    Step(StreamClosed{stream});
  }

  // The service dies, and another one goes on from the last record.
  void Restart() {
    if (!record_) return;
    for (Agent& agent : agents_) agent.stream = StreamKey();
    owners_.clear();
    ++record_->life;
    generations_ = record_->generation.value();
    const absl::Duration elapsed = absl::Milliseconds(bytes_.Next() * 16);
    machine_ = std::make_unique<StateMachine>(now_, *record_, elapsed, "");
    machine_->CheckInvariants();
    Step(TimerDue{});
  }

  void AdvanceToDeadline() {
    const Instant next = machine_->NextDeadline();
    if (next.is_infinite()) return;
    now_ = std::max(now_, next);
    Step(TimerDue{});
  }

  void Step(const Event& event) {
    std::vector<StreamKey> closed;
    const std::vector<Effect> effects = machine_->Step(now_, event);
    for (const Effect& effect : effects) Take(effect, closed);
    machine_->CheckInvariants();
    (void)machine_->View(now_);
    if (digest_ != nullptr) digest_->Add(now_, event, effects, *machine_);
    for (const StreamKey stream : closed) {
      // Some streams close late: what they still say must do no harm.
      if (bytes_.Next() < 40) continue;
      Agent* agent = owners_.at(stream);
      if (agent->stream == stream) agent->stream = StreamKey();
      owners_.erase(stream);
      Step(StreamClosed{stream});
    }
  }

  void Take(const Effect& effect, std::vector<StreamKey>& closed) {
    if (const CloseStream* close = std::get_if<CloseStream>(&effect)) {
      DDPRUN_CHECK(owners_.contains(close->stream), "a stream is ended that isn't open");
      closed.push_back(close->stream);
      return;
    }
    if (std::holds_alternative<Persist>(effect)) record_ = machine_->TakeRecord(now_);
    const Note* note = std::get_if<Note>(&effect);
    if (note != nullptr && note->event == "generation") {
      ++generations_;
      DDPRUN_CHECK(note->fields.front().second == absl::StrCat(generations_),
                   "a generation is left out");
    }
    const rendezvous::Send* send = std::get_if<rendezvous::Send>(&effect);
    if (send == nullptr) return;
    const auto owner = owners_.find(send->stream);
    DDPRUN_CHECK(owner != owners_.end(), "something is sent on a stream that isn't open");
    Agent& agent = *owner->second;
    if (const Welcome* welcome = std::get_if<Welcome>(send->message.get())) {
      agent.joined = true;
      agent.sequence = welcome->processed_sequence;
    } else if (const Probe* probe = std::get_if<Probe>(send->message.get())) {
      agent.nonce = probe->nonce;
    } else if (const Assignment* assignment = std::get_if<Assignment>(send->message.get())) {
      agent.generation = assignment->generation;
    }
  }

  InputBytes bytes_;
  testing::TraceDigest* digest_;
  std::unique_ptr<StateMachine> machine_;
  std::optional<JobRecord> record_;  // the last that was taken
  JobSpec spec_;
  Instant now_;
  Agent agents_[kAgents];
  std::map<StreamKey, Agent*> owners_;  // of the streams that are open for the shell
  uint64_t next_stream_ = 1;
  uint64_t generations_ = 0;
};

}  // namespace

uint64_t FuzzCoreEvents(const uint8_t* data, size_t size, testing::TraceDigest* digest) {
  return Player(data, size, digest).Play();
}

}  // namespace ddprun::rendezvous

// With DDPRUN_TRACE_DIGEST=1 a digest of all steps is printed.
namespace ddprun::rendezvous {
namespace {

TEST(CoreEventsSmoke, InvariantsHoldUnderRandomEvents) {
  uint64_t generations = 0;
  testing::TraceDigest digest;
  testing::TraceDigest* const wanted = testing::DigestWanted() ? &digest : nullptr;
  const auto inputs = Inputs<uint64_t>(4000);
  for (uint64_t seed = 0; seed < inputs; ++seed) {
    Rng rng(seed);
    std::vector<uint8_t> bytes(100 + rng.Below(2000));
    // Half of the inputs stay below the values that make a message wild.
    const uint64_t bound = rng.Chance(50) ? 240 : 256;
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Below(bound));
    SCOPED_TRACE(seed);
    generations += FuzzCoreEvents(bytes.data(), bytes.size(), wanted);
  }
  if (wanted != nullptr) {
    std::cout << "digest of " << digest.lines() << " lines: " << std::hex << digest.value()
              << std::dec << "\n";
  }
  EXPECT_GT(generations, inputs) << "the events must get somewhere";
}

TEST(CoreEventsSmoke, TheEmptyInput) { EXPECT_EQ(FuzzCoreEvents(nullptr, 0), 0u); }

}  // namespace
}  // namespace ddprun::rendezvous

DDPRUN_FUZZER(bytes) {
  ddprun::rendezvous::FuzzCoreEvents(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}
