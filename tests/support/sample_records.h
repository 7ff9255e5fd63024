#ifndef DDPRUN_TESTS_SUPPORT_SAMPLE_RECORDS_H_
#define DDPRUN_TESTS_SUPPORT_SAMPLE_RECORDS_H_

#include <cstdint>
#include <string>

#include "base/rng.h"
#include "rendezvous/core/job_record.h"

namespace ddprun::rendezvous {

// A valid record of any phase, of a job of a few nodes: what may be absent is there half of the
// time.
JobRecord RandomRecord(Rng* rng);

// A job of so many nodes of 8 workers, in the midst of a generation.
JobRecord RunningRecord(const std::string& run_id, uint32_t nodes);

// A job with a generation that closes: its second member is lost.
JobRecord ClosingJobRecord(const std::string& run_id);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_SUPPORT_SAMPLE_RECORDS_H_
