#include "tools/preflight/core/link_check.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tools/preflight/core/link_judge.h"

namespace ddprun::launcher {
namespace {

// Round `round` of the circle: the last place stays, the others move on by one.
std::vector<Link> CircleRound(uint32_t nodes, uint32_t endpoints, uint32_t round) {
  const uint32_t moving = endpoints - 1;
  std::vector<Link> pairs;
  for (uint32_t i = 0; i < endpoints / 2; ++i) {
    const uint32_t a = i == 0 ? moving : (round + i) % moving;
    const uint32_t b = (round + moving - i) % moving;
    if (a >= nodes || b >= nodes) continue;  // the place without a node
    pairs.push_back({.from = std::min(a, b), .to = std::max(a, b)});
  }
  std::sort(pairs.begin(), pairs.end());
  return pairs;
}

}  // namespace

std::vector<std::vector<Link>> Tournament(uint32_t nodes, uint32_t rounds_max) {
  std::vector<std::vector<Link>> rounds;
  if (nodes < 2) return rounds;
  const uint32_t endpoints = nodes + nodes % 2;
  const uint32_t all = endpoints - 1;
  const uint32_t count = std::min(all, rounds_max);
  for (uint32_t i = 0; i < count; ++i) {
    const auto round = static_cast<uint32_t>(uint64_t{i} * all / count);
    rounds.push_back(CircleRound(nodes, endpoints, round));
  }
  return rounds;
}

std::vector<std::vector<Link>> PackRounds(const std::vector<Link>& pairs, uint32_t at_once,
                                          uint32_t rounds_max) {
  std::vector<std::vector<Link>> rounds;
  std::vector<std::set<uint32_t>> busy;
  for (const Link& pair : pairs) {
    size_t round = 0;
    while (round < rounds.size() &&
           (rounds[round].size() >= at_once || busy[round].count(pair.from) > 0 ||
            busy[round].count(pair.to) > 0)) {
      ++round;
    }
    if (round == rounds_max) continue;
    if (round == rounds.size()) {
      rounds.emplace_back();
      busy.emplace_back();
    }
    rounds[round].push_back(pair);
    busy[round].insert({pair.from, pair.to});
  }
  return rounds;
}

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
