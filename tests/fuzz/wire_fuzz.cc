#include <gtest/gtest.h>

#include <malloc.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/rng.h"
#include "ddprun/rendezvous/v1/rendezvous.pb.h"
#include "rendezvous/wire/convert.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/input_bytes.h"
#include "tests/fuzz/message_damage.h"
#include "tests/fuzz/wire_world.h"
#include "tests/support/sample_messages.h"

namespace ddprun::rendezvous {

class WireWorld;

struct WireFuzzResult {
  std::string problem;   // "" = none
  uint64_t refused = 0;  // streams and calls
  uint64_t welcomed = 0;
  uint64_t assigned = 0;
};

// Plays bytes into a real service over its wire: streams of messages and calls, whole, damaged and
// raw. The first byte chooses between an unauthenticated peer and members with the token; to the
// service both are on another machine. An unauthenticated peer is never welcomed, learns nothing,
// and changes nothing of a job that is there; members may break what is theirs. Whatever is sent,
// every stream and call ends, and the service answers and holds little.
class WireFuzz {
 public:
  explicit WireFuzz(std::string token = "the token of this service, which nobody guesses");
  ~WireFuzz();

  WireFuzzResult Play(const uint8_t* data, size_t size);

 private:
  std::unique_ptr<WireWorld> world_;
  uint64_t inputs_ = 0;
};

namespace {

// What one input may do, so that it takes milliseconds.
constexpr int kActsMax = 24;
constexpr size_t kAgents = 4;
constexpr size_t kRawMax = 200;
// Kinds of refusals are ours, so they are few.
constexpr size_t kRefusalKindsMax = 40;
// How many jobs the service may hold before the world starts it anew. A job stays when its members
// have broken off, and with many jobs a status is up to half a second old.
constexpr int kJobsHeldMost = 24;

const char* const kMethods[] = {"GetStatus", "StopJob", "DrainNode", "WatchEvents", "Attend", "No"};

class Player {
 public:
  Player(WireWorld* world, uint64_t input, const uint8_t* data, size_t size)
      : world_(world), input_(input), bytes_(data, size) {}
  virtual ~Player() = default;

  WireFuzzResult Play() {
    for (int i = 0; i < kActsMax && !bytes_.empty() && result_.problem.empty(); ++i) Act();
    if (result_.problem.empty()) End();
    if (world_->refusal_kinds() > kRefusalKindsMax) Fail("strangers make kinds of refusals");
    return result_;
  }

 protected:
  virtual void Act() = 0;
  virtual void End() = 0;
  virtual std::string token() = 0;

  void Damage(google::protobuf::Message* message, size_t most) {
    for (size_t i = bytes_.Below(most + 1); i > 0; --i) DamageMessage(&bytes_, message);
  }

  // Returns one message of each kind; the Join is the first.
  static const std::vector<AgentMessage>& Samples() {
    static const auto* const kSamples = new std::vector<AgentMessage>(SampleAgentMessages());
    return *kSamples;
  }

  std::string RequestFor(const std::string& method) {
    if (bytes_.Chance(40)) return bytes_.Text(bytes_.Below(kRawMax));
    const std::string run_id = bytes_.Chance(200) ? RunId() : "";
    if (method == "StopJob") {
      v1::StopJobRequest request;
      return Filled(request, run_id);
    }
    if (method == "DrainNode") {
      v1::DrainNodeRequest request;
      request.set_node(bytes_.Chance(128) ? "good" : "n1");
      return Filled(request, run_id);
    }
    if (method == "WatchEvents") {
      v1::WatchEventsRequest request;
      request.set_follow(bytes_.Chance(128));
      return Filled(request, run_id);
    }
    v1::GetStatusRequest request;
    return Filled(request, run_id);
  }
  template <typename Request>
  std::string Filled(Request& request, const std::string& run_id) {
    request.set_run_id(run_id);
    request.set_token(token());
    Damage(&request, 2);
    return request.SerializeAsString();
  }

  std::string RunId() {
    return bytes_.Chance(100) ? world_->run_id()
                              : absl::StrCat("fuzz-", input_, "-", bytes_.Below(2));
  }

  void Fail(const std::string& what) {
    if (result_.problem.empty()) result_.problem = what;
  }

  WireWorld* const world_;
  const uint64_t input_;
  InputBytes bytes_;
  WireFuzzResult result_;
};

// An unauthenticated peer: it knows all but the token.
class Stranger final : public Player {
 public:
  using Player::Player;

 private:
  std::string token() override {
    const uint8_t byte = bytes_.Next();
    if (byte < 200) return byte < 100 ? "" : world_->token().substr(0, world_->token().size() / 2);
    return bytes_.Text(byte % 64);
  }

  void Act() override {
    switch (bytes_.Below(8)) {
      case 0:
        return Call();
      case 1:
        return world_->Knock(Knocks());
      case 2:
        return SayNothing();
      default:
        return Attend();
    }
  }

  std::string Knocks() {
    static constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    return absl::StrCat(bytes_.Chance(128) ? kPreface : "", bytes_.Text(bytes_.Below(kRawMax)));
  }

  std::string Message() {
    const uint8_t kind = bytes_.Next();
    if (kind < 30) return bytes_.Text(bytes_.Below(kRawMax));
    const size_t sample = kind < 160 ? 0 : kind % Samples().size();
    v1::AgentMessage message = ToProto(Samples().at(sample));
    message.set_run_id(RunId());
    message.set_node_id(bytes_.Chance(100) ? "good" : "n1");
    message.set_term(bytes_.Chance(128) ? world_->term() : 0);
    if (message.has_join()) message.mutable_join()->set_token(token());
    Damage(&message, 3);
    return message.SerializeAsString();
  }

  // Whatever the peer sends first, it is refused.
  void Attend() {
    const auto stream = world_->Open();
    for (size_t i = bytes_.Below(3); i < 3; ++i) {
      const std::string message = Message();
      if (HasToken(message)) return;  // no stranger any more
      stream->SendBytes(message);
    }
    const bool breaks_off = bytes_.Chance(20);
    if (breaks_off) stream->Cancel();
    if (bytes_.Chance(60)) stream->HalfClose();
    const bool ends = world_->Until([&] { return stream->done() || !stream->received().empty(); });
    if (!ends) return Fail("a stranger's stream doesn't end");
    if (!stream->received().empty()) return Fail("a stranger is welcomed");
    if (stream->status().ok()) return Fail("a stranger isn't refused");
    ExpectNothingTold(stream->status());
    ++result_.refused;
  }

  void SayNothing() {
    const auto stream = world_->Open();
    if (bytes_.Chance(128)) return stream->Cancel();
    stream->HalfClose();
    if (!world_->Until([&] { return stream->done(); })) return Fail("a silent stream doesn't end");
    if (!stream->received().empty()) Fail("a silent peer gets an answer");
  }

  void Call() {
    const std::string method = kMethods[bytes_.Below(std::size(kMethods))];
    const std::string request = RequestFor(method);
    if (HasToken(request)) return;
    const WireWorld::Answer answer = world_->Call(method, request);
    if (answer.status.ok()) return Fail("a stranger's word is taken: " + method);
    ExpectNothingTold(answer.status);
    ++result_.refused;
  }

  bool HasToken(const std::string& said) const {
    return !world_->token().empty() && absl::StrContains(said, world_->token());
  }
  void ExpectNothingTold(const absl::Status& status) {
    if (absl::StrContains(status.message(), world_->secret())) Fail("a stranger hears of a job");
  }

  void End() override {
    if (!world_->Ping()) return Fail("the service doesn't answer");
    if (const std::string change = world_->ChangeOfJob(); !change.empty()) {
      return Fail("a stranger changed the job: " + change);
    }
    const auto status = world_->Status();
    if (!status.has_value()) return Fail("the service doesn't report its status");
    for (const v1::JobStatus& job : status->jobs()) {
      if (absl::StartsWith(job.run_id(), absl::StrCat("fuzz-", input_, "-"))) {
        Fail("a stranger made a job");
      }
    }
  }
};

// Agents with the token that keep the protocol, mostly.
class Members final : public Player {
 public:
  Members(WireWorld* world, uint64_t input, const uint8_t* data, size_t size)
      : Player(world, input, data, size), agents_(kAgents) {
    for (size_t i = 0; i < kAgents; ++i) {
      agents_[i].node_id = absl::StrCat("n", i % 3);  // two of one node
      agents_[i].incarnation = input * kAgents + i + 1;
    }
  }

 private:
  struct Agent {
    std::string run_id;
    std::string node_id;
    uint64_t incarnation = 0;
    uint64_t stream_number = 0;
    uint64_t sequence = 0;
    std::unique_ptr<RawStream> stream;
  };

  std::string token() override { return world_->token(); }

  void Act() override {
    Agent& agent = agents_[bytes_.Below(kAgents)];
    switch (bytes_.Below(12)) {
      case 0:
        return Call();
      case 1:
        if (agent.stream != nullptr) agent.stream->Cancel();
        break;
      case 2:
        if (agent.stream != nullptr) agent.stream->HalfClose();
        break;
      case 3:
        if (agent.stream != nullptr) agent.stream->SendBytes(bytes_.Text(bytes_.Below(kRawMax)));
        break;
      case 4:
      case 5:
      case 6:
        return Join(agent);
      case 7:
        return Beat(agent);
      default:
        return Say(agent);
    }
    Settle();
  }

  void Join(Agent& agent) {
    Keep(std::move(agent.stream));
    agent.stream = world_->Open();
    if (agent.run_id.empty() || bytes_.Chance(40)) {
      agent.run_id = absl::StrCat("fuzz-", input_, "-", bytes_.Below(2));
    }
    v1::AgentMessage join = ToProto(
        SampleJoin(agent.run_id, agent.node_id, 1 + static_cast<uint32_t>(bytes_.Below(3))));
    v1::JobSpec* job = join.mutable_join()->mutable_job();
    job->set_nodes_min(1);
    job->set_stop_grace_ms(1);
    join.mutable_join()->set_token(token());
    join.set_incarnation(agent.incarnation);
    join.set_stream(++agent.stream_number);
    if (agent.sequence > 0 && bytes_.Chance(200)) Reattach(agent, &join);
    Damage(&join, 2);
    agent.stream->Send(join);
    const bool heard =
        world_->Until([&] { return agent.stream->done() || !agent.stream->received().empty(); });
    if (!heard) Fail("a Join isn't answered");
  }

  void Reattach(const Agent& agent, v1::AgentMessage* join) {
    join->set_term(world_->term());
    join->set_generation(1);
    join->mutable_join()->set_group_state(static_cast<v1::GroupState>(1 + bytes_.Below(4)));
    if (bytes_.Chance(30)) join->set_incarnation(agent.incarnation + kAgents * 1000);
  }

  void Say(Agent& agent) {
    if (agent.stream == nullptr) return Join(agent);
    v1::AgentMessage message = ToProto(Samples().at(1 + bytes_.Below(Samples().size() - 1)));
    message.set_run_id(agent.run_id);
    message.set_term(world_->term());
    message.set_node_id(agent.node_id);
    message.set_incarnation(agent.incarnation);
    message.set_stream(agent.stream_number);
    const v1::ServiceMessage* assigned = agent.stream->Last(&v1::ServiceMessage::has_assignment);
    message.set_generation(assigned == nullptr ? 0 : assigned->assignment().generation());
    const v1::ServiceMessage* probe = agent.stream->Last(&v1::ServiceMessage::has_probe);
    if (message.has_renewal()) {
      message.mutable_renewal()->set_nonce(probe == nullptr ? 1 : probe->probe().nonce());
    }
    message.set_sequence(message.has_renewal() ? 0 : ++agent.sequence);
    Damage(&message, 2);
    agent.stream->Send(message);
    Settle();
  }

  // A stream of heartbeats beside the agent's.
  void Beat(Agent& agent) {
    if (agent.stream == nullptr) return;
    const v1::ServiceMessage* welcome = agent.stream->Last(&v1::ServiceMessage::has_welcome);
    v1::AgentMessage message = ToProto(SampleJoin(agent.run_id, agent.node_id));
    message.set_incarnation(agent.incarnation);
    message.set_term(world_->term());
    message.mutable_heartbeat()->set_key(welcome == nullptr ? 1
                                                            : welcome->welcome().heartbeat_key());
    Damage(&message, 1);
    auto stream = world_->Open();
    stream->Send(message);
    message.mutable_renewal()->set_nonce(bytes_.Next());
    Damage(&message, 2);
    stream->Send(message);
    Keep(std::move(stream));
    Settle();
  }

  void Call() {
    const std::string method = kMethods[bytes_.Below(std::size(kMethods))];
    const WireWorld::Answer answer = world_->Call(method, RequestFor(method));
    result_.refused += answer.status.ok() ? 0 : 1;
  }

  void Settle() {
    if (!world_->Ping()) Fail("the service doesn't answer");
  }

  void Keep(std::unique_ptr<RawStream> stream) {
    if (stream != nullptr) left_.push_back(std::move(stream));
  }

  void Count(const RawStream& stream) {
    if (stream.Last(&v1::ServiceMessage::has_welcome) != nullptr) ++result_.welcomed;
    if (stream.Last(&v1::ServiceMessage::has_assignment) != nullptr) ++result_.assigned;
    if (stream.done() && !stream.status().ok()) ++result_.refused;
  }

  // Ends all streams, as when their agents close them, and what is left of the jobs.
  void End() override {
    for (Agent& agent : agents_) Keep(std::move(agent.stream));
    for (const auto& stream : left_) {
      Count(*stream);
      stream->HalfClose();
    }
    for (const auto& stream : left_) {
      if (!world_->Until([&] { return stream->done(); })) return Fail("a stream doesn't end");
    }
    for (size_t i = 0; i < 2; ++i) {
      v1::StopJobRequest request;
      request.set_run_id(absl::StrCat("fuzz-", input_, "-", i));
      request.set_token(token());
      world_->Call("StopJob", request.SerializeAsString());
    }
    world_->Renew(kJobsHeldMost);
  }

  std::vector<Agent> agents_;
  std::vector<std::unique_ptr<RawStream>> left_;  // of agents that have another one
};

}  // namespace

WireFuzz::WireFuzz(std::string token) : world_(std::make_unique<WireWorld>(std::move(token))) {}

WireFuzz::~WireFuzz() = default;

WireFuzzResult WireFuzz::Play(const uint8_t* data, size_t size) {
  if (size == 0) return {};
  ++inputs_;
  if (data[0] % 2 == 0) return Stranger(world_.get(), inputs_, data + 1, size - 1).Play();
  return Members(world_.get(), inputs_, data + 1, size - 1).Play();
}

}  // namespace ddprun::rendezvous

namespace ddprun::rendezvous {
namespace {

constexpr uint8_t kStranger = 0;
constexpr uint8_t kMembers = 1;
constexpr uint64_t kInputs = 300;
constexpr size_t kGrowthMost = 8U << 20;

std::vector<uint8_t> Input(uint8_t who, uint64_t seed) {
  Rng rng(seed);
  std::vector<uint8_t> bytes(100 + rng.Below(500));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Below(256));
  bytes[0] = who;
  return bytes;
}

WireFuzzResult PlayAll(WireFuzz* fuzz, uint8_t who, uint64_t inputs) {
  WireFuzzResult sum;
  for (uint64_t seed = 0; seed < inputs; ++seed) {
    const std::vector<uint8_t> bytes = Input(who, seed);
    const WireFuzzResult result = fuzz->Play(bytes.data(), bytes.size());
    sum.refused += result.refused;
    sum.welcomed += result.welcomed;
    sum.assigned += result.assigned;
    if (result.problem.empty()) continue;
    sum.problem = "seed " + std::to_string(seed) + ": " + result.problem;
    return sum;
  }
  return sum;
}

TEST(WireSmoke, AStrangerChangesNothing) {
  WireFuzz fuzz;
  const WireFuzzResult result = PlayAll(&fuzz, kStranger, kInputs);
  EXPECT_EQ(result.problem, "");
  EXPECT_GT(result.refused, kInputs);
}

// Negative control: a service without a token obeys an unauthenticated peer, and the target
// notices.
TEST(WireSmoke, TwinAnOpenServiceIsNoticed) {
  WireFuzz fuzz("");
  EXPECT_NE(PlayAll(&fuzz, kStranger, kInputs).problem, "");
}

TEST(WireSmoke, MembersBreakNothingButTheirs) {
  WireFuzz fuzz;
  const WireFuzzResult result = PlayAll(&fuzz, kMembers, kInputs);
  EXPECT_EQ(result.problem, "");
  // The messages got somewhere.
  EXPECT_GT(result.refused, kInputs / 4);
  EXPECT_GT(result.welcomed, kInputs / 4);
  EXPECT_GT(result.assigned, kInputs / 16);
}

// Under sanitizers nothing is counted.
TEST(WireSmoke, StrangersLeaveNoMemoryBehind) {
  WireFuzz fuzz;
  ASSERT_EQ(PlayAll(&fuzz, kStranger, kInputs).problem, "");
  const size_t before = mallinfo2().uordblks;
  ASSERT_EQ(PlayAll(&fuzz, kStranger, kInputs).problem, "");
  EXPECT_LT(mallinfo2().uordblks, before + kGrowthMost);
}

}  // namespace
}  // namespace ddprun::rendezvous

DDPRUN_FUZZER(bytes) {
  // For the life of the process: a service takes longer to begin than an input.
  static auto* const fuzz = new ddprun::rendezvous::WireFuzz();
  const ddprun::rendezvous::WireFuzzResult result =
      fuzz->Play(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  DDPRUN_CHECK(result.problem.empty(), result.problem);
}
