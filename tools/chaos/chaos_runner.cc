#include "tools/chaos/chaos_runner.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/progress_page.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/core/signal_policy.h"
#include "tools/chaos/core/chaos_text.h"

namespace ddprun::launcher {
namespace {

// How late a fault comes that waits for a mark.
constexpr absl::Duration kTriggerLook = absl::Milliseconds(10);

// The events from which costs are computed. Others aren't kept, because a log may cover months.
constexpr const char* kKept[] = {
    "assignment",  "fault",          "fault_over",       "group_empty",       "hang_suspect",
    "marked",      "node_lost",      "reached",          "round_closed",      "round_closing",
    "stop_begin",  "service_lost",   "service_exited",   "service_restarted", "verdict",
    "worker_exit", "worker_started", "worker_suspended", "chaos_start",       "agent_start",
    "worker_kept"};

bool IsKept(const std::string& event) {
  return std::find(std::begin(kKept), std::end(kKept), event) != std::end(kKept);
}

std::string HostName() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// The id of this boot. Monotonic times of two lines can be compared if their boot ids are equal.
std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(file, text);
  return text;
}

bool IsIgnored(int number) {
  struct sigaction action {};
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// Steps that are counted for a program start at 0 in each generation, so none counts as lost.
bool SaysStep(ProgressPhase phase) {
  return phase != ProgressPhase::kNone && phase != ProgressPhase::kCounted;
}

}  // namespace

ChaosRunner::ChaosRunner(EventLoop* loop, const ChaosRun* run, std::string event_log)
    : loop_(loop),
      run_(run),
      log_path_(std::move(event_log)),
      host_(HostName()),
      schedule_(run->plan),
      look_(loop, [this] { Look(); }),
      time_(loop, [this] { Reconsider(); }) {
  view_.host = host_;
}

ChaosRunner::~ChaosRunner() = default;

absl::Status ChaosRunner::Start() {
  DDPRUN_ASSIGN_OR_RETURN(own_, EventLog::Open(log_path_, absl::StrCat("chaos:", host_)));
  DDPRUN_ASSIGN_OR_RETURN(reader_, TimelineReader::Follow(loop_, log_path_, [this] { OnLines(); }));
  own_.Write(loop_->Now(), "chaos_start",
             {{"plan", run_->plan_name}, {"seed", run_->plan.seed}, {"boot", BootId()}});
  for (const int number : WatchedSignals(run_->launch.signals.policy)) {
    if (IsIgnored(number)) continue;
    signals_.push_back(
        std::make_unique<SignalWatch>(loop_, number, [this, number] { OnSignal(number); }));
  }
  return StartAgent();
}

absl::Status ChaosRunner::StartAgent() {
  // In front of the job's arguments, and on the command line, which wins over variables and files.
  std::vector<std::string> words = {"--event_log", log_path_};
  words.insert(words.end(), run_->job.begin(), run_->job.end());
  DDPRUN_ASSIGN_OR_RETURN(agent_,
                          AgentProcess::Start(loop_, words, [this](int how) { OnAgentEnd(how); }));
  view_.agent_runs = true;
  return absl::OkStatus();
}

// ------------------------------------------------------------- the event log

void ChaosRunner::OnLines() {
  for (TimelineLine& line : reader_->Take()) {
    OnLine(line);
    if (IsKept(line.event)) lines_.push_back(std::move(line));
  }
  Reconsider();
}

void ChaosRunner::OnLine(const TimelineLine& line) {
  if (line.Field("pid") == absl::StrCat(service_.pid())) OnOwnService(line);
  if (agent_ != nullptr && line.Field("pid") == absl::StrCat(agent_->pid())) OnOwnAgent(line);
}

void ChaosRunner::OnOwnService(const TimelineLine& line) {
  if (line.event == "node_joined") nodes_.hosts.insert(line.Field("host"));
  if (line.event == "generation") {
    nodes_.most = std::max(nodes_.most, line.Number("nodes").value_or(0));
  }
}

void ChaosRunner::OnOwnAgent(const TimelineLine& line) {
  const uint64_t generation = line.Number("generation").value_or(0);
  if (line.event == "agent_start") {
    node_id_ = line.Field("node");
  } else if (line.event == "service_started" || line.event == "service_restarted") {
    auto service = ProcessHandle::Open(static_cast<pid_t>(line.Number("service_pid").value_or(0)));
    view_.service_here = service.ok();
    if (service.ok()) service_ = *std::move(service);
  } else if (line.event == "assignment") {
    view_.group_rank = static_cast<uint32_t>(line.Number("group_rank").value_or(0));
    view_.base_rank = static_cast<uint32_t>(line.Number("rank").value_or(0));
    view_.world = static_cast<uint32_t>(line.Number("world").value_or(0));
  } else if (line.event == "spawn") {
    OnSpawn(generation);
  } else if (line.event == "worker_started" || line.event == "worker_kept") {
    OnWorkerStarted(line);
  } else if (line.event == "worker_exit") {
    const uint64_t rank = line.Number("local_rank").value_or(UINT64_MAX);
    if (rank < view_.workers.size() && generation == marks_generation_) {
      view_.workers[rank].runs = false;
    }
  } else if (line.event == "stop_begin") {
    view_.generation = 0;
  } else if (line.event == "group_empty") {
    NoteReached();
  }
}

void ChaosRunner::OnSpawn(uint64_t generation) {
  view_.generation = generation;
  ++view_.begun;
  view_.generation_began = loop_->Now();
  if (!view_.job_began.has_value()) view_.job_began = view_.generation_began;
  const uint32_t count = run_->launch.worker_count;
  view_.workers.assign(count, {});
  workers_.clear();
  workers_.resize(count);
  marks_ = std::make_unique<WorkerMarks>(loop_, count, [this] { Look(); });
  marks_generation_ = generation;
  marked_ = false;
  reached_ = false;
}

void ChaosRunner::OnWorkerStarted(const TimelineLine& line) {
  const uint64_t rank = line.Number("local_rank").value_or(UINT64_MAX);
  const auto pid = static_cast<pid_t>(line.Number("worker_pid").value_or(0));
  if (rank >= workers_.size() || pid <= 0) return;
  auto process = ProcessHandle::Open(pid);
  if (!process.ok()) return;  // it has ended; the log will say so
  workers_[rank].process = *std::move(process);
  view_.workers[rank].runs = true;
  marks_->OnStarted(static_cast<uint32_t>(rank), pid);
}

void ChaosRunner::NoteReached() {
  if (reached_) return;
  NoteMarks();
  reached_ = true;
  uint64_t highest = 0;
  bool any = false;
  for (const auto& worker : view_.workers) {
    if (!SaysStep(worker.phase)) continue;
    any = true;
    highest = std::max(highest, worker.step);
  }
  if (!any) return;
  own_.Write(loop_->Now(), "reached",
             {{"generation", marks_generation_}, {"step", highest}, {"node", node_id_}});
}

// ------------------------------------------------------------- the progress pages

void ChaosRunner::NoteMarks() {
  if (marks_ == nullptr || reached_) return;
  const std::vector<uint64_t> words = marks_->Words();
  for (size_t i = 0; i < words.size() && i < view_.workers.size(); ++i) {
    if (words[i] == 0) continue;
    view_.workers[i].phase = ProgressPhaseOf(words[i]);
    view_.workers[i].step = ProgressStepOf(words[i]);
    if (marked_ || view_.workers[i].phase != ProgressPhase::kTrain) continue;
    marked_ = true;
    own_.Write(loop_->Now(), "marked",
               {{"generation", marks_generation_},
                {"step", view_.workers[i].step},
                {"rank", view_.base_rank + i},
                {"node", node_id_}});
  }
}

void ChaosRunner::Look() { Reconsider(); }

void ChaosRunner::Reconsider() {
  const Instant now = loop_->Now();
  NoteMarks();
  if (!ending_) {
    for (const Injection& injection : schedule_.Due(now, view_)) Inject(injection);
  }
  time_.Arm(ending_ ? Instant::Infinite() : schedule_.NextTime(now, view_));
  Instant look = Instant::Infinite();
  if (marks_ != nullptr && !reached_ && !marked_) look = marks_->NextLook(now);
  const bool awaited = !ending_ && schedule_.WaitsForMarks() && view_.generation != 0;
  if (awaited && marks_ != nullptr && marks_->opened()) look = std::min(look, now + kTriggerLook);
  look_.Arm(look);
}

// ------------------------------------------------------------- faults

void ChaosRunner::Inject(const Injection& injection) {
  const FaultPlan& fault = run_->plan.faults[injection.fault];
  const Instant now = loop_->Now();
  nlohmann::json fields = {{"fault", injection.fault + 1},
                           {"occurrence", injection.occurrence + 1},
                           {"kind", FaultName(fault.kind)},
                           {"node", node_id_},
                           {"generation", view_.generation}};
  std::string victim = absl::StrCat("node ", view_.group_rank, " (", node_id_, ")");
  if (injection.rank.has_value()) {
    const uint32_t local_rank = *injection.rank - view_.base_rank;
    fields["local_rank"] = local_rank;
    fields["worker_pid"] = workers_[local_rank].process.pid();
    victim = absl::StrCat("rank ", *injection.rank);
  }
  fields["victim"] = victim;
  if (fault.lasts != absl::InfiniteDuration()) fields["for"] = absl::FormatDuration(fault.lasts);
  std::optional<uint64_t> step;
  for (const auto& worker : view_.workers) {
    if (!SaysStep(worker.phase) || view_.generation == 0) continue;
    step = std::max(step.value_or(0), worker.step);
  }
  if (step.has_value()) fields["step"] = *step;
  const absl::Status hit = Hit(fault, injection);
  const std::string what =
      absl::StrCat("chaos: fault ", injection.fault + 1, ": ", DescribeFault(fault), ": ", victim);
  if (!hit.ok()) {
    Notify(absl::StrCat("warning: ", what, ": not injected: ", hit.message()));
    return;
  }
  Notify(what);
  injected_.insert(injection.fault);
  own_.Write(now, "fault", fields);
}

absl::Status ChaosRunner::Hit(const FaultPlan& fault, const Injection& injection) {
  const uint32_t local_rank = injection.rank.value_or(view_.base_rank) - view_.base_rank;
  switch (fault.kind) {
    case FaultKind::kWorkerKilled:
      return workers_[local_rank].process.Signal(fault.signal);
    case FaultKind::kWorkerStopped:
      return StopFor(fault, injection, workers_[local_rank].process);
    case FaultKind::kAgentKilled:
      DDPRUN_RETURN_IF_ERROR(agent_->Signal(SIGKILL));
      killed_by_ = injection;
      return absl::OkStatus();
    case FaultKind::kAgentFrozen: {
      DDPRUN_ASSIGN_OR_RETURN(const ProcessHandle agent, ProcessHandle::Open(agent_->pid()));
      return StopFor(fault, injection, agent);
    }
    case FaultKind::kServiceKilled:
      return service_.Signal(SIGKILL);
    case FaultKind::kServiceStalled:
      return StopFor(fault, injection, service_);
    case FaultKind::kNetworkCut:
    case FaultKind::kPacketLoss:
      return CutFor(fault, injection);
  }
  return absl::InternalError("unknown fault");
}

absl::Status ChaosRunner::StopFor(const FaultPlan& fault, const Injection& injection,
                                  const ProcessHandle& process) {
  DDPRUN_RETURN_IF_ERROR(process.Signal(SIGSTOP));
  if (fault.lasts == absl::InfiniteDuration()) return absl::OkStatus();
  // A handle of its own: the worker may be another one by then.
  auto again = ProcessHandle::Open(process.pid());
  if (!again.ok()) return absl::OkStatus();  // killed meanwhile
  auto held = std::make_shared<ProcessHandle>(*std::move(again));
  After(fault.lasts, [this, injection, held] {
    const absl::Status went_on = held->Signal(SIGCONT);
    NoteOver(injection, went_on.ok() ? "continued" : "gone");
  });
  return absl::OkStatus();
}

absl::Status ChaosRunner::CutFor(const FaultPlan& fault, const Injection& injection) {
  const uint64_t id = next_timer_++;
  DDPRUN_ASSIGN_OR_RETURN(networks_[id], NetworkFault::Begin(loop_, fault, [this, id, injection] {
                            NoteOver(injection, "healed");
                            networks_.erase(id);
                          }));
  return absl::OkStatus();
}

void ChaosRunner::NoteOver(const Injection& injection, const std::string& what, pid_t agent_pid) {
  nlohmann::json fields = {
      {"fault", injection.fault + 1}, {"occurrence", injection.occurrence + 1}, {"what", what}};
  if (agent_pid != 0) fields["agent_pid"] = agent_pid;
  own_.Write(loop_->Now(), "fault_over", fields);
}

void ChaosRunner::After(absl::Duration delay, std::function<void()> call) {
  const uint64_t id = next_timer_++;
  timers_[id] = std::make_unique<Timer>(loop_, [this, id, call = std::move(call)] {
    const auto keep = call;  // goes with its timer
    timers_.erase(id);
    keep();
  });
  timers_[id]->Arm(loop_->Now() + delay);
}

// ------------------------------------------------------------- ends

void ChaosRunner::OnAgentEnd(int how) {
  OnLines();
  NoteReached();
  view_.agent_runs = false;
  view_.service_here = false;
  view_.generation = 0;
  const bool by_plan = killed_by_.has_value() && how == -SIGKILL;
  if (!by_plan) return End(how >= 0 ? how : 128 - how);
  const Injection injection = *std::exchange(killed_by_, std::nullopt);
  const absl::Duration rejoin = run_->plan.faults[injection.fault].rejoin;
  if (ending_ || rejoin == absl::InfiniteDuration()) return End(0);
  After(rejoin, [this, injection] {
    if (ending_) return;
    const absl::Status started = StartAgent();
    if (!started.ok()) {
      Notify(absl::StrCat("error: chaos can't start the agent again: ", started.message()));
      return End(1);
    }
    NoteOver(injection, "started again", agent_->pid());
  });
}

void ChaosRunner::OnSignal(int number) {
  if (run_->launch.signals.policy.Ends(number) && !ending_) {
    ending_ = true;
    networks_.clear();
  }
  if (!view_.agent_runs) {
    if (ending_) End(128 + number);
    return;
  }
  // NOT_FOUND: it has just ended, which comes next. One that the plan has frozen must wake for it.
  agent_->Signal(number).IgnoreError();
  if (ending_) agent_->Signal(SIGCONT).IgnoreError();
}

void ChaosRunner::End(int status) {
  status_ = status;
  networks_.clear();
  OnLines();
  timers_.clear();
  loop_->Stop();
}

std::vector<size_t> ChaosRunner::NeverInjected() const {
  std::vector<size_t> never = schedule_.NeverDue();
  // With a node alone there is no elsewhere, nor for a node that the job never had.
  const bool alone = run_->launch.job.nodes_max == 1;
  for (size_t i = 0; i < run_->plan.faults.size(); ++i) {
    const bool listed = std::find(never.begin(), never.end(), i) != never.end();
    const bool nowhere = alone || IsNoNode(run_->plan.faults[i].victim, nodes_);
    if (nowhere && !listed && !injected_.contains(i)) never.push_back(i);
  }
  std::sort(never.begin(), never.end());
  return never;
}

}  // namespace ddprun::launcher
