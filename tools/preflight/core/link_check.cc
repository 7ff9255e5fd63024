#include "tools/preflight/core/link_check.h"

#include <algorithm>
#include <utility>

#include "tools/preflight/core/link_judge.h"
#include "tools/preflight/core/link_rounds.h"

namespace ddprun::launcher {
namespace {

constexpr uint32_t kDatagramsMin = 20;

bool Takes(const ProbePlan& plan, Link link) {
  return std::binary_search(plan.links.begin(), plan.links.end(), link);
}

}  // namespace

LinkCheck::LinkCheck(std::vector<NodeFacts> nodes) {
  facts_.nodes = std::move(nodes);
  facts_.links.resize(facts_.nodes.size() * facts_.nodes.size());
}

ProbePlan LinkCheck::Next(absl::Duration elapsed, absl::Duration limit) {
  plan_ = passes_ == 0 ? First() : Again();
  if (passes_ >= kPassesMax || (passes_ > 0 && elapsed > limit)) plan_ = {};
  plan_.over = plan_.links.empty() && plan_.rounds.empty();
  if (!plan_.over) ++passes_;
  return plan_;
}

// Whether the nodes at both ends have come and answer.
bool LinkCheck::Usable(Link link) const {
  return facts_.nodes[link.from].told && facts_.nodes[link.to].told;
}

// The first pass has only datagrams: no connection is tried over a cut link, where it would only
// wait for its time-out.
ProbePlan LinkCheck::First() const {
  ProbePlan plan;
  const auto count = static_cast<uint32_t>(facts_.nodes.size());
  plan.datagrams =
      std::clamp(kDatagramsOfNodeMax / std::max(count, 1U), kDatagramsMin, kFirstDatagrams);
  for (uint32_t from = 0; from < count; ++from) {
    for (uint32_t to = 0; to < count; ++to) {
      const Link link{.from = from, .to = to};
      if (from != to && Usable(link)) plan.links.push_back(link);
    }
  }
  return plan;
}

ProbePlan LinkCheck::Again() const {
  ProbePlan plan;
  plan.datagrams = kMoreDatagrams;
  const auto count = static_cast<uint32_t>(facts_.nodes.size());
  std::vector<Link> pairs;
  const auto whole = [this](Link link) {
    return facts_.At(link).arrived > 0 && !LosesMuch(facts_, link);
  };
  const auto back = [](Link link) { return Link{.from = link.to, .to = link.from}; };
  if (passes_ == 1) {
    plan.rounds = Tournament(count, kRoundsMax);
    for (std::vector<Link>& round : plan.rounds) {
      round.erase(std::remove_if(round.begin(), round.end(),
                                 [&](Link link) {
                                   return !Usable(link) || !whole(link) || !whole(back(link));
                                 }),
                  round.end());
    }
  }
  for (uint32_t from = 0; from < count; ++from) {
    for (uint32_t to = 0; to < count; ++to) {
      const Link link{.from = from, .to = to};
      if (from == to || !Usable(link)) continue;
      if (SuspectLoss(facts_, link) || SuspectRoundTrip(facts_, link)) plan.links.push_back(link);
      if (from > to || passes_ == 1) continue;
      const bool slow = SuspectRate(facts_, link) || SuspectRate(facts_, back(link));
      if (slow || SuspectConnection(facts_, link)) pairs.push_back(link);
    }
  }
  const uint32_t at_once = std::max(kPairsAtOnce, count / 4);
  if (passes_ > 1) plan.rounds = PackRounds(pairs, at_once, kMoreRoundsMax);
  plan.rounds.erase(std::remove_if(plan.rounds.begin(), plan.rounds.end(),
                                   [](const auto& round) { return round.empty(); }),
                    plan.rounds.end());
  return plan;
}

void LinkCheck::Add(const std::vector<std::optional<NodeMeasurements>>& measurements) {
  for (uint32_t node = 0; node < facts_.nodes.size() && node < measurements.size(); ++node) {
    if (!measurements[node].has_value()) facts_.nodes[node].told = false;
  }
  // Nothing is known of datagrams that a silent node should have sent or received.
  for (const Link& link : plan_.links) {
    if (!Usable(link)) continue;
    facts_.At(link).sent += plan_.datagrams;
    facts_.At(link).told = true;
  }
  for (uint32_t node = 0; node < facts_.nodes.size() && node < measurements.size(); ++node) {
    if (!measurements[node].has_value()) continue;
    NodeFacts& facts = facts_.nodes[node];
    if (const auto work = measurements[node]->work; work.has_value()) {
      facts.work = std::min(facts.work.value_or(*work), *work);
    }
    for (const PeerMeasurement& measurement : measurements[node]->peers) {
      if (measurement.peer < facts_.nodes.size() && measurement.peer != node) {
        AddMeasurement(node, measurement, measurements[node]->overrun);
      }
    }
  }
}

void LinkCheck::AddMeasurement(uint32_t node, const PeerMeasurement& measurement,
                               uint64_t overrun) {
  const Link in{.from = measurement.peer, .to = node};
  const Link out{.from = node, .to = measurement.peer};
  LinkFacts& arriving = facts_.At(in);
  if (Usable(in) && Takes(plan_, in)) {
    // Datagrams that the node had no room for did arrive, but their sender isn't known: give the
    // node's whole overrun to each sender that got through.
    const uint64_t arrived = measurement.arrived == 0 ? 0 : measurement.arrived + overrun;
    arriving.arrived += static_cast<uint32_t>(std::min<uint64_t>(arrived, plan_.datagrams));
  }
  if (measurement.rate.has_value()) arriving.rates.push_back(*measurement.rate);
  LinkFacts& leaving = facts_.At(out);
  // The two ends time the same round trip; keep the least.
  if (measurement.round_trip.has_value()) {
    for (LinkFacts* link : {&leaving, &arriving}) {
      link->round_trip =
          std::min(link->round_trip.value_or(*measurement.round_trip), *measurement.round_trip);
    }
  }
  leaving.refused += measurement.refused ? 1 : 0;
  leaving.connected += measurement.connected ? 1 : 0;
}

}  // namespace ddprun::launcher
