// What one step of the rendezvous core costs, by the number of nodes of the job.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/instant.h"
#include "rendezvous/core/agent_message.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/job/state_machine.h"
#include "rendezvous/core/service_message.h"

namespace ddprun::rendezvous {
namespace {

constexpr Instant kStart = Instant::FromNanoseconds(1'000'000'000);

AgentMessage MessageOf(uint32_t node) {
  AgentMessage message;
  message.run_id = "bench";
  message.node_id = NodeId(absl::StrCat("node", node));
  message.incarnation = Incarnation(node + 1);
  message.stream = StreamNumber(1);
  return message;
}

AgentMessage JoinOf(uint32_t node, uint32_t nodes) {
  Join join;
  join.protocol_major = 1;
  join.job.run_id = "bench";
  join.job.nodes_min = nodes;
  join.job.nodes_max = nodes;
  join.job.fingerprint = "same";
  join.node.hostname = absl::StrCat("host", node);
  join.node.agent_pid = node + 1;
  join.node.address = join.node.hostname;
  join.node.worker_count = 8;
  join.node.hosts_endpoint = node == 0;
  join.node.master_port = 30000;
  join.node.release = "bench";
  AgentMessage message = MessageOf(node);
  message.body = std::move(join);
  return message;
}

struct Formed {
  std::unique_ptr<StateMachine> machine;
  bool assigned = false;
};

Formed Form(uint32_t nodes) {
  Formed formed{.machine = std::make_unique<StateMachine>(Term(7), "")};
  for (uint32_t node = 0; node < nodes; ++node) {
    const std::vector<Effect> effects = formed.machine->Step(
        kStart, MessageReceived{.stream = StreamKey(node + 1), .message = JoinOf(node, nodes)});
    for (const Effect& effect : effects) {
      const Send* send = std::get_if<Send>(&effect);
      if (send != nullptr && std::holds_alternative<Assignment>(*send->message)) {
        formed.assigned = true;
      }
    }
  }
  return formed;
}

// All nodes join an empty job and get their ranks.
void BM_Form(benchmark::State& state) {
  const auto nodes = static_cast<uint32_t>(state.range(0));
  for (auto _ : state) {
    Formed formed = Form(nodes);
    DDPRUN_CHECK(formed.assigned, "no generation was formed");
    benchmark::DoNotOptimize(formed.machine);
  }
  state.SetItemsProcessed(state.iterations() * nodes);
}
BENCHMARK(BM_Form)->Arg(2)->Arg(64)->Arg(1024);

// One heartbeat of a running job.
void BM_Renewal(benchmark::State& state) {
  const auto nodes = static_cast<uint32_t>(state.range(0));
  Formed formed = Form(nodes);
  uint32_t node = 0;
  for (auto _ : state) {
    AgentMessage message = MessageOf(node);
    message.term = Term(7);
    message.body = Renewal{.nonce = 0};
    benchmark::DoNotOptimize(formed.machine->Step(
        kStart, MessageReceived{.stream = StreamKey(node + 1), .message = std::move(message)}));
    benchmark::DoNotOptimize(formed.machine->NextDeadline());
    node = (node + 1) % nodes;
  }
}
BENCHMARK(BM_Renewal)->Arg(2)->Arg(64)->Arg(1024);

}  // namespace
}  // namespace ddprun::rendezvous
