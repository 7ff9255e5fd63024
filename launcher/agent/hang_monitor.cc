#include "launcher/agent/hang_monitor.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "launcher/core/stack_text.h"
#include "rendezvous/core/worker_failure.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kFactTextMax = 480;
// How long the end of a hung worker may be delayed to read its stack. gdb needs a second for
// LibTorch on an idle machine; a job that hangs often shares its processors.
constexpr absl::Duration kNativeStackLimit = absl::Seconds(20);
// A witness reports four times a second. One that is older than this can't get the interpreter's
// lock.
constexpr absl::Duration kWitnessFresh = absl::Milliseconds(1500);
// The factor by which the time-out grows once it has ended a worker, which may only have been slow.
constexpr int kPatience = 2;

bool IsStopped(char state) { return state == 'T' || state == 't'; }

std::string StateText(char state) {
  switch (state) {
    case 'R':
      return "R (on the processor)";
    case 'S':
      return "S (sleeping)";
    case 'D':
      return "D (waiting for a disk or the network, can't be interrupted)";
    case 'T':
      return "T (stopped by a signal)";
    case 't':
      return "t (stopped by a tracer)";
    default:
      return std::string(1, state);
  }
}

// The folders to search for stack tools: first that of the workers' interpreter, where pip installs
// py-spy even if the environment isn't activated.
std::string ToolPath(const LaunchPlan& plan) {
  const char* path = std::getenv("PATH");
  std::string usual = path == nullptr ? "" : path;
  const std::string program = plan.argv.empty() ? "" : plan.argv.front();
  const size_t slash = program.rfind('/');
  if (slash == std::string::npos || slash == 0) return usual;
  return absl::StrCat(program.substr(0, slash), ":", usual);
}

}  // namespace

HangMonitor::HangMonitor(EventLoop* loop, const LaunchPlan* plan, Hooks hooks)
    : loop_(loop),
      plan_(plan),
      hooks_(std::move(hooks)),
      hangs_(plan->hangs),
      clock_(loop->Now()),
      timer_(std::make_unique<Timer>(loop, [this] { Look(); })) {
  if (plan_->hangs.hang_timeout == absl::ZeroDuration()) return;
  Notify(absl::StrCat(
      "a rank that holds up the others for ", absl::FormatDuration(plan_->hangs.hang_timeout),
      " is ended; one whose steps aren't known counts as such when it has neither read "
      "nor written nor used the processor for so long (--hang_timeout)"));
}

HangMonitor::~HangMonitor() = default;

void HangMonitor::Begin(const rendezvous::Assignment& assignment, const std::set<uint32_t>& kept) {
  generation_ = assignment.generation;
  base_rank_ = assignment.base_rank;
  pids_.assign(plan_->worker_count, 0);
  ended_.clear();
  told_.clear();
  named_.clear();
  detector_ = std::make_unique<HangDetector>(hangs_, plan_->worker_count, Now());
  book_.emplace(assignment.redone_to, loop_->Now());
  const std::unique_ptr<ProgressPages> last = std::move(last_pages_);
  auto pages = ProgressPages::Create(
      loop_, generation_.value(), plan_->worker_count,
      [this] {
        if (detector_ == nullptr) return;
        detector_->OnOpened(Now());
        Arm();
      },
      last.get(), kept);
  if (pages.ok()) {
    pages_ = *std::move(pages);
    // A kept worker has its page open already.
    if (!pages_->watched() || !kept.empty()) detector_->OnOpened(Now());
  } else {
    pages_.reset();
    Notify(absl::StrCat("warning: workers can't mark their progress, so hangs go unnoticed: ",
                        pages.status().message()));
  }
  Arm();
}

void HangMonitor::FillIn(rendezvous::AgentMessage& renewal) {
  if (pages_ == nullptr) return;
  book_->OnLook(loop_->Now(), LookNow());
  renewal.generation = generation_;
  auto& body = std::get<rendezvous::Renewal>(renewal.body);
  body.progress = pages_->Words();
  body.step_time = step_time();
  body.time = book_->Read(loop_->Now());
  for (const auto& [local_rank, named] : named_) {
    body.hold_ups[local_rank] = {.lasted = Now() - named.since, .why = named.why};
  }
}

std::string HangMonitor::page_path(uint32_t local_rank) const {
  return pages_ == nullptr ? "" : pages_->path(local_rank);
}

void HangMonitor::OnStarted(uint32_t local_rank, pid_t pid) {
  if (local_rank < pids_.size()) pids_[local_rank] = pid;
  if (detector_ == nullptr) return;
  detector_->OnStarted(Now(), local_rank);
  Arm();
}

bool HangMonitor::OnEnded(uint32_t local_rank, bool well) {
  if (local_rank < pids_.size()) pids_[local_rank] = 0;
  named_.erase(local_rank);
  if (detector_ != nullptr) {
    if (well) LookAtWitnesses();
    detector_->OnEnded(local_rank, well);
  }
  return !ended_.contains(local_rank);
}

void HangMonitor::OnFinished(uint32_t local_rank) {
  if (detector_ != nullptr) detector_->OnEnded(local_rank);
}

void HangMonitor::CloseBook() {
  if (!book_.has_value()) return;
  const Instant now = loop_->Now();
  if (pages_ != nullptr) book_->OnLook(now, LookNow());
  book_->Close(now);
}

HangMonitor::Summary HangMonitor::OnEmpty() {
  Summary summary;
  for (const uint64_t word : pages_ == nullptr ? std::vector<uint64_t>() : pages_->Words()) {
    if (word == 0 || ProgressPhaseOf(word) == ProgressPhase::kCounted) continue;
    summary.step = std::max(summary.step, std::optional(ProgressStepOf(word)));
  }
  CloseBook();
  if (book_.has_value()) summary.time = book_->Read(loop_->Now());
  book_.reset();
  timer_->Disarm();
  stacks_.clear();
  named_.clear();
  waits_.clear();
  if (detector_ != nullptr) hangs_.survived = detector_->survived();
  detector_.reset();
  last_pages_ = std::move(pages_);
  return summary;
}

// ------------------------------------------------------------- looking

void HangMonitor::Arm() {
  asked_ = Instant::Infinite();
  if (detector_ == nullptr) return timer_->Disarm();
  // A tool that reads a stack may stop the worker, so samples are suspended meanwhile.
  asked_ = clock_.Wake(stacks_.empty() ? std::min(detector_->NextLook(), detector_->NextSample())
                                       : detector_->NextLook());
  timer_->Arm(asked_);
}

// Time in which this agent, or the whole machine, stood still doesn't count as silence of workers.
Instant HangMonitor::Now() { return clock_.Read(loop_->Now(), asked_); }

TimeBook::Look HangMonitor::LookNow() const {
  TimeBook::Look look{.words = pages_->Words()};
  look.marked = pages_->MarkTimes();
  look.data_wait = pages_->DataWait();
  return look;
}

void HangMonitor::LookAtPages(Instant now) {
  if (pages_ == nullptr) return;
  const TimeBook::Look look = LookNow();
  book_->OnLook(loop_->Now(), look);
  detector_->OnWords(now, look.words, pages_->Collectives());
  LookAtNamed(now);
}

void HangMonitor::Look() {
  if (detector_ == nullptr) return;
  const Instant now = Now();
  asked_ = Instant::Infinite();
  const bool suspected = detector_->any_suspect();
  if (detector_->NextLook() <= now) LookAtPages(now);
  if (stacks_.empty() && detector_->NextSample() <= now) Sample();
  if (detector_->any_suspect() && !suspected) {
    for (uint32_t i = 0; i < pids_.size(); ++i) {
      if (!detector_->suspect(i)) continue;
      hooks_.record("hang_suspect", {{"generation", absl::StrCat(generation_.value())},
                                     {"local_rank", absl::StrCat(i)},
                                     {"why", detector_->Describe(i, now)}});
    }
  }
  if (auto report = detector_->TakeReport(); report.has_value()) {
    hooks_.found({generation_, *std::move(report)});
  }
  Arm();
}

void HangMonitor::Sample() {
  LookAtWitnesses();
  std::vector<WorkerVital> vitals = probe_.Look(pids_);
  for (uint32_t i = 0; i < pids_.size(); ++i) vitals[i].sealed = IsSealed(i);
  detector_->OnVitals(Now(), vitals);
}

// Looks only at suspects whose witness has found all threads at locks, because it takes
// milliseconds.
bool HangMonitor::IsSealed(uint32_t local_rank) {
  const Witness& witness = detector_->witness(local_rank);
  if (pids_[local_rank] == 0 || !witness.at_locks || !detector_->suspect(local_rank)) {
    waits_.erase(local_rank);
    return false;
  }
  ProcessWait wait = LookAtWaits(pids_[local_rank], {static_cast<pid_t>(witness.watcher)});
  ProcessWait& before = waits_[local_rank];
  const bool sealed = SameSealed(before, wait);
  before = std::move(wait);
  return sealed;
}

void HangMonitor::LookAtWitnesses() {
  if (pages_ == nullptr) return;
  detector_->OnWitnesses(pages_->Witnesses(loop_->Now(), kWitnessFresh));
}

void HangMonitor::Do(const LookAtWorkers& request) {
  if (detector_ == nullptr || request.generation != generation_) return;
  detector_->OnAsked(Now(), request.sample);
  Arm();
}

// ------------------------------------------------------------- ending

void HangMonitor::Do(const HandleHungWorkers& order) {
  if (detector_ == nullptr || order.generation != generation_) return;
  for (const uint32_t local_rank : order.local_ranks) {
    const bool runs = local_rank < pids_.size() && pids_[local_rank] != 0;
    if (!runs || stacks_.contains(local_rank)) continue;
    if (!order.end) {
      Name(local_rank, order.evidence);
    } else if (!told_.contains({local_rank, detector_->progress(local_rank)})) {
      EndWorker(local_rank, order.evidence);
    }
  }
}

// ------------------------------------------------------------- naming

std::string HangMonitor::WhereText(uint32_t local_rank, std::string* waits) const {
  *waits = LookAtWaits(pids_.at(local_rank), {}).main;
  std::vector<std::string> parts;
  if (!waits->empty()) parts.push_back(absl::StrCat("it ", *waits));
  if (pages_ != nullptr) {
    const Witness witness = pages_->Witnesses(loop_->Now(), kWitnessFresh).at(local_rank);
    const std::string& place = witness.user_place.empty() ? witness.place : witness.user_place;
    if (!place.empty()) parts.push_back(absl::StrCat("at ", place));
  }
  return absl::StrJoin(parts, "; ");
}

// Reports a suspicion, once until the worker makes progress. A suspicion ends nothing.
void HangMonitor::Name(uint32_t local_rank, const std::string& evidence) {
  const Instant now = Now();
  LookAtPages(now);
  const uint64_t progress = detector_->progress(local_rank);
  const auto known = named_.find(local_rank);
  const bool is_known = known != named_.end() && known->second.progress == progress;
  if (is_known || !detector_->suspect(local_rank)) return Arm();
  named_[local_rank] = {progress, now - detector_->silent(local_rank, now), evidence};
  const pid_t pid = pids_[local_rank];
  const Witness& witness = detector_->witness(local_rank);
  std::string waits;
  const std::string where = WhereText(local_rank, &waits);
  const std::string limit = absl::FormatDuration(detector_->end_after(local_rank));
  std::string fate = absl::StrCat("it is ended if this lasts ", limit, " (--hang_timeout)");
  if (plan_->on_hang == OnHang::kReport) fate = "it is left alone (--on_hang report)";
  const bool is_tied = absl::StrContains(evidence, rendezvous::kTiedEvidence);
  // All workers may be stopped, because somebody has paused the job.
  if (is_tied && IsStopped(detector_->vital(local_rank).state)) {
    fate = absl::StrCat("kill -CONT ", pid);
  }
  const std::string text =
      absl::StrCat("worker rank ", base_rank_ + local_rank, " (pid ", pid,
                   is_tied ? ") may hold" : ") holds", " up the job: ", evidence);
  const bool said = absl::StartsWith(evidence, rendezvous::kStoppedEvidence);
  const std::string more = said ? "SIGCONT continues it" : where;
  Notify(absl::StrCat(text, more.empty() ? "" : "; ", more, "; ", fate));
  hooks_.record("hang_named",
                {{"generation", absl::StrCat(generation_.value())},
                 {"local_rank", absl::StrCat(local_rank)},
                 {"rank", absl::StrCat(base_rank_ + local_rank)},
                 {"why", absl::StrCat(detector_->Describe(local_rank, now), "; ", evidence)},
                 {"waits", waits},
                 {"python", witness.place},
                 {"limit", limit}});
  Arm();
}

// Reports workers that were named and have made progress since.
void HangMonitor::LookAtNamed(Instant now) {
  for (auto named = named_.begin(); named != named_.end();) {
    const auto& [local_rank, before] = *named;
    if (detector_->progress(local_rank) == before.progress) {
      ++named;
      continue;
    }
    const std::string took =
        absl::FormatDuration(absl::Trunc(now - before.since, absl::Milliseconds(100)));
    Notify(absl::StrCat("worker rank ", base_rank_ + local_rank, " goes on after ", took));
    hooks_.record("hang_over", {{"generation", absl::StrCat(generation_.value())},
                                {"local_rank", absl::StrCat(local_rank)},
                                {"rank", absl::StrCat(base_rank_ + local_rank)},
                                {"after", took}});
    named = named_.erase(named);
  }
}

// Reads the worker's stack before it is killed. The stack of a stopped worker shows nothing, so
// that worker is ended at once.
void HangMonitor::EndWorker(uint32_t local_rank, const std::string& evidence) {
  WorkerVital vital = probe_.Look({pids_[local_rank]}).front();
  if (IsStopped(vital.state)) return Conclude(local_rank, evidence, vital, {});
  stacks_[local_rank] =
      NativeStack::Start(loop_, pids_[local_rank], ToolPath(*plan_), kNativeStackLimit,
                         [this, local_rank, evidence, vital](const NativeStack::Result& native) {
                           const auto running = stacks_.extract(local_rank);  // lives to the end
                           const bool runs = pids_[local_rank] != 0;
                           if (runs) Conclude(local_rank, evidence, vital, native);
                         });
}

void HangMonitor::Conclude(uint32_t local_rank, const std::string& evidence,
                           const WorkerVital& vital, const NativeStack::Result& native) {
  const Instant now = Now();
  // Marks that came meanwhile are better evidence.
  LookAtPages(now);
  const bool stopped = IsStopped(vital.state);
  if (!stopped && !detector_->StillStands(local_rank)) return Arm();
  WorkerEnd end;
  end.local_rank = local_rank;
  end.pid = static_cast<uint32_t>(pids_[local_rank]);
  end.signal = SIGKILL;
  end.hung = true;
  end.message = absl::StrCat(detector_->Describe(local_rank, now), "; ", evidence);
  end.facts.push_back(absl::StrCat("state: ", StateText(vital.state)));
  const std::string stack = vital.stack.substr(0, std::min(vital.stack.find('\n'), kFactTextMax));
  if (!stack.empty() && stack != "0") end.facts.push_back(absl::StrCat("kernel: ", stack));
  const std::string& place = detector_->witness(local_rank).place;
  if (!place.empty() && !stopped) end.facts.push_back(absl::StrCat("python: ", place));
  const std::string stacks = WithoutEmptyStacks(native.text);
  if (!stacks.empty()) end.traceback = absl::StrCat(native.tool, ":\n", stacks);
  const std::string fact =
      stopped ? "" : StackFact(native.tool, !stacks.empty(), plan_->runs_python);
  if (!fact.empty()) end.facts.push_back(fact);
  hooks_.record("hang", {{"generation", absl::StrCat(generation_.value())},
                         {"local_rank", absl::StrCat(local_rank)},
                         {"rank", absl::StrCat(base_rank_ + local_rank)},
                         {"why", end.message},
                         {"state", std::string(1, vital.state)},
                         {"kernel", stack},
                         {"python", stopped ? "" : place},
                         {"native", stacks.empty() ? "" : native.tool}});
  if (plan_->on_hang == OnHang::kReport && !(stopped && plan_->restart_stopped)) {
    told_.emplace(local_rank, detector_->progress(local_rank));
    Arm();
    return Notify(absl::StrCat("worker rank ", base_rank_ + local_rank, " (pid ", end.pid,
                               ") hangs: ", end.message, "; ", absl::StrJoin(end.facts, "; "),
                               "; it is left alone (--on_hang report)",
                               end.traceback.empty() ? "" : "\n", end.traceback));
  }
  // An explicit --hang_timeout doesn't grow.
  const bool by_time = detector_->silent(local_rank, now) >= detector_->end_after(local_rank);
  if (by_time && hangs_.hang_timeout == absl::ZeroDuration()) {
    hangs_.end_after = kPatience * detector_->end_after(local_rank);
  }
  ended_.insert(local_rank);
  hooks_.end_worker(generation_, std::move(end));
}

}  // namespace ddprun::launcher
