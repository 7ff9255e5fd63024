#ifndef DDPRUN_RENDEZVOUS_CORE_GENERATION_GENERATION_RECORD_H_
#define DDPRUN_RENDEZVOUS_CORE_GENERATION_GENERATION_RECORD_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/instant.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/views.h"

namespace ddprun::rendezvous {

// What a job's generations were, and how far they came, for people who watch and for the books of
// the agents; nothing is decided by it. Bounds: the last kGenerationsRecordedMax.
class GenerationRecord {
 public:
  void Begin(GenerationView generation);
  // The live one is to end; the first reason stands.
  void End(Instant now, const std::string& reason);
  // Why the last one ended, when all have said what they know of it: what ended it first may be a
  // consequence. Ignored while it runs.
  void Explain(const std::string& why);
  // A worker of the live, or just ended, one was at this step.
  void SawStep(uint64_t step);
  // A node of the live one has told how its workers began; what it told before no longer counts.
  void SawWarm(uint32_t group_rank, const WarmUse& use);
  // The workers of the one that is over stopped at an agreed step: they marked it, saved, and left
  // it to be done by the next ones (R14).
  void StoppedAt(uint64_t step);

  // For the job's record, and back from it.
  std::vector<GenerationSummary> ToRecord(Instant now) const;
  void Recover(Instant now, const std::vector<GenerationSummary>& generations, uint64_t begun_step);

  const std::deque<GenerationView>& generations() const { return generations_; }
  // The highest step that was begun, and not saved by a stop step: a next generation does what is
  // up to there once more. 0 = none.
  uint64_t begun_step() const { return begun_step_; }
  // What is wrong with it; "" = nothing.
  std::string BrokenInvariant() const;

 private:
  // Oldest first, numbered without a gap; all but the last have ended.
  std::deque<GenerationView> generations_;
  uint64_t begun_step_ = 0;
  std::map<uint32_t, WarmStart> warm_;  // of the live one, by group rank
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GENERATION_GENERATION_RECORD_H_
