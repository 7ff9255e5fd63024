#ifndef DDPRUN_TOOLS_PREFLIGHT_CORE_LINK_JUDGE_H_
#define DDPRUN_TOOLS_PREFLIGHT_CORE_LINK_JUDGE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "tools/preflight/core/link_facts.h"

namespace ddprun::launcher {

// Which node or link of a network is to blame for what was measured. Pure; threads: any.
//
// Everything but a cut and a blocked port is relative: a link is compared with the links that touch
// neither of its ends, so that one or two bad nodes don't spoil the comparison, and where all links
// are equally slow, none is. A link within one machine isn't a network and is never slow. If most
// links of one side of a node are bad, the node is to blame; other bad links are blamed themselves.

enum class TroubleKind {
  kMissing,  // node: it never joined the job
  kSilent,   // node: it never came to the check, or stopped answering
  kCut,      // nothing arrives
  kBlocked,  // datagrams arrive, TCP connections can't be made
  kLossy,    // datagrams are lost
  kSlow,     // less than half of others' rate, and less than 10 Gbit/s
  kFar,      // the round trip takes more than three times as long as others', and 0.5 ms
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
  double value = 0;    // the worst measured value: loss 0 to 1, bit/s, seconds; 0 = none
  double usual = 0;    // what others have
  uint32_t links = 1;  // how many bad links this trouble explains

  friend bool operator==(const Trouble&, const Trouble&) = default;
};

// In the order of the kinds, nodes before links.
std::vector<Trouble> FindLinkTroubles(const NetworkFacts& facts);

// True for kinds with which no training is possible.
bool Prevents(TroubleKind kind);

// What is usual for a link: the median of the links that touch neither of its ends; in small
// networks a quartile of all others. nullopt = nothing to compare with.
std::optional<double> UsualRate(const NetworkFacts& facts, Link link);
std::optional<double> UsualRoundTrip(const NetworkFacts& facts, Link link);  // seconds
double UsualLoss(const NetworkFacts& facts, Link link);

// True while the link looks bad, but hasn't been measured often enough for an accusation.
bool SuspectLoss(const NetworkFacts& facts, Link link);
bool SuspectRate(const NetworkFacts& facts, Link link);
bool SuspectRoundTrip(const NetworkFacts& facts, Link link);
bool SuspectConnection(const NetworkFacts& facts, Link link);

// Whether so much is lost that a TCP rate over this link would show only the loss.
bool LosesMuch(const NetworkFacts& facts, Link link);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_PREFLIGHT_CORE_LINK_JUDGE_H_
