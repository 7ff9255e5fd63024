#include "bench/load/load_run.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "base/status_macros.h"
#include "bench/load/load_report.h"
#include "rendezvous/client/rendezvous_client.h"
#include "rendezvous/core/timing.h"

namespace ddprun::bench {

LoadRun::LoadRun(EventLoop* loop, LoadSettings settings, std::string folder)
    : loop_(loop),
      settings_(std::move(settings)),
      service_(loop, settings_.program, std::move(folder)) {}

LoadRun::~LoadRun() {
  if (place_.inbox != nullptr) place_.inbox->Close();
}

absl::StatusOr<nlohmann::json> LoadRun::Run() {
  DDPRUN_RETURN_IF_ERROR(service_.Start());
  place_ = {.loop = loop_,
            .inbox = LoopInbox::Create(loop_),
            .port = service_.port(),
            .keepalive = rendezvous::KeepaliveOf(SpecOf(settings_)),
            .heartbeats = ConnectionsOfAgent(settings_) > 1};
  report_["agents"] = settings_.agents;
  report_["connections"] =
      absl::StrCat(place_.heartbeats ? "two" : "one",
                   " an agent, over TCP on loopback, each agent from its own address");
  report_["lease_ms"] = Milliseconds(settings_.lease);
  report_["load_before"] = LoadAverage();
  for (uint32_t number = 0; number < settings_.agents; ++number) {
    agents_.push_back(std::make_unique<SimulatedAgent>(&place_, &settings_, number, &tally_));
  }
  DDPRUN_RETURN_IF_ERROR(Form());
  DDPRUN_RETURN_IF_ERROR(Steady());
  DDPRUN_RETURN_IF_ERROR(Regroup("killed", [](SimulatedAgent& agent) { agent.Kill(); }));
  DDPRUN_RETURN_IF_ERROR(Regroup("frozen", [](SimulatedAgent& agent) { agent.Freeze(); }));
  DDPRUN_RETURN_IF_ERROR(Restart());
  DDPRUN_RETURN_IF_ERROR(Verdict());
  report_["load_after"] = LoadAverage();
  return report_;
}

absl::Status LoadRun::Form() {
  const Mark begin = Begin();
  for (const auto& agent : agents_) agent->Begin();
  DDPRUN_RETURN_IF_ERROR(UntilAll("every agent is welcomed", tally_.welcomed));
  const Instant connected = *std::max_element(tally_.welcomed.begin(), tally_.welcomed.end());
  DDPRUN_RETURN_IF_ERROR(UntilAll("every agent has its ranks", tally_.assigned));
  nlohmann::json& connect = report_["connect"];
  connect["welcomed"] = SpreadSince(begin.at, tally_.welcomed);
  nlohmann::json& form = report_["form"];
  form["assigned_after_last_connected"] = SpreadSince(connected, tally_.assigned);
  AddUse(begin, form);
  return absl::OkStatus();
}

absl::Status LoadRun::Steady() {
  // Connections for heartbeats come after the agents' own.
  const size_t connections = settings_.agents * ConnectionsOfAgent(settings_);
  DDPRUN_RETURN_IF_ERROR(Until("every connection is there", [&] {
    return static_cast<size_t>(UseOf(service_.pid()).descriptors) > connections;
  }));
  // The pace of the probes follows the number of nodes, but slowly.
  const absl::Duration pace = rendezvous::ProbePace(settings_.lease, agents_.size()).interval;
  DDPRUN_RETURN_IF_ERROR(Until("probes at the pace of so many agents", [&] {
    return !tally_.probe_gaps.empty() && tally_.probe_gaps.back() >= pace * 9 / 10;
  }));
  const Mark begin = Begin();
  const Instant end = begin.at + settings_.steady;
  DDPRUN_RETURN_IF_ERROR(Until("the steady state", [&] { return loop_->Now() >= end; }));
  nlohmann::json& part = report_["steady"];
  part["probe_gaps"] = Spread(tally_.probe_gaps);
  part["generations_ended"] = tally_.stopped.size();
  part["messages_an_agent_a_second"] = static_cast<double>(tally_.messages) / settings_.agents /
                                       absl::ToDoubleSeconds(loop_->Now() - begin.at);
  AddUse(begin, part);
  if (!tally_.stopped.empty()) return absl::InternalError("a generation ended without a cause");
  return absl::OkStatus();
}

absl::Status LoadRun::Regroup(const std::string& name,
                              const std::function<void(SimulatedAgent&)>& fault) {
  const Mark begin = Begin();
  const auto victim = std::find_if(agents_.rbegin(), agents_.rend(),
                                   [](const auto& agent) { return agent->lives(); });
  fault(**victim);
  DDPRUN_RETURN_IF_ERROR(UntilAll("every agent has its ranks again", tally_.assigned));
  nlohmann::json& part = report_[name];
  const Instant noticed = *std::min_element(tally_.stopped.begin(), tally_.stopped.end());
  part["noticed_ms"] = Milliseconds(noticed - begin.at);
  part["stopped"] = SpreadSince(begin.at, tally_.stopped);
  part["assigned"] = SpreadSince(begin.at, tally_.assigned);
  part["assigned_after_noticed"] = SpreadSince(noticed, tally_.assigned);
  AddUse(begin, part);
  return absl::OkStatus();
}

absl::Status LoadRun::Restart() {
  const size_t recovered = service_.Noted("recovered");
  const size_t generations = service_.Noted("generation");
  const size_t closings = service_.Noted("round_closing");
  service_.Kill();
  const Instant killed = loop_->Now();
  DDPRUN_RETURN_IF_ERROR(service_.Start());
  const Instant listening = loop_->Now();
  const Mark begin = Begin();
  DDPRUN_RETURN_IF_ERROR(UntilAll("every agent is back", tally_.welcomed));
  DDPRUN_RETURN_IF_ERROR(Until("the service has noted that all are back",
                               [&] { return service_.Noted("recovered") > recovered; }));
  nlohmann::json& part = report_["restart"];
  part["listening_ms"] = Milliseconds(listening - killed);
  part["back_after_kill"] = SpreadSince(killed, tally_.welcomed);
  part["back_after_listening"] = SpreadSince(listening, tally_.welcomed);
  part["new_generations"] = service_.Noted("generation") - generations;
  AddUse(begin, part);
  // If a node was lost when the service came back, its round is closing by now, even if the next
  // generation isn't formed yet.
  if (!tally_.assigned.empty() || service_.Noted("generation") != generations ||
      service_.Noted("round_closing") != closings) {
    return absl::InternalError("the restart of the service cost a generation");
  }
  return absl::OkStatus();
}

absl::Status LoadRun::Verdict() {
  const ProcessUse before = UseOf(service_.pid());
  ForgetPeak(service_.pid());
  const Mark begin = Begin();
  const uint32_t failures = std::min(settings_.long_failures, settings_.agents / 4);
  for (uint32_t i = 0; i < failures; ++i) agents_[i]->Fail();
  DDPRUN_RETURN_IF_ERROR(UntilAll("every agent has the verdict", tally_.verdict));
  nlohmann::json& part = report_["verdict"];
  part["long_failures"] = failures;
  part["told"] = SpreadSince(begin.at, tally_.verdict);
  part["memory_more_mb"] = UseOf(service_.pid()).resident_peak_mb - before.resident_mb;
  AddUse(begin, part);
  return UntilAll("every stream has ended", tally_.closed);
}

// ------------------------------------------------------------- measuring

LoadRun::Mark LoadRun::Begin() {
  tally_ = Tally();
  return {.at = loop_->Now(), .use = UseOf(service_.pid()), .bytes = Bytes()};
}

void LoadRun::AddUse(const Mark& since, nlohmann::json& part) {
  const ProcessUse use = UseOf(service_.pid());
  const LinkBytes bytes = Bytes();
  const absl::Duration passed = loop_->Now() - since.at;
  const absl::Duration processor = use.processor - since.use.processor;
  part["seconds"] = absl::ToDoubleSeconds(passed);
  part["processor_ms"] = Milliseconds(processor);
  part["percent_of_a_core"] = 100 * absl::FDivDuration(processor, passed);
  part["resident_mb"] = use.resident_mb;
  part["resident_peak_mb"] = use.resident_peak_mb;
  part["descriptors"] = use.descriptors;
  const auto each = [this](uint64_t now, uint64_t then) {
    return now > then ? (now - then) / settings_.agents : 0;  // after a restart they are others
  };
  part["bytes_to_service_an_agent"] = each(bytes.to_service, since.bytes.to_service);
  part["bytes_from_service_an_agent"] = each(bytes.from_service, since.bytes.from_service);
}

absl::Status LoadRun::Until(const std::string& what, const std::function<bool()>& done) {
  bool late = false;
  Timer limit(loop_, [&late] { late = true; });
  limit.Arm(loop_->Now() + settings_.patience + settings_.steady);
  // Something may become true without an event of ours.
  std::unique_ptr<Timer> look;
  look = std::make_unique<Timer>(loop_, [&] { look->Arm(loop_->Now() + absl::Milliseconds(20)); });
  look->Arm(loop_->Now());
  while (!done()) {
    if (late) {
      return absl::DeadlineExceededError(
          absl::StrCat(what, " did not happen; of ", Living(), " agents ", tally_.welcomed.size(),
                       " were welcomed, ", tally_.stopped.size(), " stopped, ",
                       tally_.assigned.size(), " assigned, ", tally_.verdict.size(), " told"));
    }
    uv_run(loop_->uv(), UV_RUN_ONCE);
  }
  return absl::OkStatus();
}

absl::Status LoadRun::UntilAll(const std::string& what, const std::vector<Instant>& list) {
  return Until(what, [&] { return list.size() >= Living(); });
}

size_t LoadRun::Living() const {
  return static_cast<size_t>(
      std::count_if(agents_.begin(), agents_.end(), [](const auto& a) { return a->lives(); }));
}

LinkBytes LoadRun::Bytes() const {
  LinkBytes sum;
  for (const auto& agent : agents_) {
    const LinkBytes bytes = agent->bytes();
    sum.to_service += bytes.to_service;
    sum.from_service += bytes.from_service;
  }
  return sum;
}

}  // namespace ddprun::bench
