#include "tests/datadriven/supervisor_world.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/text.h"

namespace ddprun::testing {
namespace {

using namespace launcher;  // NOLINT(google-build-using-namespace): a test's own file
using rendezvous::Generation;

uint32_t LocalRank(const Command& command) {
  uint32_t local_rank = 0;
  DDPRUN_CHECK(absl::SimpleAtoi(command.subject, &local_rank), command.subject);
  return local_rank;
}

std::string Of(Generation generation) { return absl::StrCat(" gen=", generation.value()); }

std::string Spared(const char* what, const std::vector<uint32_t>& local_ranks) {
  return local_ranks.empty() ? "" : absl::StrCat(" ", what, "=", absl::StrJoin(local_ranks, ","));
}

// "" = it isn't shown.
struct EffectText {
  std::string operator()(const SpawnGroup& spawn) const {
    return absl::StrCat("spawn", Of(spawn.assignment.generation), Spared("kept", spawn.kept));
  }
  std::string operator()(const SignalGroup& signal) const {
    return absl::StrCat(SignalName(signal.signal), Of(signal.generation),
                        Spared("spared", signal.spared),
                        signal.stops ? "" : " without stopping it");
  }
  std::string operator()(const SweepGroup& sweep) const {
    return absl::StrCat("sweep", Of(sweep.generation), Spared("spared", sweep.spared));
  }
  std::string operator()(const EndGeneration& end) const {
    return absl::StrCat("drop stores", Of(end.generation));
  }
  std::string operator()(const SendMessage& send) const {
    const auto& body = send.message.body;
    if (std::holds_alternative<rendezvous::WorkersStarted>(body)) return "-> workers_started";
    if (std::holds_alternative<rendezvous::GroupSucceeded>(body)) return "-> group_succeeded";
    if (std::holds_alternative<rendezvous::Leave>(body)) return "-> leave";
    if (const auto* failed = std::get_if<rendezvous::WorkerFailed>(&body)) {
      return absl::StrCat("-> worker_failed rank=", failed->failure.rank);
    }
    if (const auto* stopped = std::get_if<rendezvous::GroupStopped>(&body)) {
      return absl::StrCat("-> group_stopped failures=", stopped->failures.size(),
                          stopped->clean ? "" : " unclean");
    }
    return "";
  }
  std::string operator()(const NotifyUser& notice) const {
    if (notice.level != NotifyUser::Level::kWarning) return "";
    return absl::StrCat("\"", notice.text, "\"");
  }
  std::string operator()(const Exit& exit) const { return absl::StrCat("exit ", exit.status); }
  template <typename Other>
  std::string operator()(const Other& /*effect*/) const {
    return "";
  }
};

}  // namespace

std::vector<std::string> SupervisorWorld::Run(const std::string& line) {
  output_.clear();
  if (line.front() == '#') return {};
  const Command command = ParseCommand(line);
  if (command.verb == "agent") {
    Start(command);
  } else if (command.verb == "advance") {
    absl::Duration duration;
    DDPRUN_CHECK(absl::ParseDuration(command.subject, &duration), line);
    Advance(duration);
  } else {
    const bool known = FromService(command) || FromKeeper(command) || FromWorker(command);
    DDPRUN_CHECK(known, absl::StrCat("unknown command: ", line));
  }
  DDPRUN_CHECK(command.Unread().empty(), absl::StrCat("unknown option in: ", line));
  return std::move(output_);
}

void SupervisorWorld::Start(const Command& command) {
  SupervisorConfig config;
  config.job.run_id = "job";
  config.job.max_restarts = 9;
  config.job.stop_grace = command.Duration("stop_grace", absl::Seconds(30));
  config.identity.node_id = rendezvous::NodeId("b");
  config.identity.incarnation = rendezvous::Incarnation(1);
  config.identity.node.hostname = "hostb";
  config.identity.node.worker_count = command.Number("workers", 2);
  config.endpoint.text = "hosta:29400";
  now_ = Instant();
  generation_ = 0;
  next_pid_ = 10;
  supervisor_ = std::make_unique<Supervisor>(config, now_);
  Step(EndpointFound{.node_address = "hostb", .store_address = "hostb:1"});
  Step(StreamOpened{});
  Message(rendezvous::Welcome{.term = rendezvous::Term(7),
                              .release = "x",
                              .lease = absl::Hours(1),
                              .processed_sequence = 0});
}

Generation SupervisorWorld::GenerationOf(const Command& command) const {
  return Generation(command.Number("gen", generation_));
}

bool SupervisorWorld::FromService(const Command& command) {
  const Generation generation = GenerationOf(command);
  if (command.verb == "assign") {
    generation_ = command.Number("gen", 0);
    rendezvous::Assignment assignment;
    assignment.generation = generation;
    assignment.world_size = command.Number("world", 6);
    assignment.group_rank = 1;
    assignment.group_world_size = 2;
    assignment.base_rank = 4;
    Message(assignment);
  } else if (command.verb == "stop") {
    Message(rendezvous::StopWorkers{generation, command.subject});
  } else if (command.verb == "commit") {
    Message(rendezvous::CommitStop{.generation = generation,
                                   .step = command.Number("step", 0),
                                   .within = absl::Seconds(20),
                                   .reason = "node c is drained"});
  } else if (command.verb == "standby") {
    Message(rendezvous::Standby{.reason = "there are enough nodes", .spare = true});
  } else if (command.verb == "drain") {
    Message(rendezvous::Drain{"rack 7"});
  } else if (command.verb == "verdict") {
    Message(rendezvous::Verdict{.outcome = rendezvous::Outcome::kFailed});
  } else {
    return false;
  }
  return true;
}

bool SupervisorWorld::FromKeeper(const Command& command) {
  const Generation generation = GenerationOf(command);
  if (command.verb == "started") {
    Step(WorkerStarted{generation, LocalRank(command), command.Number("pid", next_pid_++)});
  } else if (command.verb == "ended") {
    WorkerEnd end;
    end.local_rank = LocalRank(command);
    end.exit_code = static_cast<int>(command.Number("code", 0));
    end.signal = static_cast<int>(command.Number("signal", 0));
    end.hung = command.Has("hung");
    if (end.hung) end.signal = SIGKILL;
    end.seen = now_;
    Step(WorkerEnded{generation, end});
  } else if (command.verb == "empty") {
    Step(GroupEmpty{.generation = generation,
                    .master_port = 4242,
                    .step = {},
                    .stopped_at = command.Number("stopped_at", 0)});
  } else if (command.verb == "keeper_lost") {
    Step(KeeperLost{"killed by SIGKILL"});
  } else {
    return false;
  }
  return true;
}

bool SupervisorWorld::FromWorker(const Command& command) {
  const Generation generation = GenerationOf(command);
  if (command.verb == "can") {
    Step(WorkerCanRejoin{generation, LocalRank(command), !command.Has("no"),
                         command.Has("same_place")});
  } else if (command.verb == "lets_go") {
    Step(WorkerLetGo{generation, LocalRank(command)});
  } else if (command.verb == "suspect") {
    rendezvous::HangReport report;
    report.workers.push_back({.suspect = true});
    Step(ProgressFound{generation, std::move(report)});
  } else {
    return false;
  }
  return true;
}

void SupervisorWorld::Advance(absl::Duration duration) {
  const Instant end = now_ + duration;
  while (supervisor_->NextDeadline() <= end) {
    now_ = std::max(now_, supervisor_->NextDeadline());
    Step(HeartbeatHeard{});  // the service is never missing
    Step(TimerFired{});
  }
  now_ = end;
}

void SupervisorWorld::Message(rendezvous::ServiceMessage message) {
  Step(ServiceMessageReceived{std::move(message)});
}

void SupervisorWorld::Step(const SupervisorEvent& event) {
  const auto show = [this](const std::string& text) {
    if (text.empty()) return;
    output_.push_back(absl::StrFormat("%.3fs %s", absl::ToDoubleSeconds(now_ - Instant()), text));
  };
  for (const SupervisorEffect& effect : supervisor_->Step(now_, event)) {
    show(std::visit(EffectText(), effect));
  }
  const std::string broken = supervisor_->BrokenInvariant();
  if (!broken.empty()) show(absl::StrCat("BROKEN: ", broken));
}

}  // namespace ddprun::testing
