#include "launcher/core/hang_detector.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Activity;

// How a hang is found.
//
// Goal: name a worker that has stopped within seconds, without a time-out that the user has to
// choose, and never call a worker hung because a step was slow.
//
// A fixed time-out fails: c10d's default of 10 minutes wastes a cluster, and 10 s would end any job
// that saves a large checkpoint. "The silent worker is the guilty one" fails too: a collective
// makes every rank wait for the guilty one, so all of them fall silent within one step. So the work
// is split. Each agent's detector (this file) answers two questions about its own workers: is one
// silent for longer than its own history explains (a *suspect*), and what does each process do
// meanwhile (its *activity*)? The service compares the answers of all nodes and judges
// (rendezvous/core/failures/hang_judge.h).
//
// Two timers drive it. *Looks* read the workers' pages: a few loads of memory, all the time.
// *Samples* read /proc: some system calls a worker, only while a worker is suspect, or the service
// has asked, or a worker that marks nothing is watched because of --hang_timeout.
//
// Example: 1,100 steps, seen as 100 ms each. The bucket of 100 ms ends at 101.07 ms, so p99.9 is
// rounded up to 102 ms; suspect after 3 x 102 + 500 = 806 ms, a sample each 4 x 102 = 408 ms,
// overdue after 10 s (LimitsOf in step_times.h). The last mark is at 0; the worker is
//
//      ms      stopped (SIGSTOP)         still (blocked in recv)     busy (processor time)
//      806     suspect; state T          suspect; first sample       suspect; first sample
//      906     T again: stopped, report
//     1214                               no sign of life             active, report
//     1622                               again: still, report        active, report
//    10000                                                           overdue, report
//   600000     expired (end_after)       expired                     expired
//
// provided that the node's other workers are known by then, too. The first sample of a round is
// only what later ones are compared with. A mark at any time clears the suspicion, and if it had
// been reported, a report without suspects follows.
//
// Invariants: only progress (a mark, or a new collective) moves `changed` of a worker that has a
// mark or a collective; processor time and output never do, because an endless loop has both. A new
// suspect begins a new round of samples, so no activity in a report that names it is older than the
// suspicion. An activity becomes `kStill` only after two samples in a row without a sign of life,
// each a sample period after the one before.

// The kernel has no notification for a store into shared memory, so pages are polled. 10 ms keep
// that below 100 looks a second; 1 s is finer than an eighth of a step of more than 8 s. No limit
// is passed unseen between two looks: OnWords() plans a look for the moment at which a limit ends.
constexpr absl::Duration kLookLeast = absl::Milliseconds(10);
constexpr absl::Duration kLookMost = absl::Seconds(1);
// A step is measured from look to look, so an eighth bounds the error at 12 %, not much more than a
// bucket of StepTimes (9 %). While no step is known, an eighth of the time that has passed.
constexpr int kLooksAStep = 8;
// State T is a fact of the kernel and no statistic. The second sample excludes a process that was
// stopped for a moment, for example by a tool that reads its stack.
constexpr absl::Duration kStoppedSample = absl::Milliseconds(100);
// Proofs need two equal rounds of reports (R13), and some become possible only later (a deadlock
// is seen once the witness has found all threads at locks). Rounds follow each other after an
// eighth of the time for which the newest suspect has been silent, 4 s at most, so two more rounds
// delay such a proof by about a quarter. A sample period that is longer than the pause replaces it.
constexpr int kRoundsShare = 8;
constexpr absl::Duration kPauseMost = absl::Seconds(4);
// A waiting process isn't quite idle: threads of libraries wake now and then. 1 % of the time
// doesn't count as work.
constexpr int kIdleShare = 100;
// Workers whose steps are counted run more beside their own work: Gloo polls its sockets 100 times
// a second and the witness looks four times, together 6 % of a processor as measured on a virtual
// machine. An eighth is twice that, and still far below a thread that works.
constexpr int kCountedIdleShare = 8;
// LOOK_SECONDS in launcher/marks/witness.py.
constexpr absl::Duration kWitnessPeriod = absl::Milliseconds(250);
// Chosen: a job that has gone on by itself after a silence may be silent again for longer (a
// checkpoint that grows, a slower file server), so it is allowed three times as much.
constexpr int kSurvivedFactor = 3;

}  // namespace

HangDetector::HangDetector(const HangSettings& settings, uint32_t worker_count, Instant now)
    : settings_(settings), workers_(worker_count) {
  for (Worker& worker : workers_) {
    worker.marked = now;
    worker.changed = now;
    worker.lived = now;
    worker.sampled = Instant::Infinite();
  }
}

void HangDetector::OnStarted(Instant now, uint32_t local_rank) {
  if (local_rank >= workers_.size() || workers_[local_rank].started) return;
  Worker& worker = workers_[local_rank];
  worker.started = true;
  worker.lived = now;
  if (WatchesDeeds(worker)) worker.changed = now;
  if (!sampling_) PlanNextSample(now);
}

// Whether the worker marks phases by itself.
bool HangDetector::SaysWhere(const Worker& worker) {
  return worker.word != 0 && !ProgressIsStepOnly(worker.word);
}

// Whether progress is known only from steps, or from collectives that ddprun counts for the
// program.
bool HangDetector::IsCounted(const Worker& worker) const {
  return worker.alive && !SaysWhere(worker) && settings_.watch_marks &&
         (worker.word != 0 || worker.begun != 0);
}

// Whether the worker is watched by its processor time and output, because it marks nothing. Only
// with an explicit --hang_timeout.
bool HangDetector::WatchesDeeds(const Worker& worker) const {
  return worker.alive && worker.started && !SaysWhere(worker) &&
         settings_.hang_timeout > absl::ZeroDuration();
}

// Whether a worker that marks has too few steps for limits of its own. The counts of collectives
// already show which rank the others wait for, so the judge may name one before steps are known.
bool HangDetector::IsEarly(const Worker& worker) {
  const ProgressPhase phase = ProgressPhaseOf(worker.word);
  if (!SaysWhere(worker) || worker.begun == 0 ||
      (phase != ProgressPhase::kStart && phase != ProgressPhase::kTrain)) {
    return false;
  }
  const auto times = worker.times.find(ProgressPhase::kTrain);
  return times == worker.times.end() || times->second.seen() < kStepsForCounted;
}

bool HangDetector::IsTimed(const Worker& worker) const {
  if (WatchesDeeds(worker) || IsCounted(worker)) return true;
  if (!worker.alive || !settings_.watch_marks) return false;
  switch (ProgressPhaseOf(worker.word)) {
    case ProgressPhase::kStart:
    case ProgressPhase::kTrain:
    case ProgressPhase::kCheckpoint:
    case ProgressPhase::kEvaluation:
      return true;
    case ProgressPhase::kNone:
    case ProgressPhase::kIdle:
    case ProgressPhase::kDone:
    case ProgressPhase::kCounted:
      return false;
  }
  return false;
}

// An explicit --hang_timeout is the user's decision. Without one, a job must not end before torch
// would have ended it (the time-out of the process group), nor after a silence of a length that
// this job has already survived.
absl::Duration HangDetector::EndAfter(const Worker& worker) const {
  if (settings_.hang_timeout > absl::ZeroDuration()) return settings_.end_after;
  return std::max(
      {settings_.end_after, worker.witness.timeout, kSurvivedFactor * settings_.survived});
}

absl::Duration HangDetector::DeedSample() const {
  return std::clamp(settings_.hang_timeout / 8, kStoppedSample, kUnlearnedSample);
}

bool HangDetector::IsIdle(const Worker& worker, Instant now) const {
  return WatchesDeeds(worker) && now - worker.lived >= settings_.hang_timeout;
}

PhaseLimits HangDetector::Limits(const Worker& worker) const {
  const bool counted = IsCounted(worker);
  if (!counted && !SaysWhere(worker)) {
    return {.suspect = settings_.hang_timeout,
            .overdue = absl::InfiniteDuration(),
            .sample = DeedSample()};
  }
  const auto found =
      worker.times.find(counted ? ProgressPhase::kCounted : ProgressPhaseOf(worker.word));
  const StepTimes none;
  const StepTimes& times = found == worker.times.end() ? none : found->second;
  const PhaseLimits of_counted =
      LimitsOfCounted(times, settings_.few_steps_slack, settings_.first_step_timeout);
  PhaseLimits limits =
      counted ? of_counted
              : LimitsOf(times, settings_.few_steps_slack, settings_.first_step_timeout);
  if (IsEarly(worker)) {
    limits.suspect = of_counted.suspect;
    limits.sample = of_counted.sample;
  }
  if (TurnsInCircles(worker.witness)) limits.overdue = std::max(limits.suspect, of_counted.suspect);
  return limits;
}

// ------------------------------------------------------------- looks

void HangDetector::OnOpened(Instant now) {
  if (!settings_.watch_marks) return;
  opened_ = std::min(opened_, now);
  look_ = now;
}

Instant HangDetector::NextLook() const { return look_; }

absl::Duration HangDetector::LookPeriod(Instant now) const {
  absl::Duration shortest = now - opened_;
  for (const Worker& worker : workers_) {
    if (worker.word == 0 || (SaysWhere(worker) && !IsTimed(worker))) continue;
    const absl::Duration step = MedianStep(worker);
    shortest = std::min(shortest, step > absl::ZeroDuration() ? step : now - worker.changed);
  }
  return std::clamp(shortest / kLooksAStep, kLookLeast, kLookMost);
}

void HangDetector::OnWords(Instant now, const std::vector<uint64_t>& words,
                           const std::vector<uint64_t>& collectives) {
  for (size_t i = 0; i < workers_.size() && i < words.size(); ++i) {
    Worker& worker = workers_[i];
    if (!worker.alive) continue;
    const uint64_t begun = i < collectives.size() ? collectives[i] : 0;
    if (words[i] != worker.word) OnWord(now, worker, words[i]);
    if (begun != 0 && begun != worker.begun) OnCollectives(now, worker, begun);
  }
  Suspect(now);
  look_ = now + LookPeriod(now);
  for (const Worker& worker : workers_) {
    if (!IsTimed(worker) || worker.suspect) continue;
    look_ = std::min(look_, std::max(worker.changed + Limits(worker).suspect, now + kLookLeast));
  }
}

void HangDetector::OnWord(Instant now, Worker& worker, uint64_t word) {
  // From mark to mark, not from the last progress: collectives are progress, too, and a step has
  // several.
  Learn(worker, now - worker.marked, word);
  worker.word = word;
  worker.marked = now;
  OnProgress(now, worker);
}

// Times between collectives are learned only where no steps are counted, because a step has several
// collectives. A witness publishes the count every 250 ms, so the true time may be shorter by as
// much. The time up to the first collective is the program's start and isn't learned.
void HangDetector::OnCollectives(Instant now, Worker& worker, uint64_t begun) {
  if (worker.word == 0 && worker.begun > 1) {
    worker.times[ProgressPhase::kCounted].Add(now - worker.changed - kWitnessPeriod);
  }
  worker.begun = begun;
  if (!SaysWhere(worker)) OnProgress(now, worker);
}

void HangDetector::OnProgress(Instant now, Worker& worker) {
  if (worker.suspect) settings_.survived = std::max(settings_.survived, now - worker.changed);
  ++worker.progress;
  worker.changed = now;
  worker.lived = now;
  worker.suspect = false;
  worker.same = 0;
  worker.stopped = 0;
  worker.activity = Activity::kActive;
}

// Learns the time between two marks as seen, not divided by the steps in between: a program that
// marks every tenth step is silent for ten steps each time, and so is one whose steps are shorter
// than the looks are apart. `pace` does divide.
void HangDetector::Learn(Worker& worker, absl::Duration took, uint64_t word) {
  const bool counted = ProgressIsStepOnly(worker.word);
  const ProgressPhase phase = counted ? ProgressPhase::kCounted : ProgressPhaseOf(worker.word);
  if (worker.word == 0 || (!counted && !IsTimed(worker)) || phase == ProgressPhase::kStart) return;
  if ((counted || phase == ProgressPhase::kTrain) && !worker.first_step_seen) {
    worker.times.erase(phase);      // times between collectives, from before the first step
    worker.first_step_seen = true;  // the first step compiles, allocates and connects: not typical
    return;
  }
  worker.times[phase].Add(took);
  if (!counted && phase != ProgressPhase::kTrain) return;
  // A mark of another phase has the same step number, but ends this step, too.
  const uint64_t before = ProgressStepOf(worker.word);
  worker.pace.Add(took, std::max(ProgressStepOf(word), before + 1) - before);
}

// ------------------------------------------------------------- suspicion

bool HangDetector::any_suspect() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.suspect; });
}

void HangDetector::Suspect(Instant now) {
  absl::Duration sample;
  bool anew = false;  // a new suspect must not wait for the long pauses of an earlier one
  for (Worker& worker : workers_) {
    if (!IsTimed(worker)) {
      worker.suspect = false;
      continue;
    }
    const PhaseLimits limits = Limits(worker);
    const bool before = worker.suspect;
    worker.suspect = now - worker.changed >= limits.suspect || IsIdle(worker, now);
    anew = anew || (worker.suspect && !before);
    if (worker.suspect) sample = std::max(sample, limits.sample);
  }
  if (any_suspect()) {
    if (!sampling_ || anew) BeginSampling(now, sample);
  } else if (told_suspect_) {
    Report(now);  // takes the suspicion back
  } else if (sampling_ && !asked_) {
    EndSampling(now);
  }
}

void HangDetector::OnAsked(Instant now, absl::Duration sample) {
  asked_ = true;
  if (!sampling_) return BeginSampling(now, std::clamp(sample, kSampleLeast, kSampleMost));
  if (SampledEnough()) Report(now);
}

void HangDetector::OnEnded(uint32_t local_rank, bool well) {
  if (local_rank >= workers_.size()) return;
  Worker& worker = workers_[local_rank];
  worker.alive = false;
  worker.suspect = false;
  worker.left = well && worker.witness.final;
}

// ------------------------------------------------------------- samples

Instant HangDetector::NextSample() const { return sample_at_; }

void HangDetector::BeginSampling(Instant now, absl::Duration sample) {
  sampling_ = true;
  sample_ = sample;
  sample_at_ = now;
  for (Worker& worker : workers_) {
    worker.sampled = Instant::Infinite();
    worker.same = 0;
    worker.stopped = 0;
    worker.activity = Activity::kUnknown;
  }
}

void HangDetector::EndSampling(Instant now) {
  sampling_ = false;
  asked_ = false;
  for (Worker& worker : workers_) worker.sampled = Instant::Infinite();
  PlanNextSample(now);
}

void HangDetector::OnWitnesses(std::vector<Witness> witnesses) {
  for (size_t i = 0; i < workers_.size() && i < witnesses.size(); ++i) {
    Worker& worker = workers_[i];
    worker.stays_inside = !witnesses[i].inside_call.empty() &&
                          worker.witness.inside_call == witnesses[i].inside_call &&
                          worker.witness.inside_group == witnesses[i].inside_group &&
                          worker.witness.groups == witnesses[i].groups;
    const absl::Duration timeout = worker.witness.timeout;
    worker.witness = std::move(witnesses[i]);
    if (worker.witness.timeout == absl::ZeroDuration()) worker.witness.timeout = timeout;
  }
}

void HangDetector::OnVitals(Instant now, const std::vector<WorkerVital>& vitals) {
  for (size_t i = 0; i < workers_.size() && i < vitals.size(); ++i) {
    if (workers_[i].alive && vitals[i].alive) TakeVital(now, workers_[i], vitals[i]);
  }
  Suspect(now);
  if (sampling_ && SampledEnough()) Report(now);
  PlanNextSample(now);
}

void HangDetector::TakeVital(Instant now, Worker& worker, const WorkerVital& vital) {
  // State t is a tracer's stop. Nobody has asked for a watch of counted steps, so a debugger there
  // is taken for one that a person uses.
  const bool stopped = vital.state == 'T' || (vital.state == 't' && !IsCounted(worker));
  worker.stopped = stopped ? worker.stopped + 1 : 0;
  if (worker.stopped >= 2) worker.activity = Activity::kStopped;
  const bool first = worker.sampled.is_infinite();
  // Samples also come early, for a stopped worker or at a limit. A shorter interval can't show that
  // the others are still; a tenth allows for timers.
  if (!first && sampling_ && now - worker.sampled < sample_ * 9 / 10) return;
  const bool acts = !first && Acts(worker.vital, vital, now - worker.sampled,
                                   IsCounted(worker) ? kCountedIdleShare : kIdleShare);
  const bool lives = acts || (!first && Lives(worker, vital));
  worker.vital = vital;
  worker.sampled = now;
  worker.same = first || lives ? 0 : worker.same + 1;
  if (acts) worker.lived = now;
  if (acts && WatchesDeeds(worker) && !IsCounted(worker)) worker.changed = now;
  if (worker.stopped >= 2) return;
  if (lives) {
    worker.activity = Activity::kActive;
  } else if (worker.same >= 2) {
    worker.activity = Activity::kStill;
  }
}

// Signs of life beside output and processor time: waiting for a disk (state D), and a main thread
// that waits in another place than before. They don't count for a worker that is watched only by
// what it does: --hang_timeout promises to end one that neither computes nor reads nor writes. A
// worker whose steps are counted also lives while a debugger holds it or it waits for a file.
bool HangDetector::Lives(const Worker& worker, const WorkerVital& vital) const {
  if (WatchesDeeds(worker) && !IsCounted(worker)) return false;
  if (IsCounted(worker) && (vital.state == 't' || WaitsForFile(vital))) return true;
  return vital.state == 'D' || vital.stack != worker.vital.stack;
}

// Whether a report can be made: the activity of all workers is known, or one is stopped, which
// needs no comparison. A worker that was active and then showed nothing in one sample isn't known:
// it may have reached its collective late. Reporting it as busy beside the rank that it waits for
// would hide that rank until the next round, which may be seconds away.
bool HangDetector::SampledEnough() const {
  const auto known = [](const Worker& worker) {
    const bool changes = worker.activity == Activity::kActive && worker.same > 0;
    return !worker.alive || (worker.activity != Activity::kUnknown && !changes);
  };
  const auto stopped = [](const Worker& worker) {
    return worker.alive && worker.activity == Activity::kStopped;
  };
  return std::all_of(workers_.begin(), workers_.end(), known) ||
         std::any_of(workers_.begin(), workers_.end(), stopped);
}

void HangDetector::PlanNextSample(Instant now) {
  if (!sampling_) {
    sample_at_ = Instant::Infinite();
    for (const Worker& worker : workers_) {
      if (WatchesDeeds(worker)) sample_at_ = std::min(sample_at_, now + DeedSample());
    }
    return;
  }
  if (!SampledEnough()) {
    const bool one_stopped = std::any_of(workers_.begin(), workers_.end(),
                                         [](const Worker& worker) { return worker.stopped == 1; });
    sample_at_ = now + (one_stopped ? std::min(sample_, kStoppedSample) : sample_);
    return;
  }
  absl::Duration stood = kPauseMost * kRoundsShare;
  for (const Worker& worker : workers_) {
    if (worker.suspect) stood = std::min(stood, now - worker.changed);
  }
  sample_at_ = now + std::max(sample_, stood / kRoundsShare);
  for (const Worker& worker : workers_) {
    if (!worker.suspect) continue;
    for (const absl::Duration limit : {Limits(worker).overdue, EndAfter(worker)}) {
      if (limit == absl::InfiniteDuration()) continue;
      const Instant due = worker.changed + limit;
      if (due > now) sample_at_ = std::min(sample_at_, due);
    }
  }
}

// ------------------------------------------------------------- findings

void HangDetector::Report(Instant now) {
  rendezvous::HangReport report;
  report.sample = sample_;
  for (uint32_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    worker.told_progress = worker.progress;
    if (!worker.alive && !worker.left) continue;
    report.workers.push_back(ProgressOf(i, now));
  }
  asked_ = false;
  told_suspect_ = report.any_suspect();
  if (!told_suspect_) EndSampling(now);
  report_ = std::move(report);
}

rendezvous::WorkerProgress HangDetector::ProgressOf(uint32_t local_rank, Instant now) const {
  const Worker& worker = workers_[local_rank];
  const Witness& witness = worker.witness;
  const bool counted = IsCounted(worker);
  const absl::Duration silent = now - worker.changed;
  const bool inside = worker.stays_inside && worker.activity == Activity::kStill;
  rendezvous::WorkerProgress progress{.local_rank = local_rank, .groups = witness.groups};
  if (!worker.alive) {
    progress.phase = ProgressPhase::kDone;
    progress.left = true;
    return progress;
  }
  if (counted) {
    progress.phase = ProgressPhase::kCounted;
    // A silent witness can't get the interpreter's lock. Its worker then runs no Python and begins
    // no collective, so the last count still holds.
    progress.collectives = witness.collectives != 0 ? witness.collectives : worker.begun;
  } else if (SaysWhere(worker)) {
    progress.phase = ProgressPhaseOf(worker.word);
    progress.collectives = worker.begun;
  }
  progress.step = counted || SaysWhere(worker) ? ProgressStepOf(worker.word) : 0;
  progress.silent = silent;
  progress.suspect = worker.suspect;
  progress.overdue = worker.suspect && silent >= Limits(worker).overdue;
  progress.early = IsEarly(worker) && silent < settings_.first_step_timeout;
  progress.activity = worker.activity;
  progress.where = worker.vital.where;
  progress.idle = IsIdle(worker, now);
  progress.expired = worker.suspect && (silent >= EndAfter(worker) || progress.idle);
  progress.deadlocked = worker.suspect && worker.vital.sealed && witness.at_locks;
  if (inside) {
    progress.inside_group = witness.inside_group;
    progress.inside_call = witness.inside_call;
  }
  return progress;
}

std::optional<rendezvous::HangReport> HangDetector::TakeReport() {
  return std::exchange(report_, std::nullopt);
}

absl::Duration HangDetector::step_time() const {
  absl::Duration longest;
  for (const Worker& worker : workers_) longest = std::max(longest, worker.pace.Median());
  return longest;
}

absl::Duration HangDetector::MedianStep(const Worker& worker) {
  for (const ProgressPhase phase : {ProgressPhase::kTrain, ProgressPhase::kCounted}) {
    const auto times = worker.times.find(phase);
    if (times != worker.times.end()) return times->second.Median();
  }
  return absl::ZeroDuration();
}

bool HangDetector::StillStands(uint32_t local_rank) const {
  if (local_rank >= workers_.size()) return false;
  const Worker& worker = workers_[local_rank];
  return worker.alive && worker.progress == worker.told_progress &&
         (SaysWhere(worker) || IsCounted(worker) || worker.activity != Activity::kActive);
}

std::string HangDetector::Describe(uint32_t local_rank, Instant now) const {
  const Worker& worker = workers_.at(local_rank);
  const std::string silent =
      absl::FormatDuration(absl::Trunc(now - worker.changed, absl::Milliseconds(1)));
  if (!SaysWhere(worker) && !IsCounted(worker)) {
    return WatchesDeeds(worker)
               ? absl::StrCat("no output and no processor time for ", silent, " (--hang_timeout)")
               : "it marks no progress, and others wait";
  }
  if (worker.word == 0) return absl::StrCat("no collective for ", silent);
  const ProgressPhase phase = ProgressPhaseOf(worker.word);
  return absl::StrCat("no progress in ", ProgressPhaseName(phase), ", step ",
                      ProgressStepOf(worker.word), ", for ", silent);
}

}  // namespace ddprun::launcher
