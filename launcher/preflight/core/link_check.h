#ifndef DDPRUN_LAUNCHER_PREFLIGHT_CORE_LINK_CHECK_H_
#define DDPRUN_LAUNCHER_PREFLIGHT_CORE_LINK_CHECK_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "launcher/preflight/core/link_facts.h"

namespace ddprun::launcher {

// Along each link in the first pass: one in 20 lost is missed once in 28,000 times.
inline constexpr uint32_t kFirstDatagrams = 200;
// Along a suspect one, in the pass after it.
inline constexpr uint32_t kMoreDatagrams = 1000;
// Datagrams that a node sends at most in the first pass: large jobs send fewer along each link.
inline constexpr uint32_t kDatagramsOfNodeMax = 20'000;
// Rounds of the first pass: in jobs of more nodes than this, not every pair is measured with TCP.
inline constexpr uint32_t kRoundsMax = 15;
// Rounds of a later pass. A link that finds no place in them is not accused.
inline constexpr uint32_t kMoreRoundsMax = 16;
// Pairs of a round of a later pass, in small jobs; in others a quarter of the nodes.
inline constexpr uint32_t kPairsAtOnce = 2;
// All passes; the first has datagrams only.
inline constexpr uint32_t kPassesMax = 8;
// Nodes that can be checked together.
inline constexpr uint32_t kCheckNodesMax = 256;

// Decides what the nodes of a job measure: all of them once, then only what looks bad, again and
// with less at the same time. Nothing is accused of what was seen once: on a busy machine any one
// measurement may be off. Pure; threads: any.
//
// Datagrams first: they tell the directions of a link apart, which TCP can't, and a cut costs no
// timeout. TCP's rate is measured only along whole links. Nothing is compared with a constant,
// because what is slow on one network is usual on another.
class LinkCheck {
 public:
  // `nodes`: those that came have `told` set.
  explicit LinkCheck(std::vector<NodeFacts> nodes);

  // What to measure next. `elapsed`: since the check began; no pass begins after `limit`.
  ProbePlan Next(absl::Duration elapsed, absl::Duration limit);

  // The answers to the last plan, by node; nullopt = none came, and the node counts as silent.
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

#endif  // DDPRUN_LAUNCHER_PREFLIGHT_CORE_LINK_CHECK_H_
