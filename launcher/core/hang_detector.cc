#include "launcher/core/hang_detector.h"

#include <algorithm>
#include <iterator>
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
// The longest pause between two rounds of samples of the same suspects.
constexpr absl::Duration kPauseMost = absl::Seconds(10);
// What a thread of a library that wakes now and then may use: a tick of the kernel's accounting, or
// this share of the time.
constexpr absl::Duration kTick = absl::Milliseconds(10);
constexpr int kIdleShare = 100;
// A main thread that waits with a timeout, again and again, wakes less often than this; one that
// works with sockets, whose bytes /proc doesn't count, more often.
constexpr double kTurnsPerSecond = 10;

// Functions of the kernel in which a file is waited for: file systems of networks wait without the
// state D, and one close(2) may be a whole upload.
bool WaitsForFile(const WorkerVital& vital) {
  constexpr const char* kParts[] = {
      "fuse",       "request_wait_answer", "nfs", "rpc_wait", "ceph", "ptlrpc",
      "cl_sync_io", "p9_client",           "smb", "cifs",     "gpfs", "fsync",
      "sync_f",     "write_and_wait"};
  return std::any_of(std::begin(kParts), std::end(kParts), [&vital](const char* part) {
    return vital.stack.find(part) != std::string::npos;
  });
}

}  // namespace

HangDetector::HangDetector(const HangSettings& settings, uint32_t worker_count, Instant now)
    : settings_(settings), workers_(worker_count) {
  for (Worker& worker : workers_) {
    worker.changed = now;
    worker.sampled = Instant::Infinite();
  }
}

void HangDetector::OnStarted(Instant now, uint32_t local_rank) {
  if (local_rank >= workers_.size() || workers_[local_rank].started) return;
  Worker& worker = workers_[local_rank];
  worker.started = true;
  if (WatchesDeeds(worker)) worker.changed = now;
  if (!sampling_) PlanNextSample(now);
}

// Steps that are counted for a program say nothing of what it does between them.
bool HangDetector::SaysWhere(const Worker& worker) {
  return worker.word != 0 && ProgressPhaseOf(worker.word) != ProgressPhase::kCounted;
}

// By steps that are counted for it; --hang_timeout takes their place.
bool HangDetector::IsCounted(const Worker& worker) const {
  return worker.alive && ProgressPhaseOf(worker.word) == ProgressPhase::kCounted &&
         settings_.watch_marks && settings_.hang_timeout == absl::ZeroDuration();
}

// By what it does, because it doesn't say.
bool HangDetector::WatchesDeeds(const Worker& worker) const {
  return worker.alive && worker.started && !SaysWhere(worker) &&
         settings_.hang_timeout > absl::ZeroDuration();
}

bool HangDetector::IsTimed(const Worker& worker) const {
  if (WatchesDeeds(worker)) return true;
  if (!worker.alive || !settings_.watch_marks) return false;
  switch (ProgressPhaseOf(worker.word)) {
    case ProgressPhase::kStart:
    case ProgressPhase::kTrain:
    case ProgressPhase::kCheckpoint:
    case ProgressPhase::kEvaluation:
    case ProgressPhase::kCounted:
      return true;
    case ProgressPhase::kNone:
    case ProgressPhase::kIdle:
    case ProgressPhase::kDone:
      return false;
  }
  return false;
}

PhaseLimits HangDetector::Limits(const Worker& worker) const {
  if (IsCounted(worker)) {
    const auto found = worker.times.find(ProgressPhase::kCounted);
    PhaseLimits limits = LimitsOfCounted(found == worker.times.end() ? StepTimes() : found->second,
                                         settings_.counted_slack, settings_.first_step_timeout);
    if (TurnsInCircles(worker.witness)) limits.overdue = limits.suspect;
    return limits;
  }
  if (!SaysWhere(worker)) {
    return {.suspect = settings_.hang_timeout,
            .overdue = absl::InfiniteDuration(),
            .sample = std::clamp(settings_.hang_timeout / 8, kStoppedSample, kUnlearnedSample)};
  }
  const auto found = worker.times.find(ProgressPhaseOf(worker.word));
  return LimitsOf(found == worker.times.end() ? StepTimes() : found->second,
                  settings_.first_step_timeout);
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

void HangDetector::OnWords(Instant now, const std::vector<uint64_t>& words) {
  for (size_t i = 0; i < workers_.size() && i < words.size(); ++i) {
    if (workers_[i].alive && words[i] != workers_[i].word) OnWord(now, workers_[i], words[i]);
  }
  Suspect(now);
  look_ = now + LookPeriod(now);
  for (const Worker& worker : workers_) {
    if (!IsTimed(worker) || worker.suspect) continue;
    look_ = std::min(look_, worker.changed + Limits(worker).suspect);
  }
}

void HangDetector::OnWord(Instant now, Worker& worker, uint64_t word) {
  Learn(worker, now - worker.changed);
  worker.word = word;
  worker.changed = now;
  worker.suspect = false;
  worker.same = 0;
  worker.stopped = 0;
  worker.activity = Activity::kActive;
}

// What is learned is the time between two marks that were seen: a program may mark every tenth
// step, and steps may be shorter than the looks are apart.
void HangDetector::Learn(Worker& worker, absl::Duration took) {
  const ProgressPhase phase = ProgressPhaseOf(worker.word);
  const bool counted = phase == ProgressPhase::kCounted;
  if (worker.word == 0 || (!counted && !IsTimed(worker)) || phase == ProgressPhase::kStart) return;
  if ((counted || phase == ProgressPhase::kTrain) && !worker.first_step_seen) {
    worker.first_step_seen = true;  // it compiles, allocates and connects: no step like the others
    return;
  }
  worker.times[phase].Add(took);
}

// ------------------------------------------------------------- suspicion

bool HangDetector::any_suspect() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const Worker& worker) { return worker.suspect; });
}

void HangDetector::Suspect(Instant now) {
  absl::Duration sample;
  for (Worker& worker : workers_) {
    if (!IsTimed(worker)) {
      worker.suspect = false;
      continue;
    }
    const PhaseLimits limits = Limits(worker);
    worker.suspect = now - worker.changed >= limits.suspect;
    if (worker.suspect) sample = std::max(sample, limits.sample);
  }
  if (any_suspect()) {
    if (!sampling_) BeginSampling(now, sample);
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

void HangDetector::OnEnded(uint32_t local_rank) {
  if (local_rank >= workers_.size()) return;
  workers_[local_rank].alive = false;
  workers_[local_rank].suspect = false;
}

// ------------------------------------------------------------- samples

Instant HangDetector::NextSample() const { return sample_at_; }

void HangDetector::BeginSampling(Instant now, absl::Duration sample) {
  sampling_ = true;
  sample_ = sample;
  pause_ = sample;
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
    workers_[i].witness = std::move(witnesses[i]);
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
  const bool lives = !first && Lives(worker, vital, now - worker.sampled);
  worker.vital = vital;
  worker.sampled = now;
  worker.same = first || lives ? 0 : worker.same + 1;
  if (lives && WatchesDeeds(worker)) worker.changed = now;
  if (worker.stopped >= 2) return;
  if (lives) {
    worker.activity = Activity::kActive;
  } else if (worker.same >= 2) {
    worker.activity = Activity::kStill;
  }
}

// Whether something happened since the last sample.
bool HangDetector::Lives(const Worker& worker, const WorkerVital& vital,
                         absl::Duration interval) const {
  const absl::Duration idle = std::max(kTick, interval / kIdleShare);
  if (vital.cpu - worker.vital.cpu > idle || vital.bytes != worker.vital.bytes) return true;
  const double turns = static_cast<double>(vital.turns - worker.vital.turns);
  if (turns > kTurnsPerSecond * absl::ToDoubleSeconds(interval) + 1) return true;
  // Without marks only output and processor time count; a program that waits for a disk makes
  // neither.
  if (WatchesDeeds(worker)) return false;
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
      if (!WatchesDeeds(worker)) continue;
      sample_at_ = std::min(sample_at_, now + Limits(worker).sample);
    }
    return;
  }
  if (!SampledEnough()) {
    const bool one_stopped = std::any_of(workers_.begin(), workers_.end(),
                                         [](const Worker& worker) { return worker.stopped == 1; });
    sample_at_ = now + (one_stopped ? std::min(sample_, kStoppedSample) : sample_);
    return;
  }
  sample_at_ = now + pause_;
  pause_ = std::max(sample_, std::min(2 * pause_, kPauseMost));
  for (const Worker& worker : workers_) {
    const Instant overdue = worker.suspect && (SaysWhere(worker) || IsCounted(worker))
                                ? worker.changed + Limits(worker).overdue
                                : Instant::Infinite();
    if (overdue > now) sample_at_ = std::min(sample_at_, overdue);
  }
}

// ------------------------------------------------------------- findings

void HangDetector::Report(Instant now) {
  rendezvous::HangReport report;
  report.sample = sample_;
  for (uint32_t i = 0; i < workers_.size(); ++i) {
    Worker& worker = workers_[i];
    if (!worker.alive) continue;
    const absl::Duration silent = now - worker.changed;
    worker.told_word = worker.word;
    const bool counted = IsCounted(worker);
    const uint64_t word = SaysWhere(worker) || counted ? worker.word : 0;
    report.workers.push_back({.local_rank = i,
                              .phase = ProgressPhaseOf(word),
                              .step = ProgressStepOf(word),
                              .silent = silent,
                              .suspect = worker.suspect,
                              .overdue = worker.suspect && silent >= Limits(worker).overdue,
                              .activity = worker.activity,
                              .where = worker.vital.where,
                              .collectives = counted ? worker.witness.collectives : 0});
  }
  asked_ = false;
  told_suspect_ = report.any_suspect();
  if (!told_suspect_) EndSampling(now);
  report_ = std::move(report);
}

std::optional<rendezvous::HangReport> HangDetector::TakeReport() {
  return std::exchange(report_, std::nullopt);
}

absl::Duration HangDetector::step_time() const {
  absl::Duration longest;
  for (const Worker& worker : workers_) longest = std::max(longest, MedianStep(worker));
  return longest;
}

// Zero = none was seen.
absl::Duration HangDetector::MedianStep(const Worker& worker) {
  for (const ProgressPhase phase : {ProgressPhase::kTrain, ProgressPhase::kCounted}) {
    const auto times = worker.times.find(phase);
    if (times != worker.times.end()) return times->second.Quantile(0.5);
  }
  return absl::ZeroDuration();
}

bool HangDetector::StillStands(uint32_t local_rank) const {
  if (local_rank >= workers_.size()) return false;
  const Worker& worker = workers_[local_rank];
  return worker.alive && worker.word == worker.told_word &&
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
  const ProgressPhase phase = ProgressPhaseOf(worker.word);
  const PhaseLimits limits = Limits(worker);
  return absl::StrCat(
      "no progress in ", ProgressPhaseName(phase), ", step ", ProgressStepOf(worker.word), ", for ",
      silent, " (limit ", absl::FormatDuration(absl::Trunc(limits.suspect, absl::Milliseconds(1))),
      limits.suspect == settings_.first_step_timeout ? ", not learned yet: --first_step_timeout)"
                                                     : ", learned from its own steps)");
}

}  // namespace ddprun::launcher
