#ifndef DDPRUN_LAUNCHER_CORE_HANG_DETECTOR_H_
#define DDPRUN_LAUNCHER_CORE_HANG_DETECTOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/instant.h"
#include "base/progress_page.h"
#include "launcher/core/hang_settings.h"
#include "launcher/core/step_times.h"
#include "launcher/core/witness.h"
#include "rendezvous/core/agent_message.h"
#include "rendezvous/core/worker_progress.h"

namespace ddprun::launcher {

// Watches the workers of one generation on this node for hangs (R13): learns from their marks how
// long steps take, suspects a worker that is silent for longer, then samples all workers of the
// node and reports what each does. The detector doesn't judge: which rank holds up a job shows only
// when the findings of all nodes are compared (rendezvous/core/failures/hang_judge.h).
//
//   looks: words of the page         LimitsOf()              samples of /proc
//   (NextLook, OnWords)  ──silent for longer──►  suspect  ──(NextSample, OnVitals)──► TakeReport
//
// Pure; one thread. Bounds: 4 × 3 KiB a worker.
class HangDetector {
 public:
  HangDetector(const HangSettings& settings, uint32_t worker_count, Instant now);

  // The worker's process has started. A worker that marks nothing is watched from now on; before
  // that it may wait for the imports of the interpreter that it is forked from. A second call does
  // nothing.
  void OnStarted(Instant now, uint32_t local_rank);
  // A worker opened its page, so a mark may come at any time.
  void OnOpened(Instant now);
  // A look at the pages. Params, by local rank: words: 0 = never marked; collectives: how many the
  // worker has begun, plus one; 0 or absent = not known.
  void OnWords(Instant now, const std::vector<uint64_t>& words,
               const std::vector<uint64_t>& collectives = {});
  // What the workers' witnesses report, by local rank. To be called before each OnVitals.
  void OnWitnesses(std::vector<Witness> witnesses);
  // A sample of /proc, by local rank.
  void OnVitals(Instant now, const std::vector<WorkerVital>& vitals);
  // The service asks for the findings (R13). Params: sample: time between two samples.
  void OnAsked(Instant now, absl::Duration sample);
  // A worker ended. Params: well: with status 0. If its last witness was final, the others may wait
  // for collectives that it never began, and its groups are reported as those of a worker that
  // left.
  void OnEnded(uint32_t local_rank, bool well = false);

  // When OnWords is wanted next; infinite while no worker has opened its page. An eighth of the
  // median step, within 10 ms to 1 s: the kernel has no notification for a store into shared
  // memory, and a look is only a few loads.
  Instant NextLook() const;
  // When OnVitals is wanted next; infinite unless a worker is suspect, the service has asked, or a
  // worker is watched by its processor time and output.
  Instant NextSample() const;
  // The report to send to the service now, if there is one. Clears it.
  std::optional<rendezvous::HangReport> TakeReport();

  // Whether the worker's progress is known from its own marks or from steps counted for it.
  bool marked(uint32_t local_rank) const {
    return SaysWhere(workers_.at(local_rank)) || counted(local_rank);
  }
  bool counted(uint32_t local_rank) const { return IsCounted(workers_.at(local_rank)); }
  bool any_suspect() const;
  // The limits of the worker's current phase.
  PhaseLimits limits(uint32_t local_rank) const { return Limits(workers_.at(local_rank)); }
  bool suspect(uint32_t local_rank) const { return workers_.at(local_rank).suspect; }
  uint64_t step(uint32_t local_rank) const { return ProgressStepOf(workers_.at(local_rank).word); }
  // Median training step of the slowest worker; zero = no step was seen.
  absl::Duration step_time() const;
  // How long the worker has made no progress.
  absl::Duration silent(uint32_t local_rank, Instant now) const {
    return now - workers_.at(local_rank).changed;
  }
  // Grows with the worker's progress.
  uint64_t progress(uint32_t local_rank) const { return workers_.at(local_rank).progress; }
  // How long a worker may make no progress before it is ended without a proof.
  absl::Duration end_after(uint32_t local_rank) const { return EndAfter(workers_.at(local_rank)); }
  // The longest time without progress that a suspect has gone on after, here or in `settings`.
  absl::Duration survived() const { return settings_.survived; }
  // True when the worker has made no progress since the last report, so that its findings hold.
  bool StillStands(uint32_t local_rank) const;
  // "no progress in train, step 17, for 2.1s".
  std::string Describe(uint32_t local_rank, Instant now) const;
  // The newest ones.
  const Witness& witness(uint32_t local_rank) const { return workers_.at(local_rank).witness; }
  const WorkerVital& vital(uint32_t local_rank) const { return workers_.at(local_rank).vital; }

 private:
  struct Worker {
    bool alive = true;
    bool started = false;
    uint64_t word = 0;
    Instant marked;         // when a look last saw `word` change
    uint64_t begun = 0;     // collectives plus one, as for OnWords; 0 = not known
    uint64_t progress = 0;  // changes of `word` and `begun` that counted as progress
    Instant changed;  // the last progress; where none is known, the last processor time or output
    Instant lived;    // the last progress, processor time or output, or the start
    bool first_step_seen = false;
    std::map<ProgressPhase, StepTimes> times;
    StepPace pace;
    bool suspect = false;
    Witness witness;
    bool stays_inside = false;  // the last two witnesses named the same collective
    bool left = false;          // ended well, and its witness was final
    WorkerVital vital;          // what the next sample is compared with
    Instant sampled;            // when `vital` was taken; infinite = not in this round
    uint32_t same = 0;          // samples in a row without a sign of life
    uint32_t stopped = 0;       // samples in a row in state T or t
    rendezvous::Activity activity = rendezvous::Activity::kUnknown;
    uint64_t told_progress = 0;
  };

  static bool SaysWhere(const Worker& worker);
  static absl::Duration MedianStep(const Worker& worker);
  bool IsCounted(const Worker& worker) const;
  bool WatchesDeeds(const Worker& worker) const;
  static bool IsEarly(const Worker& worker);
  bool IsTimed(const Worker& worker) const;
  PhaseLimits Limits(const Worker& worker) const;
  absl::Duration EndAfter(const Worker& worker) const;
  absl::Duration DeedSample() const;
  bool IsIdle(const Worker& worker, Instant now) const;
  absl::Duration LookPeriod(Instant now) const;
  void OnWord(Instant now, Worker& worker, uint64_t word);
  void OnCollectives(Instant now, Worker& worker, uint64_t begun);
  void OnProgress(Instant now, Worker& worker);
  void Learn(Worker& worker, absl::Duration took, uint64_t word);
  void Suspect(Instant now);
  void TakeVital(Instant now, Worker& worker, const WorkerVital& vital);
  bool Lives(const Worker& worker, const WorkerVital& vital) const;
  void BeginSampling(Instant now, absl::Duration sample);
  void EndSampling(Instant now);
  bool SampledEnough() const;
  void PlanNextSample(Instant now);
  void Report(Instant now);
  rendezvous::WorkerProgress ProgressOf(uint32_t local_rank, Instant now) const;

  HangSettings settings_;
  std::vector<Worker> workers_;
  Instant opened_ = Instant::Infinite();  // the first page
  Instant look_ = Instant::Infinite();
  bool sampling_ = false;
  bool asked_ = false;
  Instant sample_at_ = Instant::Infinite();
  absl::Duration sample_ = kSampleLeast;
  bool told_suspect_ = false;
  std::optional<rendezvous::HangReport> report_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_HANG_DETECTOR_H_
