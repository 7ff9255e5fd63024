#ifndef DDPRUN_TOOLS_PREFLIGHT_CORE_LINK_ROUNDS_H_
#define DDPRUN_TOOLS_PREFLIGHT_CORE_LINK_ROUNDS_H_

#include <cstdint>
#include <vector>

#include "tools/preflight/core/link_facts.h"

namespace ddprun::launcher {

// Chooses the pairs that are measured at the same time. Pure; threads: any.

// All pairs of `nodes` nodes, each node once in a round: `nodes` - 1 rounds, or `nodes` rounds if
// that is odd (one node pauses in each). Of more than `rounds_max` rounds only that many, evenly
// chosen. Source: the circle method of round-robin tournaments (E. Lucas, Récréations
// mathématiques, 1883).
std::vector<std::vector<Link>> Tournament(uint32_t nodes, uint32_t rounds_max);

// Packs the pairs greedily into few rounds, in their order: at most `at_once` (1 or more) in a
// round, and at most `rounds_max` rounds; pairs that don't fit are left out.
std::vector<std::vector<Link>> PackRounds(const std::vector<Link>& pairs, uint32_t at_once,
                                          uint32_t rounds_max);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_PREFLIGHT_CORE_LINK_ROUNDS_H_
