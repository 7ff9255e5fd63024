#ifndef DDPRUN_RENDEZVOUS_CORE_GENERATION_RECORD_H_
#define DDPRUN_RENDEZVOUS_CORE_GENERATION_RECORD_H_

#include <cstdint>
#include <deque>
#include <string>

#include "base/instant.h"
#include "rendezvous/core/state_machine.h"

namespace ddprun::rendezvous {

// What a job's generations were, for people who watch; nothing is decided by it. Bounds: the last
// kGenerationsRecordedMax.
class GenerationRecord {
 public:
  void Begin(GenerationView generation);
  // The live one is to end; the first reason stands.
  void End(Instant now, const std::string& reason);
  // A worker of the live, or just ended, one was at this step.
  void SawStep(uint64_t step);

  const std::deque<GenerationView>& generations() const { return generations_; }

 private:
  std::deque<GenerationView> generations_;  // oldest first
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GENERATION_RECORD_H_
