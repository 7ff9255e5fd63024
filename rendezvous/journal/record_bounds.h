#ifndef DDPRUN_RENDEZVOUS_JOURNAL_RECORD_BOUNDS_H_
#define DDPRUN_RENDEZVOUS_JOURNAL_RECORD_BOUNDS_H_

#include <cstddef>
#include <cstdint>

#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {

// FailureKind(): an exit code, a signal, and two texts.
inline constexpr size_t kFailureKindBytesMax = 2 * kTextBytesMax + 64;
// Bounds of lives and of generations: no job gets there, and one more can follow.
inline constexpr uint64_t kLivesMax = uint64_t{1} << 23;  // nonces have the number of a life
inline constexpr uint64_t kGenerationMax = uint64_t{1} << 56;

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_JOURNAL_RECORD_BOUNDS_H_
