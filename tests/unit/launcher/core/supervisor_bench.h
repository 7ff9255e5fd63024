#ifndef DDPRUN_TESTS_UNIT_LAUNCHER_CORE_SUPERVISOR_BENCH_H_
#define DDPRUN_TESTS_UNIT_LAUNCHER_CORE_SUPERVISOR_BENCH_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/core/supervisor/supervisor.h"

namespace ddprun::launcher {

// One supervisor on a clock of the test's; remembers the effects of the last step by kind.
class Bench {
 public:
  explicit Bench(uint32_t workers = 2, bool hosts = false) : Bench(Config(workers), hosts) {}
  explicit Bench(const SupervisorConfig& config, bool hosts = false)
      : supervisor_(config, Instant()) {
    Feed(EndpointFound{.node_address = "10.0.0.1",
                       .store_address = "10.0.0.1:7",
                       .hosts_service = hosts,
                       .hosts_endpoint = hosts});
  }

  static SupervisorConfig Config(uint32_t workers) {
    SupervisorConfig config;
    config.job.run_id = "job";
    config.job.max_restarts = 3;
    config.identity.node_id = rendezvous::NodeId("a");
    config.identity.incarnation = rendezvous::Incarnation(1);
    config.identity.node.worker_count = workers;
    config.endpoint.text = "host0:29400";
    return config;
  }

  // Serves every deadline when it is due. Afterwards `effects_` has those of the last step with
  // any.
  void Advance(absl::Duration by) {
    const Instant end = now_ + by;
    std::vector<SupervisorEffect> last;
    while (supervisor_.NextDeadline() <= end) {
      now_ = std::max(now_, supervisor_.NextDeadline());
      Feed(TimerFired{});
      if (!effects_.empty()) last = effects_;
    }
    now_ = end;
    effects_ = std::move(last);
  }

  // Stops the agent for that long: deadlines that pass meanwhile wait.
  void HoldUp(absl::Duration by) { now_ = now_ + by; }

  void Feed(const SupervisorEvent& event) {
    effects_ = supervisor_.Step(now_, event);
    EXPECT_EQ(supervisor_.BrokenInvariant(), "");
    for (const SupervisorEffect& effect : effects_) {
      if (const auto* told = std::get_if<NotifyUser>(&effect)) told_ += told->text + "\n";
      if (const auto* exit = std::get_if<Exit>(&effect)) exit_ = *exit;
    }
  }

  void Join(uint64_t processed = 0) {
    Feed(StreamOpened{});
    FeedMessage(rendezvous::Welcome{.term = rendezvous::Term(9),
                                    .release = "x",
                                    .lease = absl::Seconds(5),
                                    .processed_sequence = processed});
  }

  void FeedMessage(rendezvous::ServiceMessage message) {
    Feed(ServiceMessageReceived{std::move(message)});
  }

  void Assign(uint64_t generation) {
    rendezvous::Assignment assignment;
    assignment.generation = rendezvous::Generation(generation);
    assignment.world_size = 4;
    assignment.group_rank = 1;
    assignment.group_world_size = 2;
    assignment.base_rank = 2;
    FeedMessage(assignment);
  }

  void End(uint64_t generation, uint32_t local_rank, int exit_code, int signal = 0) {
    WorkerEnd end;
    end.local_rank = local_rank;
    end.pid = 100;
    end.exit_code = exit_code;
    end.signal = signal;
    end.seen = now_;
    Feed(WorkerEnded{rendezvous::Generation(generation), end});
  }

  void Empty(uint64_t generation) { Feed(GroupEmpty{rendezvous::Generation(generation), 4242}); }

  template <typename T>
  std::optional<T> Effect() const {
    for (const SupervisorEffect& effect : effects_) {
      if (const auto* found = std::get_if<T>(&effect)) return *found;
    }
    return std::nullopt;
  }

  // The body of the first message of that kind among the effects.
  template <typename T>
  std::optional<T> Sent() const {
    for (const SupervisorEffect& effect : effects_) {
      const auto* send = std::get_if<SendMessage>(&effect);
      if (send == nullptr) continue;
      if (const auto* body = std::get_if<T>(&send->message.body)) return *body;
    }
    return std::nullopt;
  }

  Supervisor supervisor_;
  Instant now_;
  std::vector<SupervisorEffect> effects_;
  std::string told_;
  std::optional<Exit> exit_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TESTS_UNIT_LAUNCHER_CORE_SUPERVISOR_BENCH_H_
