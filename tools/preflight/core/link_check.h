#ifndef DDPRUN_TOOLS_PREFLIGHT_CORE_LINK_CHECK_H_
#define DDPRUN_TOOLS_PREFLIGHT_CORE_LINK_CHECK_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
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

// Datagrams along each link in the first pass. A link that loses one in 20 loses none of them once
// in 28,000 times.
inline constexpr uint32_t kFirstDatagrams = 200;
// Datagrams along a suspect link, in a later pass.
inline constexpr uint32_t kMoreDatagrams = 1000;
// The most datagrams that a node sends in the first pass: large jobs send fewer along each link.
inline constexpr uint32_t kDatagramsOfNodeMax = 20'000;
// Rounds of the first pass: in jobs of more nodes than this, not every pair is measured with TCP.
inline constexpr uint32_t kRoundsMax = 15;
// Rounds of a later pass. A link that finds no place in them is not accused.
inline constexpr uint32_t kMoreRoundsMax = 16;
// Pairs in a round of a later pass, in small jobs; in others a quarter of the nodes.
inline constexpr uint32_t kPairsAtOnce = 2;
// The most passes; the first has only datagrams.
inline constexpr uint32_t kPassesMax = 8;
// Nodes that can be checked together.
inline constexpr uint32_t kCheckNodesMax = 256;

// Decides what the nodes of a job measure: all links once, then only links that look bad, again and
// with less at the same time. No link is accused after one measurement, because on a busy machine
// any single one may be wrong. Pure; threads: any.
//
// Datagrams come first: they measure each direction of a link by itself, which TCP can't, and a cut
// costs no timeout. TCP's rate is measured only along whole links. Nothing is compared with a
// constant, because a rate that is slow on one network is usual on another.
class LinkCheck {
 public:
  // `nodes`: all nodes of the job, including those that never came.
  explicit LinkCheck(std::vector<NodeFacts> nodes);

  // What to measure next. `elapsed`: since the check began; no pass begins after `limit`.
  ProbePlan Next(absl::Duration elapsed, absl::Duration limit);

  // The answers to the last plan, by node; nullopt = no answer, and the node counts as silent.
  void Add(const std::vector<std::optional<NodeMeasurements>>& measurements);

  const NetworkFacts& facts() const { return facts_; }
  uint32_t passes() const { return passes_; }

 private:
  ProbePlan First() const;
  ProbePlan Again() const;
  bool Usable(Link link) const;
  void AddMeasurement(uint32_t node, const PeerMeasurement& measurement, uint64_t overrun);

  NetworkFacts facts_;
  ProbePlan plan_;
  uint32_t passes_ = 0;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_PREFLIGHT_CORE_LINK_CHECK_H_
