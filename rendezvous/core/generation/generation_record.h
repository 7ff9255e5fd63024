#ifndef DDPRUN_RENDEZVOUS_CORE_GENERATION_GENERATION_RECORD_H_
#define DDPRUN_RENDEZVOUS_CORE_GENERATION_GENERATION_RECORD_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/time_spent.h"
#include "rendezvous/core/views.h"

namespace ddprun::rendezvous {

// The cost of a restart of the live generation: its start, and the training since the last
// checkpoint, which would have to be done again (R4). If workers mark no checkpoint, all their
// training counts, because nobody knows what they have saved. Pure.
class RestartCost {
 public:
  // A generation has its ranks.
  void Begin(Instant formed);
  // A worker of the generation is in a training step.
  void SawStep(Instant now);
  // A node reports how its workers spent the generation.
  void SawTime(Instant now, uint32_t group_rank, const NodeTime& time);

  // The cost of a restart that becomes necessary at `until`.
  absl::Duration Estimate(Instant until) const;

  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant(Instant now) const;

 private:
  Instant formed_;
  std::optional<Instant> trained_;                  // the first step was seen; >= formed_
  std::optional<Instant> saved_;                    // a checkpoint was over; >= formed_
  std::map<uint32_t, absl::Duration> checkpoints_;  // by group rank: spent on them so far
};

// The history of a job's generations and of the steps that they reached, for people who watch and
// for the agents' time accounting; it decides nothing. Bounds: the last kGenerationsRecordedMax.
class GenerationRecord {
 public:
  void Begin(GenerationView generation);
  // The live generation is to end. The first call's reason stands.
  void End(Instant now, const std::string& reason);
  // Replaces the end reason of the last generation, when all its members have answered: the trigger
  // may be a consequence. Ignored while a generation runs.
  void Explain(const std::string& why);
  // A worker of the live generation, or of the one that just ended, was at this step.
  void SawStep(uint64_t step);
  // A node of the live generation reports how its workers started; replaces its earlier report.
  void SawWarm(uint32_t group_rank, const WarmUse& use);
  // The workers of the generation that is over stopped at an agreed step: they marked it, saved,
  // and left it to the next generation (R14).
  void StoppedAt(uint64_t step);

  // For the job's record, and back from it.
  std::vector<GenerationSummary> ToRecord(Instant now) const;
  void Recover(Instant now, const std::vector<GenerationSummary>& generations, uint64_t begun_step);

  const std::deque<GenerationView>& generations() const { return generations_; }
  // The highest step that was begun and not saved at a stop step: the next generation does the
  // steps up to it once more. 0 = none.
  uint64_t begun_step() const { return begun_step_; }
  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant() const;

 private:
  // Oldest first, numbered without a gap; all but the last have ended.
  std::deque<GenerationView> generations_;
  uint64_t begun_step_ = 0;
  std::map<uint32_t, WarmStart> warm_;  // of the live generation, by group rank
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GENERATION_GENERATION_RECORD_H_
