#include "launcher/warm/warm_starts.h"

#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "launcher/os/cgroup.h"
#include "launcher/os/files.h"
#include "launcher/warm/park_recipe.h"

namespace ddprun::launcher {
namespace {

// How warm starts work.
//
// Goal: a restarted worker skips the imports (2 s for torch from a local disk, minutes over a
// network). No worker may behave otherwise for it, and unless the user has asked for warm starts,
// none may start later.
//
// One idle worker per rank, the obvious way, fails: each holds memory of its own, and a second
// failure soon after the first finds none ready. So one fork server a node imports once, and every
// worker is a fork of it (for Kind::kProgram: the program itself, stopped before its main()).
// Importing a fixed list fails, too: a module that reads RANK or asks CUDA at its import must not
// be imported before the fork. So the list is learned from the first two workers, and the server's
// own checks refuse modules (launcher/warm/parked.py, trial.py).
//
// This class connects three parties: WarmStarter (pure) decides, the keeper starts and asks the
// fork server, and files carry what was learned: `folder_`/learned/N from worker N of this job,
// WarmPlan::kept from and for other jobs and nodes. Example: 4 workers, imports of 2,000 ms:
//
//   t       event                      what happens
//   0 s     Prepare, generation 1      4 cold starts; workers 0 and 1 get DDPRUN_WARM=learn
//   9.0 s   learned/0 is renamed in    ReadLearned: learned/1 is missing, so nothing
//   9.2 s   learned/1 is renamed in    merged: Keep writes the kept file; Park starts the server
//   11.5 s  "ready 2000 500000"        2,000 ms, 500,000 KiB; kReady
//   60 s    worker 3 fails             OnFirstEnd; OnEmpty when the node has no worker left
//   60.1 s  Prepare, generation 2      each may wait 5 s for its fork (kForkPatience)
//   60.3 s  the last OnStarted         4 warm, 0 cold; saved 2,000 - 200 = 1,800 ms: "warm_start"
//
// Invariants: a start never fails because of the server: the keeper falls back to exec(2) when the
// patience is over. Only the first exit of a generation is evidence about forks, because the others
// mostly follow from it. A program is never started ahead unless one of its workers has offered it,
// and it is still the same file.
//
// The thresholds here: two learners, because two records show what differs between workers; a
// quarter of the memory (kFreePartMin, chosen) stays free for the training unless --warm_memory
// gives a limit. All patience is WarmStarter's.

// Whether the way in which a forked worker ended may be due to the fork: CUDA refuses to start in
// the child of a process that has used it, and a library crashes that relies on a thread which the
// child doesn't have.
bool MayBeOfTheFork(const WorkerEnd& end) {
  // Without SIGABRT: NCCL's watchdog ends a worker with it when a peer is gone.
  static constexpr std::array kCrashes = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
  return absl::c_linear_search(kCrashes, end.signal) ||
         absl::StrContains(absl::StrCat(end.message, end.traceback, end.stderr_tail),
                           "in forked subprocess");
}

// --warm_memory in bytes; 0 = no bound.
uint64_t BytesMax(const WarmPlan& plan) {
  if (plan.memory_bytes.has_value()) return std::max<uint64_t>(*plan.memory_bytes, 1);
  if (!plan.memory_percent.has_value()) return 0;
  const std::optional<Memory> memory = MachineMemory();
  if (!memory.has_value()) return 0;
  const double bytes = static_cast<double>(memory->total) / 100 * *plan.memory_percent;
  return std::max<uint64_t>(static_cast<uint64_t>(bytes), 1);
}

WarmStarter::Rules RulesOf(const LaunchPlan& plan) {
  return {.bytes_max = BytesMax(plan.warm),
          .kind = plan.runs_python ? WarmStarter::Kind::kInterpreter : WarmStarter::Kind::kProgram,
          .unasked = plan.warm.unasked,
          .crowded = plan.warm.crowded};
}

}  // namespace

std::string WhyCold(const LaunchPlan& plan) {
  if (plan.warm.memory_bytes == uint64_t{0} || plan.warm.memory_percent == 0.0) {
    return plan.runs_python ? "--warm_memory 0 leaves no interpreter ready"
                            : "--warm_memory 0 leaves no program ready";
  }
  if (plan.preflight != Preflight::kNone) return "they test the network first";
  for (uint32_t local_rank = 1; local_rank < plan.worker_count; ++local_rank) {
    if (WorkerArguments(plan, local_rank) != WorkerArguments(plan, 0)) {
      return "their arguments differ (--local-rank, or a ${local_rank} of yours)";
    }
  }
  if (!plan.worker_cpus.empty()) {
    return "each is bound to CPUs of its own, which libraries look at when they are loaded";
  }
  return "";
}

absl::StatusOr<std::unique_ptr<WarmStarts>> WarmStarts::Create(
    EventLoop* loop, const LaunchPlan* plan, KeeperClient* keeper, std::string folder,
    EnvironmentLookup environment, const std::optional<std::string>& leased, Hooks hooks) {
  std::unique_ptr<WarmStarts> starts(new WarmStarts(loop, plan, keeper, std::move(folder),
                                                    std::move(environment), std::move(hooks)));
  DDPRUN_RETURN_IF_ERROR(starts->MakeFiles());
  starts->Begin(leased);
  return starts;
}

WarmStarts::WarmStarts(EventLoop* loop, const LaunchPlan* plan, KeeperClient* keeper,
                       std::string folder, EnvironmentLookup environment, Hooks hooks)
    : loop_(loop),
      plan_(plan),
      keeper_(keeper),
      folder_(std::move(folder)),
      environment_(std::move(environment)),
      hooks_(std::move(hooks)),
      program_(plan->runs_python ? "" : ProgramFile(*plan, environment_)),
      wanted_(plan->warm.on),
      starter_(RulesOf(*plan)),
      hold_(std::make_unique<Timer>(loop, [this] { OnHoldOver(); })) {}

absl::Status WarmStarts::MakeFiles() {
  if (!plan_->runs_python) return absl::OkStatus();  // programs need no files
  DDPRUN_RETURN_IF_ERROR(WriteParkHook(folder_));
  DDPRUN_RETURN_IF_ERROR(MakeFolders(folder_ + "/learned"));
  written_ = Fd(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!written_.valid()) return ErrnoStatus(errno, "inotify_init1");
  if (inotify_add_watch(written_.get(), (folder_ + "/learned").c_str(), IN_MOVED_TO) < 0) {
    return ErrnoStatus(errno, absl::StrCat("inotify_add_watch '", folder_, "/learned'"));
  }
  watch_ = std::make_unique<FdWatch>(loop_, written_.get(), [this] { ReadLearned(); });
  return absl::OkStatus();
}

// From the first fork server on: when memory gets short, the server is the first to go.
void WarmStarts::WatchMemory() {
  if (std::exchange(watches_memory_, true)) return;
  absl::StatusOr<std::unique_ptr<PressureWatch>> pressure = PressureWatch::Create(loop_, [this] {
    Do(starter_.OnShort("the system is under memory pressure (/proc/pressure/memory)"));
  });
  if (pressure.ok()) {
    pressure_ = *std::move(pressure);
  } else {
    Log(LogLevel::kInfo,
        absl::StrCat("memory pressure can't be watched, so the process that workers "
                     "are forked from stays when memory gets short: ",
                     pressure.status().message()));
  }
}

void WarmStarts::Begin(const std::optional<std::string>& leased) {
  if (leased.has_value()) WatchMemory();
  std::optional<Learned> kept = ReadKept();
  wanted_ |= kept.has_value();
  // A node without workers uses the kept file later, in LookAround().
  if (plan_->warm.unasked) kept_version_ = Version();
  Do(leased.has_value() ? starter_.BeginReady(loop_->Now(), std::move(kept), *leased)
                        : starter_.Begin(loop_->Now(), std::move(kept),
                                         plan_->runs_python && !plan_->warm.preload.empty()));
}

// What earlier jobs or other nodes of this job have learned; nullopt also if the file hasn't
// changed since it was last read.
std::optional<Learned> WarmStarts::ReadKept() {
  struct stat now {};
  if (stat(plan_->warm.kept.c_str(), &now) != 0) return std::nullopt;
  const Version version = {now.st_ino, now.st_mtim.tv_sec, now.st_mtim.tv_nsec};
  if (std::exchange(kept_version_, version) == version) return std::nullopt;
  std::optional<Learned> kept = ReadKeptFile(plan_->warm.kept);
  if (!plan_->runs_python && kept.has_value() && kept->signature != ProgramSignature(program_)) {
    return std::nullopt;  // learned from another program
  }
  return kept;
}

void WarmStarts::OnCanPark(uint32_t local_rank) { LookAtOffer(offers_.OnOffered(local_rank)); }

void WarmStarts::LookAtOffer(std::optional<int32_t> pid) {
  if (!pid.has_value() || plan_->runs_python || !Runs(*pid, program_)) return;
  can_park_ = ProgramSignature(program_);
  LearnThatItCanPark();
}

void WarmStarts::OnCanRejoin() {
  if (!std::exchange(wanted_, true)) LearnThatItCanPark();
}

void WarmStarts::LearnThatItCanPark() {
  if (!wanted_ || !starter_.WantsToLearn() || can_park_.empty()) return;
  if (can_park_ != ProgramSignature(program_)) return;
  Learned learned;
  learned.signature = can_park_;
  Do(starter_.OnLearned(loop_->Now(), std::move(learned)));
}

void WarmStarts::LookAround() {
  if (running_ || !starter_.WantsToLearn() || plan_->warm.kept.empty()) return;
  std::optional<Learned> kept = ReadKept();
  if (!kept.has_value()) return;
  wanted_ = true;
  Do(starter_.OnKept(loop_->Now(), *std::move(kept)));
}

std::string WarmStarts::LearnedPath(uint32_t local_rank) const {
  return absl::StrCat(folder_, "/learned/", local_rank);
}

// How many workers write down their imports: what two of them have in common holds for all.
uint32_t WarmStarts::learners() const { return std::min(plan_->worker_count, 2U); }

// A learner finds the recorder (diary.py) as sitecustomize in `folder_`/hook, the first folder of
// its PYTHONPATH. DDPRUN_WARM_PYTHONPATH has the value that the hook restores; absent = it was
// unset.
void WarmStarts::Prepare(SpawnRequest* request) {
  running_ = true;
  if (generation_ != request->generation) {
    restarted_ = generation_ != 0;
    generation_ = request->generation;
    prepared_ = loop_->Now();
    started_ = Use();
    starting_ = 0;
    forked_.clear();
    Do(starter_.OnStart(loop_->Now()));
  }
  ++starting_;
  offers_.OnPrepared(request->local_rank);
  request->parked_patience = starter_.Patience(loop_->Now());
  if (!plan_->runs_python || !starter_.WantsToLearn() || request->local_rank >= learners()) return;
  std::string path = folder_ + "/hook";
  std::optional<std::string> before = environment_("PYTHONPATH");
  for (const std::string& variable : request->environment) {
    absl::string_view value = variable;
    if (absl::ConsumePrefix(&value, "PYTHONPATH=")) before = std::string(value);
  }
  if (before.has_value()) {
    request->environment.push_back(absl::StrCat("DDPRUN_WARM_PYTHONPATH=", *before));
    if (!before->empty()) absl::StrAppend(&path, ":", *before);
  }
  request->environment.push_back("DDPRUN_WARM=learn");
  request->environment.push_back(
      absl::StrCat("DDPRUN_WARM_LEARNED=", LearnedPath(request->local_rank)));
  request->environment.push_back(absl::StrCat("PYTHONPATH=", path));
}

void WarmStarts::ReadLearned() {
  alignas(inotify_event) char buffer[4096];
  while (read(written_.get(), buffer, sizeof(buffer)) > 0) {
  }
  std::optional<Learned> all;
  for (uint32_t local_rank = 0; local_rank < learners(); ++local_rank) {
    const auto text = ReadFile(LearnedPath(local_rank), kLearnedBytesMax);
    if (!text.ok()) return;  // another event comes with it
    absl::StatusOr<Learned> learned = ParseLearned(*text);
    if (!learned.ok()) {
      return Do(starter_.GiveUp(absl::StrCat(
          "what worker ", local_rank,
          " has written down of its imports can't be read: ", learned.status().message())));
    }
    all = all.has_value() ? MergeLearned(*std::move(all), *learned) : *std::move(learned);
  }
  if (all.has_value()) Do(starter_.OnLearned(loop_->Now(), *std::move(all)));
}

void WarmStarts::OnSaid(const std::string& text) { Do(starter_.OnSaid(loop_->Now(), text)); }

void WarmStarts::OnEnded(const std::string& how) { Do(starter_.OnEnded(loop_->Now(), how)); }

void WarmStarts::OnStarted(uint64_t generation, uint32_t local_rank, pid_t pid, bool parked) {
  if (generation != generation_) return;
  forked_[local_rank] = parked;
  CountStart(parked);
  LookAtOffer(offers_.OnStarted(local_rank, pid));
}

// Workers that end after the first one mostly end because of it.
void WarmStarts::OnExited(uint64_t generation, const WorkerEnd& end) {
  if (generation != generation_ || !forked_.contains(end.local_rank)) return;
  const bool forked = forked_[end.local_rank];
  forked_.clear();
  Do(starter_.OnFirstEnd(forked, MayBeOfTheFork(end), loop_->Now() - prepared_));
}

void WarmStarts::CountStart(bool parked) {
  if (parked) {
    ++started_.warm;
    // A worker that waited for the imports has saved only the rest of them.
    started_.saved =
        std::max(absl::ZeroDuration(), starter_.import_time() - (loop_->Now() - prepared_));
  } else {
    ++started_.cold;
    started_.why_cold = starter_.WhyCold();
  }
  starter_.OnStarted(parked);
  if (started_.warm + started_.cold != starting_ || !shows()) return;
  if (started_.cold == 0 && hooks_.settled) hooks_.settled();
  NotifyIfNobodySaidSo();
  hooks_.record("warm_start",
                {{"generation", absl::StrCat(generation_)},
                 {"warm", absl::StrCat(started_.warm)},
                 {"cold", absl::StrCat(started_.cold)},
                 {"saved_ms", absl::StrCat(absl::ToInt64Milliseconds(started_.saved))},
                 {"why_cold", started_.why_cold}});
}

// A program without the C++ runtime never reports that it can be started ahead. A user who asked
// for warm starts is notified at the first restart.
void WarmStarts::NotifyIfNobodySaidSo() {
  if (!plan_->warm.on || plan_->runs_python || !restarted_) return;
  if (!starter_.WantsToLearn()) return;
  if (std::exchange(told_, true)) return;
  hooks_.tell(absl::StrCat("--warm on: workers start cold: ", starter_.WhyCold(),
                           " (programs with ddprun's C++ runtime do)"));
}

WarmStarts::Use WarmStarts::use() const {
  Use use = started_;
  use.parked_bytes = starter_.bytes_held();
  if (use.why_cold.empty() && starter_.state() != WarmStarter::State::kReady) {
    use.why_cold = starter_.WhyCold();
  }
  return use;
}

void WarmStarts::OnEmpty() {
  running_ = false;
  Do(starter_.OnEmpty(loop_->Now()));
}

void WarmStarts::Do(const std::vector<WarmEffect>& effects) {
  for (const WarmEffect& effect : effects) {
    std::visit([this](const auto& e) { Do(e); }, effect);
  }
  hold_->Arm(starter_.Deadline());
}

// The end of kHeld. Without workers there is nothing to import for.
void WarmStarts::OnHoldOver() {
  if (running_) Do(starter_.OnTimer(loop_->Now()));
}

void WarmStarts::Do(const struct Park& /*effect*/) {
  if (!plan_->runs_python && ProgramSignature(program_) != starter_.learned().signature) {
    Do(starter_.OnOtherProgram());
    return LearnThatItCanPark();  // workers of the new program may have offered it already
  }
  const std::string lack = LackOfMemory();
  absl::Status status = lack.empty() ? ParkIt() : absl::OkStatus();
  if (lack.empty() && status.ok()) return;
  starter_.OnNotParked();
  Do(lack.empty() ? starter_.GiveUp(std::string(status.message())) : starter_.OnShort(lack));
}

// Why memory allows no fork server now; "" = it does.
std::string WarmStarts::LackOfMemory() const {
  const WarmPlan& warm = plan_->warm;
  if (warm.memory_bytes.has_value() || warm.memory_percent.has_value()) return "";
  const std::optional<Memory> memory = OwnMemory();
  if (!memory.has_value() || !IsShort(*memory)) return "";
  return absl::StrCat("only ", memory->available * 100 / memory->total, " % of this ",
                      memory->of_cgroup ? "cgroup" : "machine",
                      "'s memory is free; warm starts need ", 100 / kFreePartMin,
                      " %, or --warm_memory");
}

absl::Status WarmStarts::ParkIt() {
  WatchMemory();
  if (!plan_->runs_python) return keeper_->Park(PrepareParkedProgram(*plan_, environment_));
  DDPRUN_ASSIGN_OR_RETURN(const ParkRequest request,
                          PreparePark(MakeParkRecipe(*plan_, environment_, hooks_.prepare),
                                      starter_.learned(), folder_, "parked",
                                      /*idle=*/running_ && plan_->warm.crowded));
  return keeper_->Park(request);
}

void WarmStarts::Do(const Keep& /*effect*/) {
  const std::string& path = plan_->warm.kept;
  if (path.empty()) return;
  absl::Status status = MakeFolders(path.substr(0, path.rfind('/')));
  if (status.ok()) status = WriteFile(path, LearnedText(starter_.learned()));
  if (!status.ok()) {
    Log(LogLevel::kInfo,
        absl::StrCat("what was learned of warm starts is not kept for the next job: ",
                     status.message()));
  } else if (running_ && hooks_.settled) {
    hooks_.settled();
  }
}

void WarmStarts::Do(const NotifyOnce& effect) {
  if (effect.unasked || (plan_->warm.on && !plan_->warm.unasked)) return hooks_.tell(effect.text);
  Log(LogLevel::kInfo, effect.text);
}

void WarmStarts::Do(const Forget& /*effect*/) { unlink(plan_->warm.kept.c_str()); }

}  // namespace ddprun::launcher
