#ifndef DDPRUN_LAUNCHER_PREFLIGHT_CORE_LINK_JUDGE_H_
#define DDPRUN_LAUNCHER_PREFLIGHT_CORE_LINK_JUDGE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "launcher/preflight/core/link_facts.h"

namespace ddprun::launcher {

// Which node or link of a network is to blame for what was measured. Pure; threads: any.
//
// Everything but a cut is relative: a link is slow beside the links that touch neither of its ends,
// so that one or two bad nodes don't spoil what they are compared with, and where all are equally
// slow nobody is. Links within one machine are no network, and are slow to nobody. Most links of
// one side of a node being bad is the node's fault; the rest are links'.

enum class TroubleKind {
  kMissing,  // node: it is no part of the job, though it should be
  kSilent,   // node: it never came to the check, or stopped answering
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
  std::optional<uint32_t> node;  // else `link`
  Side side = Side::kBoth;       // of a node
  Link link;
  double value = 0;    // worst of what it is blamed for: loss 0 to 1, bit/s, seconds; 0 = none
  double usual = 0;    // what others have
  uint32_t links = 1;  // how many bad links it explains

  friend bool operator==(const Trouble&, const Trouble&) = default;
};

// In the order of the kinds, nodes before links.
std::vector<Trouble> FindLinkTroubles(const NetworkFacts& facts);

// True for kinds with which no training is possible.
bool Prevents(TroubleKind kind);

// What others measured where the link touches nobody: the median; nullopt = nothing to compare
// with.
std::optional<double> UsualRate(const NetworkFacts& facts, Link link);
std::optional<double> UsualRoundTrip(const NetworkFacts& facts, Link link);  // seconds
double UsualLoss(const NetworkFacts& facts, Link link);

// True while the link might be accused of this, but has not been measured often enough for it.
bool SuspectLoss(const NetworkFacts& facts, Link link);
bool SuspectRate(const NetworkFacts& facts, Link link);
bool SuspectRoundTrip(const NetworkFacts& facts, Link link);
bool SuspectConnection(const NetworkFacts& facts, Link link);

// TCP over such a link is slow because of what is lost, which needs no second proof.
bool LosesMuch(const NetworkFacts& facts, Link link);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PREFLIGHT_CORE_LINK_JUDGE_H_
