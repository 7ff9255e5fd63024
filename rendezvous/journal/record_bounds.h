#ifndef DDPRUN_RENDEZVOUS_JOURNAL_RECORD_BOUNDS_H_
#define DDPRUN_RENDEZVOUS_JOURNAL_RECORD_BOUNDS_H_

#include <cstddef>
#include <cstdint>

#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {

// FailureKind(): an exit code, a signal, and two texts.
inline constexpr size_t kFailureKindBytesMax = 2 * kTextBytesMax + 64;
// 73 years: no job gets there, and with the time of a clock no sum of two such times overflows.
inline constexpr int64_t kAgeMaxNs = int64_t{1} << 61;

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_JOURNAL_RECORD_BOUNDS_H_
