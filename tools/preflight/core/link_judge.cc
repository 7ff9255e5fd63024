#include "tools/preflight/core/link_judge.h"

#include <algorithm>
#include <functional>

#include "tools/preflight/core/link_check.h"

namespace ddprun::launcher {
namespace {

using Links = std::vector<bool>;  // by from * nodes + to

// The measured value that links are compared by; nullopt = not measured.
using Worth = std::function<std::optional<double>(const LinkFacts&)>;

// How the judge decides.
//
// Goal: name the node or link to repair, and nobody where all are equally slow. Absolute limits
// can't do that: 1 Gbit/s is a fault in one cluster and the network of another. So every link is
// compared with its peers, and two questions are answered in turn:
//
//   1. Is this link bad?          IsLossy, IsSlower, IsFar: against Usual()
//   2. Whose fault are bad links? Blamer: a node's that explains most of one side, else the link's
//
// Invariant: no link is called lossy, slow, far or blocked because of one measurement. LinkCheck
// measures again what a Suspect…() function names, until the accusation is confirmed or refuted. A
// link that is still suspect of loss, rate or round trip when the time is over doesn't count as
// measured (Evidence::looked_at).
//
// What is usual. The obvious measure, the median of all links, fails in small networks: if one node
// of three is slow in both directions, 4 of the 6 links are slow, and so is their median. Two rules
// avoid that: a link is compared with the links that touch neither of its ends; where fewer than
// two of those exist (2 or 3 nodes), with the good quartile of all others. Example: n2 of three
// nodes has 1 Gbit/s, the others 10:
//
//   link    the 5 others, sorted    75 % from below    own    slow (less than half)
//   0>1     1  1  1  1  10          1                  10     no
//   0>2     1  1  1  10  10         10                 1      yes
//
// Whose fault. Nodes are blamed greedily, the one with the largest share of bad links first; the
// links that it explains then count neither for nor against any other node. The order matters.
// Example: 4 nodes, where all links from n3 are bad, and the link 0>1:
//
//   side             bad / measured      after n3 is blamed
//   n3 sends         3 / 3  blamed
//   n1 receives      2 / 3  a candidate  1 / 2  fewer than two bad links are no node's fault
//   n0 sends         1 / 3               1 / 3
//
// The result is n3 (3 links) and the link 0>1. Blaming each node with two thirds of its links would
// accuse n1, too, which has one bad link of its own.
//
// The thresholds follow. *Measured*: from runs; *derived*: from another number; *chosen*: what a
// user would call bad, with no better source.

// Chosen: 0.5 % of 1,000 datagrams are 5, more than a stray loss.
constexpr double kLossAccused = 0.005;
// Derived: below 1 of kFirstDatagrams (200), so that a single lost datagram is looked into where
// others lose none.
constexpr double kLossSuspect = 0.002;
// Derived: implied by kLossAccused for 1,000 datagrams; holds if kMoreDatagrams gets smaller.
constexpr uint32_t kLostAccused = 3;
// Chosen: a suspicion begins at twice the usual loss (SuspectLoss), an accusation at three times.
constexpr double kUsualLossFactor = 3;
// Chosen: every rank of an all-reduce waits for the slowest link, so half the rate doubles its
// time.
constexpr double kSlowAccused = 0.5;
// Derived: above kSlowAccused. The best of a link's rates counts, so what is usual still rises
// while other links are measured again, and a link at 0.55 of it can fall below 0.5.
constexpr double kSlowSuspect = 0.6;
// Measured: two rates of one link that are too low by chance are seen, three hardly ever. But where
// nodes share CPUs, chance alone takes half of a rate often (8 nodes on 2 CPUs: up to a factor of
// 5), so an accusation of less than that factor needs six.
constexpr double kMuchSlower = 0.2;
constexpr size_t kRatesMuchSlower = 3;
constexpr size_t kRatesSlower = 6;
// Chosen: over a link that loses this much, the rate of a TCP connection shows the loss and nothing
// else, so none is measured.
constexpr double kLossHeavy = 0.03;
// Derived: the first 200 datagrams and two more passes. The least round trip of all counts, and one
// pass may be delayed from its first datagram to its last.
constexpr uint32_t kFarDatagrams = 2 * kMoreDatagrams;
// Chosen, together with kFarMoreSeconds: where others take 45 us, a link is far beyond 635 us.
constexpr double kFarFactor = 3;
// Measured in bit/s: one connection's rate beyond 10 Gbit/s depends on which CPUs its two ends run
// on (two namespaces of one machine: 24 Gbit/s in one direction, 77 in the other), not on the
// network.
constexpr double kNeverSlow = 1e10;
// Chosen: keeps the delays of a busy scheduler from counting as distance where round trips take
// microseconds.
constexpr double kFarMoreSeconds = 0.0005;
// Chosen. CPU time and not wall time, in which eight namespaces on two cores all look slow; the
// least of all passes, so a node that is held up once isn't busy.
constexpr double kBusyFactor = 2;
// Derived: the median of one link is that link. Jobs of 4 nodes have exactly two links apart.
constexpr size_t kComparedMin = 2;
// Bounds the cost, which is the square of the links: with 256 nodes (65,536 entries) every 94th
// link is compared with. Up to 26 nodes (676) all are.
constexpr size_t kComparedMax = 700;

bool Touches(Link link, Link other) {
  return link.from == other.from || link.from == other.to || link.to == other.from ||
         link.to == other.to;
}

// Several nodes of a job may be on one machine. A link between them is memory, not a network.
bool IsWithinOneMachine(const NetworkFacts& facts, Link link) {
  const std::string& address = facts.nodes[link.from].address;
  return !address.empty() && address == facts.nodes[link.to].address;
}

std::vector<Link> AllLinks(const NetworkFacts& facts) {
  std::vector<Link> links;
  const auto count = static_cast<uint32_t>(facts.nodes.size());
  for (uint32_t from = 0; from < count; ++from) {
    for (uint32_t to = 0; to < count; ++to) {
      if (from != to) links.push_back({.from = from, .to = to});
    }
  }
  return links;
}

double LinkQuantile(std::vector<double> values, double share) {
  const auto at =
      std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())));
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(at), values.end());
  return values[at];
}

// What is usual for a link: the median of the links that share no end with it, or in small networks
// the quantile `share_of_few` of all others (above). Links within machines are compared with their
// like, and links of the network with theirs.
std::optional<double> Usual(const NetworkFacts& facts, Link link, double share_of_few,
                            const Worth& worth) {
  std::vector<double> apart;
  std::vector<double> others;
  const size_t count = facts.nodes.size();
  const bool within = IsWithinOneMachine(facts, link);
  const size_t stride = 1 + facts.links.size() / kComparedMax;
  for (size_t i = 0; i < facts.links.size(); i += stride) {
    const Link other{.from = static_cast<uint32_t>(i / count),
                     .to = static_cast<uint32_t>(i % count)};
    if (other == link || other.from == other.to) continue;
    if (IsWithinOneMachine(facts, other) != within) continue;
    const std::optional<double> value = worth(facts.links[i]);
    if (!value.has_value()) continue;
    others.push_back(*value);
    if (!Touches(link, other)) apart.push_back(*value);
  }
  if (apart.size() >= kComparedMin) return LinkQuantile(std::move(apart), 0.5);
  if (others.empty()) return std::nullopt;
  return LinkQuantile(std::move(others), share_of_few);
}

std::optional<double> RoundTripOf(const LinkFacts& link) {
  if (!link.round_trip.has_value()) return std::nullopt;
  return absl::ToDoubleSeconds(*link.round_trip);
}

bool IsFar(const NetworkFacts& facts, Link link) {
  const std::optional<double> own = RoundTripOf(facts.At(link));
  const std::optional<double> usual = UsualRoundTrip(facts, link);
  return own.has_value() && usual.has_value() && *own > kFarFactor * *usual + kFarMoreSeconds;
}

bool IsSlower(const NetworkFacts& facts, Link link, double share) {
  if (IsWithinOneMachine(facts, link)) return false;  // the rate there measures CPU scheduling
  const std::optional<double> own = facts.At(link).BestRate();
  const std::optional<double> usual = UsualRate(facts, link);
  return own.has_value() && usual.has_value() && *own < std::min(share * *usual, kNeverSlow);
}

// Whether the link was measured often enough for an accusation: the smaller the difference, the
// more measurements.
bool RatesSettled(const NetworkFacts& facts, Link link) {
  const size_t enough = IsSlower(facts, link, kMuchSlower) ? kRatesMuchSlower : kRatesSlower;
  return facts.At(link).rates.size() >= enough;
}

bool IsCut(const NetworkFacts& facts, Link link) {
  const LinkFacts& seen = facts.At(link);
  return seen.sent > 0 && seen.arrived == 0;
}

bool IsLossy(const NetworkFacts& facts, Link link) {
  const LinkFacts& seen = facts.At(link);
  return seen.sent >= kMoreDatagrams && seen.arrived > 0 &&
         seen.sent - seen.arrived >= kLostAccused &&
         seen.Loss() > kLossAccused + kUsualLossFactor * UsualLoss(facts, link);
}

// ------------------------------------------------------------- from bad links to the guilty node

// Bad links of one kind, and the links that could have been bad: a link that wasn't measured counts
// neither for nor against its nodes.
struct Evidence {
  TroubleKind kind;
  Links bad;
  Links looked_at;
  double share;  // the share of a side's links that must be bad for the node to be blamed
};

class Blamer {
 public:
  Blamer(const NetworkFacts& facts, Evidence evidence)
      : facts_(facts), evidence_(std::move(evidence)), left_(evidence_.bad) {}

  // Blames nodes, the worst first, as long as one explains `share` of a side's links; what is left
  // are links.
  std::vector<Trouble> Blame() {
    while (BlameWorstNode()) {
    }
    MergeSides();
    std::sort(troubles_.begin(), troubles_.end(),
              [](const Trouble& a, const Trouble& b) { return a.node < b.node; });
    for (const Link& link : AllLinks(facts_)) {
      if (!left_[Index(link)]) continue;
      troubles_.push_back({.kind = evidence_.kind, .link = link});
    }
    return std::move(troubles_);
  }

 private:
  struct Candidate {
    uint32_t node = 0;
    Side side = Side::kSends;
    uint32_t bad = 0;
    uint32_t of = 0;
    uint32_t touching = 0;  // bad links of both sides of the node
  };

  size_t Index(Link link) const { return link.from * facts_.nodes.size() + link.to; }
  static Link Turned(uint32_t node, uint32_t other, Side side) {
    return side == Side::kSends ? Link{.from = node, .to = other} : Link{.from = other, .to = node};
  }

  Candidate Count(uint32_t node, Side side) const {
    Candidate found{.node = node, .side = side};
    for (uint32_t other = 0; other < facts_.nodes.size(); ++other) {
      if (other == node) continue;
      const size_t own = Index(Turned(node, other, side));
      found.bad += left_[own] ? 1 : 0;
      // A link that is explained by another node counts neither for nor against this one.
      found.of += evidence_.looked_at[own] && (left_[own] || !evidence_.bad[own]) ? 1 : 0;
      for (const Side each : {Side::kSends, Side::kReceives}) {
        found.touching += evidence_.bad[Index(Turned(node, other, each))] ? 1 : 0;
      }
    }
    return found;
  }

  static bool Worse(const Candidate& a, const Candidate& b) {
    const uint64_t left = uint64_t{a.bad} * b.of;
    const uint64_t right = uint64_t{b.bad} * a.of;
    if (left != right) return left > right;
    if (a.bad != b.bad) return a.bad > b.bad;
    return a.touching > b.touching;
  }

  bool BlameWorstNode() {
    std::optional<Candidate> worst;
    for (uint32_t node = 0; node < facts_.nodes.size(); ++node) {
      for (const Side side : {Side::kSends, Side::kReceives}) {
        const Candidate candidate = Count(node, side);
        if (candidate.bad < 2 || candidate.bad < evidence_.share * candidate.of) continue;
        if (!worst.has_value() || Worse(candidate, *worst)) worst = candidate;
      }
    }
    if (!worst.has_value()) return false;
    for (uint32_t other = 0; other < facts_.nodes.size(); ++other) {
      if (other != worst->node) left_[Index(Turned(worst->node, other, worst->side))] = false;
    }
    troubles_.push_back({.kind = evidence_.kind,
                         .node = worst->node,
                         .side = worst->side,
                         .link = {},
                         .links = worst->bad});
    return true;
  }

  void MergeSides() {
    for (size_t i = 0; i < troubles_.size(); ++i) {
      for (size_t j = i + 1; j < troubles_.size(); ++j) {
        if (troubles_[i].node != troubles_[j].node) continue;
        troubles_[i].side = Side::kBoth;
        troubles_[i].links += troubles_[j].links;
        troubles_.erase(troubles_.begin() + static_cast<ptrdiff_t>(j));
        break;
      }
    }
  }

  const NetworkFacts& facts_;
  Evidence evidence_;
  Links left_;
  std::vector<Trouble> troubles_;
};

Links Where(const NetworkFacts& facts, const std::function<bool(Link)>& is) {
  Links found(facts.links.size());
  for (const Link& link : AllLinks(facts))
    found[link.from * facts.nodes.size() + link.to] = is(link);
  return found;
}

bool IsPartOf(const Trouble& trouble, Link link) {
  if (!trouble.node.has_value()) return trouble.link == link;
  return (link.from == *trouble.node && trouble.side != Side::kReceives) ||
         (link.to == *trouble.node && trouble.side != Side::kSends);
}

// Fills in the worst value of the links that a trouble explains, and what is usual there.
void Weigh(const NetworkFacts& facts, const Links& bad, bool small_is_bad, const Worth& worth,
           const std::function<std::optional<double>(Link)>& usual, Trouble* trouble) {
  std::optional<double> worst;
  for (const Link& link : AllLinks(facts)) {
    if (!bad[link.from * facts.nodes.size() + link.to] || !IsPartOf(*trouble, link)) continue;
    const std::optional<double> value = worth(facts.At(link));
    if (!value.has_value()) continue;
    if (worst.has_value() && (small_is_bad ? *value >= *worst : *value <= *worst)) continue;
    worst = value;
    trouble->usual = usual(link).value_or(0);
  }
  trouble->value = worst.value_or(0);
}

void JudgeNodes(const NetworkFacts& facts, std::vector<Trouble>* troubles) {
  std::vector<double> works;
  for (const NodeFacts& node : facts.nodes) {
    if (node.work.has_value()) works.push_back(absl::ToDoubleSeconds(*node.work));
  }
  for (uint32_t i = 0; i < facts.nodes.size(); ++i) {
    const NodeFacts& node = facts.nodes[i];
    if (!node.told) {
      const TroubleKind kind = node.missing ? TroubleKind::kMissing : TroubleKind::kSilent;
      troubles->push_back({.kind = kind, .node = i, .link = {}});
    }
    if (!node.work.has_value() || works.size() < 2) continue;
    std::vector<double> others = works;
    const double own = absl::ToDoubleSeconds(*node.work);
    others.erase(std::find(others.begin(), others.end(), own));
    const double usual = LinkQuantile(std::move(others), 0.5);
    if (own <= kBusyFactor * usual) continue;
    troubles->push_back(
        {.kind = TroubleKind::kBusy, .node = i, .link = {}, .value = own, .usual = usual});
  }
}

void JudgeReach(const NetworkFacts& facts, std::vector<Trouble>* troubles) {
  const Links sent = Where(facts, [&](Link link) { return facts.At(link).sent > 0; });
  const Links cut = Where(facts, [&](Link link) { return IsCut(facts, link); });
  for (const Trouble& trouble : Blamer(facts, {TroubleKind::kCut, cut, sent, 1}).Blame()) {
    troubles->push_back(trouble);
  }
  const Links tried = Where(
      facts, [&](Link link) { return facts.At(link).refused > 0 || facts.At(link).connected > 0; });
  const Links blocked = Where(facts, [&](Link link) {
    return facts.At(link).refused > 1 && facts.At(link).connected == 0;
  });
  for (const Trouble& trouble : Blamer(facts, {TroubleKind::kBlocked, blocked, tried, 1}).Blame()) {
    troubles->push_back(trouble);
  }
}

// Chosen: all links of a bad node are bad, but chance may hide some. Chance doesn't hide cuts and
// blocked ports, so JudgeReach() requires all links of a side.
constexpr double kMost = 2.0 / 3;

void JudgeLoss(const NetworkFacts& facts, std::vector<Trouble>* troubles) {
  const Links sent = Where(
      facts, [&](Link link) { return facts.At(link).arrived > 0 && !SuspectLoss(facts, link); });
  const Links lossy = Where(facts, [&](Link link) { return IsLossy(facts, link); });
  const auto loss = [](const LinkFacts& link) -> std::optional<double> { return link.Loss(); };
  const auto usual = [&](Link link) -> std::optional<double> { return UsualLoss(facts, link); };
  for (Trouble& trouble : Blamer(facts, {TroubleKind::kLossy, lossy, sent, kMost}).Blame()) {
    Weigh(facts, lossy, false, loss, usual, &trouble);
    troubles->push_back(trouble);
  }
}

void JudgeRates(const NetworkFacts& facts, std::vector<Trouble>* troubles) {
  const auto loses = [&](Link link) { return IsCut(facts, link) || IsLossy(facts, link); };
  const Links measured = Where(
      facts, [&](Link link) { return !facts.At(link).rates.empty() && !SuspectRate(facts, link); });
  // Lost packets make TCP slow in both directions (acknowledgements get lost, too). Such a link is
  // reported as lossy or cut already.
  const Links slow = Where(facts, [&](Link link) {
    return IsSlower(facts, link, kSlowAccused) && RatesSettled(facts, link) && !loses(link) &&
           !loses({.from = link.to, .to = link.from});
  });
  const auto rate = [](const LinkFacts& link) { return link.BestRate(); };
  const auto usual = [&](Link link) { return UsualRate(facts, link); };
  for (Trouble& trouble : Blamer(facts, {TroubleKind::kSlow, slow, measured, kMost}).Blame()) {
    Weigh(facts, slow, true, rate, usual, &trouble);
    troubles->push_back(trouble);
  }
}

void JudgeRoundTrips(const NetworkFacts& facts, std::vector<Trouble>* troubles) {
  const Links measured = Where(facts, [&](Link link) {
    return facts.At(link).round_trip.has_value() && !SuspectRoundTrip(facts, link);
  });
  // A round trip crosses both directions, so a far pair has two far links. One is reported.
  const Links far = Where(
      facts, [&](Link link) { return IsFar(facts, link) && facts.At(link).sent >= kFarDatagrams; });
  const auto seconds = [](const LinkFacts& link) { return RoundTripOf(link); };
  const auto usual = [&](Link link) { return UsualRoundTrip(facts, link); };
  for (Trouble& trouble : Blamer(facts, {TroubleKind::kFar, far, measured, kMost}).Blame()) {
    if (!trouble.node.has_value() && trouble.link.from > trouble.link.to &&
        far[trouble.link.to * facts.nodes.size() + trouble.link.from]) {
      continue;
    }
    Weigh(facts, far, false, seconds, usual, &trouble);
    troubles->push_back(trouble);
  }
}

}  // namespace

double LinkFacts::Loss() const {
  return sent == 0 ? 0 : static_cast<double>(sent - arrived) / static_cast<double>(sent);
}

std::optional<double> LinkFacts::BestRate() const {
  if (rates.empty()) return std::nullopt;
  return *std::max_element(rates.begin(), rates.end());
}

bool Prevents(TroubleKind kind) {
  return kind == TroubleKind::kSilent || kind == TroubleKind::kCut || kind == TroubleKind::kBlocked;
}

std::optional<double> UsualRate(const NetworkFacts& facts, Link link) {
  return Usual(facts, link, 0.75, [](const LinkFacts& each) { return each.BestRate(); });
}

std::optional<double> UsualRoundTrip(const NetworkFacts& facts, Link link) {
  return Usual(facts, link, 0.25, RoundTripOf);
}

double UsualLoss(const NetworkFacts& facts, Link link) {
  return Usual(facts, link, 0.25,
               [](const LinkFacts& each) -> std::optional<double> {
                 if (each.arrived == 0) return std::nullopt;
                 return each.Loss();
               })
      .value_or(0);
}

bool SuspectLoss(const NetworkFacts& facts, Link link) {
  const LinkFacts& seen = facts.At(link);
  if (seen.sent == 0 || seen.sent >= kMoreDatagrams || seen.arrived == seen.sent) return false;
  return seen.Loss() > kLossSuspect + 2 * UsualLoss(facts, link);
}

bool LosesMuch(const NetworkFacts& facts, Link link) {
  return facts.At(link).Loss() > kLossHeavy + kUsualLossFactor * UsualLoss(facts, link);
}

bool SuspectRate(const NetworkFacts& facts, Link link) {
  return IsSlower(facts, link, kSlowSuspect) && !RatesSettled(facts, link);
}

bool SuspectRoundTrip(const NetworkFacts& facts, Link link) {
  return IsFar(facts, link) && facts.At(link).sent < kFarDatagrams;
}

bool SuspectConnection(const NetworkFacts& facts, Link link) {
  return facts.At(link).refused == 1 && facts.At(link).connected == 0;
}

std::vector<Trouble> FindLinkTroubles(const NetworkFacts& facts) {
  std::vector<Trouble> troubles;
  JudgeNodes(facts, &troubles);
  JudgeReach(facts, &troubles);
  JudgeLoss(facts, &troubles);
  JudgeRates(facts, &troubles);
  JudgeRoundTrips(facts, &troubles);
  std::stable_sort(troubles.begin(), troubles.end(), [](const Trouble& a, const Trouble& b) {
    if (a.kind != b.kind) return a.kind < b.kind;
    return a.node.has_value() && !b.node.has_value();
  });
  return troubles;
}

}  // namespace ddprun::launcher
