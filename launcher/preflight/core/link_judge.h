#ifndef DDPRUN_LAUNCHER_PREFLIGHT_CORE_LINK_JUDGE_H_
#define DDPRUN_LAUNCHER_PREFLIGHT_CORE_LINK_JUDGE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "launcher/preflight/core/link_facts.h"

namespace ddprun::launcher {

// Which node or way of a network is to blame for what was measured. Pure; threads: any.
//
// Everything but a cut is relative: a way is slow beside the ways that touch neither of its ends,
// so that one or two bad nodes don't spoil what they are compared with, and where all are equally
// slow nobody is. Ways within one machine are no network, and are slow to nobody. Most ways of one
// side of a node being bad is the node's fault; the rest are ways'.

enum class TroubleKind {
  kMissing,  // node: it is no part of the job, though it should be
  kSilent,   // node: it never came to the exam, or stopped answering
  kCut,      // nothing arrives
  kBlocked,  // datagrams arrive, TCP connections can't be made
  kLossy,    // datagrams are lost
  kSlow,     // less than half of what others get through, and less than 10 Gbit/s
  kFar,      // the round trip takes more than three times as long as others'
  kBusy,     // node: the same work takes twice as much CPU time
};
inline constexpr int kTroubleKinds = 8;

// Where a node's trouble is.
enum class Side { kSends, kReceives, kBoth };

struct Trouble {
  TroubleKind kind = TroubleKind::kSilent;
  std::optional<uint32_t> node;  // else `way`
  Side side = Side::kBoth;       // of a node
  Way way;
  double value = 0;   // worst of what it is blamed for: loss 0 to 1, bit/s, seconds; 0 = none
  double usual = 0;   // what others have
  uint32_t ways = 1;  // how many bad ways it explains

  friend bool operator==(const Trouble&, const Trouble&) = default;
};

// In the order of the kinds, nodes before ways.
std::vector<Trouble> FindLinkTroubles(const NetworkFacts& facts);

// True for kinds with which no training is possible.
bool Prevents(TroubleKind kind);

// What others measured where the way touches nobody: the median; nullopt = nothing to compare with.
std::optional<double> UsualRate(const NetworkFacts& facts, Way way);
std::optional<double> UsualRoundTrip(const NetworkFacts& facts, Way way);  // seconds
double UsualLoss(const NetworkFacts& facts, Way way);

// True while the way might be accused of this, but has not been measured often enough for it.
bool SuspectLoss(const NetworkFacts& facts, Way way);
bool SuspectRate(const NetworkFacts& facts, Way way);
bool SuspectRoundTrip(const NetworkFacts& facts, Way way);
bool SuspectConnection(const NetworkFacts& facts, Way way);

// TCP over such a way is slow because of what is lost, which needs no second proof.
bool LosesMuch(const NetworkFacts& facts, Way way);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PREFLIGHT_CORE_LINK_JUDGE_H_
