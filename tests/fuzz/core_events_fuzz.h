#ifndef DDPRUN_TESTS_FUZZ_CORE_EVENTS_FUZZ_H_
#define DDPRUN_TESTS_FUZZ_CORE_EVENTS_FUZZ_H_

#include <cstddef>
#include <cstdint>

#include "tests/support/trace_digest.h"

namespace ddprun::rendezvous {

// Plays the bytes as events into the rendezvous core and checks its invariants after each: agents
// that mostly follow the protocol and now and then send what no agent would. Aborts when an
// invariant breaks or an effect names a stream that isn't open. Returns how many generations
// formed. Params: digest: takes every step in; null = none is wanted.
uint64_t FuzzCoreEvents(const uint8_t* data, size_t size, testing::TraceDigest* digest = nullptr);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_TESTS_FUZZ_CORE_EVENTS_FUZZ_H_
