#include "launcher/core/hang_detector.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Activity;

constexpr absl::Duration kLookLeast = absl::Milliseconds(10);
constexpr absl::Duration kLookMost = absl::Seconds(1);
constexpr int kLooksAStep = 8;  // also of what isn't learned: of the time that has passed
// A stop needs no patience: the second look at one.
constexpr absl::Duration kStoppedSample = absl::Milliseconds(100);
// Rounds of samples of the same suspects follow each other after this share of the time that they
// have stood, within these bounds: what can be proven only later is proven by two more rounds.
constexpr int kRoundsShare = 8;
constexpr absl::Duration kPauseMost = absl::Seconds(4);
// What a thread of a library that wakes now and then may use: this share of the time.
constexpr int kIdleShare = 100;
// Of a worker whose steps are counted: Gloo polls its sockets a hundred times a second, and our
// witness looks, which took 6 % of a processor on a virtual machine. Work takes one of its own.
constexpr int kCountedIdleShare = 8;
// How often a witness looks (launcher/marks).
constexpr absl::Duration kWitnessPeriod = absl::Milliseconds(250);
// A wait that others have survived may come again, and longer.
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

// Steps that are counted for a program say nothing of what it does between them.
bool HangDetector::SaysWhere(const Worker& worker) {
  return worker.word != 0 && ProgressPhaseOf(worker.word) != ProgressPhase::kCounted;
}

// By steps that are counted for it, or where there are none by its collectives.
bool HangDetector::IsCounted(const Worker& worker) const {
  return worker.alive && !SaysWhere(worker) && settings_.watch_marks &&
         (worker.word != 0 || worker.begun != 0);
}

// By what it does, because it doesn't say.
bool HangDetector::WatchesDeeds(const Worker& worker) const {
  return worker.alive && worker.started && !SaysWhere(worker) &&
         settings_.hang_timeout > absl::ZeroDuration();
}

// It marks, and its steps aren't known yet: who is awaited in a collective shows all the same.
bool HangDetector::IsEarly(const Worker& worker) {
  const ProgressPhase phase = ProgressPhaseOf(worker.word);
  if (worker.begun == 0 || (phase != ProgressPhase::kStart && phase != ProgressPhase::kTrain)) {
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

// An explicit --hang_timeout is the user's word. Without one, torch's own time-out is longer where
// a script has set it so, and whatever this job has survived once it may survive again.
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
  // Not since the last progress: a step has several collectives.
  Learn(worker, now - worker.marked, word);
  worker.word = word;
  worker.marked = now;
  OnProgress(now, worker);
}

// Collectives are learned from only where there are no steps: a step has several of them. A witness
// looks four times a second, so they may have been sooner. The time before the second one is that
// of the program's start.
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

// What is learned is the time between two marks that were seen: a program may mark every tenth
// step, and steps may be shorter than the looks are apart.
void HangDetector::Learn(Worker& worker, absl::Duration took, uint64_t word) {
  const ProgressPhase phase = ProgressPhaseOf(worker.word);
  const bool counted = phase == ProgressPhase::kCounted;
  if (worker.word == 0 || (!counted && !IsTimed(worker)) || phase == ProgressPhase::kStart) return;
  if ((counted || phase == ProgressPhase::kTrain) && !worker.first_step_seen) {
    worker.times.erase(phase);      // what was learned from collectives before the steps
    worker.first_step_seen = true;  // it compiles, allocates and connects: no step like the others
    return;
  }
  worker.times[phase].Add(took);
  if (!counted && phase != ProgressPhase::kTrain) return;
  // Where the next mark is of another phase, the step is over all the same.
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
  bool anew = false;  // the pauses of earlier suspicions are long
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
    Report(now);  // it was wrong
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
  // Who asked for no watch may have a debugger attached.
  const bool stopped = vital.state == 'T' || (vital.state == 't' && !IsCounted(worker));
  worker.stopped = stopped ? worker.stopped + 1 : 0;
  if (worker.stopped >= 2) worker.activity = Activity::kStopped;
  const bool first = worker.sampled.is_infinite();
  // A look in between, for the sake of a stopped one, proves nothing about the others.
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

// Signs of life beside output and processor time. Of a worker that neither marks nor is counted
// only these count; a program that waits for a disk makes neither.
bool HangDetector::Lives(const Worker& worker, const WorkerVital& vital) const {
  if (WatchesDeeds(worker) && !IsCounted(worker)) return false;
  if (IsCounted(worker) && (vital.state == 't' || WaitsForFile(vital))) return true;
  return vital.state == 'D' || vital.stack != worker.vital.stack;
}

// Everybody is known, or the one whose evidence needs no comparison. Who was active and has shown
// nothing since is not known any more: one who came late to where it waits would be told as busy
// beside the one it waits for, and the pauses between later samples are long.
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
    // A witness that is silent can't look: the worker holds the interpreter, and calls nothing
    // more.
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

// Zero = none was seen.
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
