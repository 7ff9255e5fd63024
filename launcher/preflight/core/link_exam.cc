#include "launcher/preflight/core/link_exam.h"

#include <algorithm>
#include <utility>

#include "launcher/preflight/core/link_judge.h"
#include "launcher/preflight/core/link_rounds.h"

namespace ddprun::launcher {
namespace {

constexpr uint32_t kDatagramsMin = 20;

bool Takes(const ExamPlan& plan, Way way) {
  return std::binary_search(plan.ways.begin(), plan.ways.end(), way);
}

}  // namespace

LinkExam::LinkExam(std::vector<NodeFacts> nodes) {
  facts_.nodes = std::move(nodes);
  facts_.ways.resize(facts_.nodes.size() * facts_.nodes.size());
}

ExamPlan LinkExam::Next(absl::Duration elapsed, absl::Duration limit) {
  plan_ = passes_ == 0 ? First() : Again();
  if (passes_ >= kPassesMax || (passes_ > 0 && elapsed > limit)) plan_ = {};
  plan_.over = plan_.ways.empty() && plan_.rounds.empty();
  if (!plan_.over) ++passes_;
  return plan_;
}

// Both ends are there.
bool LinkExam::Usable(Way way) const {
  return facts_.nodes[way.from].told && facts_.nodes[way.to].told;
}

// Reach before throughput: over a cut way no connection is tried, which would only take time. So
// the first pass has datagrams alone.
ExamPlan LinkExam::First() const {
  ExamPlan plan;
  const auto count = static_cast<uint32_t>(facts_.nodes.size());
  plan.datagrams =
      std::clamp(kDatagramsOfNodeMax / std::max(count, 1U), kDatagramsMin, kFirstDatagrams);
  for (uint32_t from = 0; from < count; ++from) {
    for (uint32_t to = 0; to < count; ++to) {
      const Way way{.from = from, .to = to};
      if (from != to && Usable(way)) plan.ways.push_back(way);
    }
  }
  return plan;
}

ExamPlan LinkExam::Again() const {
  ExamPlan plan;
  plan.datagrams = kMoreDatagrams;
  const auto count = static_cast<uint32_t>(facts_.nodes.size());
  std::vector<Way> pairs;
  const auto whole = [this](Way way) {
    return facts_.At(way).arrived > 0 && !LosesMuch(facts_, way);
  };
  const auto back = [](Way way) { return Way{.from = way.to, .to = way.from}; };
  if (passes_ == 1) {
    plan.rounds = Tournament(count, kRoundsMax);
    for (std::vector<Way>& round : plan.rounds) {
      round.erase(
          std::remove_if(round.begin(), round.end(),
                         [&](Way way) { return !Usable(way) || !whole(way) || !whole(back(way)); }),
          round.end());
    }
  }
  for (uint32_t from = 0; from < count; ++from) {
    for (uint32_t to = 0; to < count; ++to) {
      const Way way{.from = from, .to = to};
      if (from == to || !Usable(way)) continue;
      if (SuspectLoss(facts_, way) || SuspectRoundTrip(facts_, way)) plan.ways.push_back(way);
      if (from > to || passes_ == 1) continue;
      const bool slow = SuspectRate(facts_, way) || SuspectRate(facts_, back(way));
      if (slow || SuspectConnection(facts_, way)) pairs.push_back(way);
    }
  }
  const uint32_t at_once = std::max(kPairsAtOnce, count / 4);
  if (passes_ > 1) plan.rounds = PackRounds(pairs, at_once, kMoreRoundsMax);
  plan.rounds.erase(std::remove_if(plan.rounds.begin(), plan.rounds.end(),
                                   [](const auto& round) { return round.empty(); }),
                    plan.rounds.end());
  return plan;
}

void LinkExam::Add(const std::vector<std::optional<NodeLooks>>& looks) {
  for (uint32_t node = 0; node < facts_.nodes.size() && node < looks.size(); ++node) {
    if (!looks[node].has_value()) facts_.nodes[node].told = false;
  }
  // What a silent node was to send or to see is not known.
  for (const Way& way : plan_.ways) {
    if (!Usable(way)) continue;
    facts_.At(way).sent += plan_.datagrams;
    facts_.At(way).told = true;
  }
  for (uint32_t node = 0; node < facts_.nodes.size() && node < looks.size(); ++node) {
    if (!looks[node].has_value()) continue;
    NodeFacts& facts = facts_.nodes[node];
    if (const auto work = looks[node]->work; work.has_value()) {
      facts.work = std::min(facts.work.value_or(*work), *work);
    }
    for (const PeerLook& look : looks[node]->peers) {
      if (look.peer < facts_.nodes.size() && look.peer != node) {
        AddLook(node, look, looks[node]->overrun);
      }
    }
  }
}

void LinkExam::AddLook(uint32_t node, const PeerLook& look, uint64_t overrun) {
  const Way in{.from = look.peer, .to = node};
  const Way out{.from = node, .to = look.peer};
  WayFacts& arriving = facts_.At(in);
  if (Usable(in) && Takes(plan_, in)) {
    // What the node had no room for did get there; whose it was isn't known.
    const uint64_t arrived = look.arrived == 0 ? 0 : look.arrived + overrun;
    arriving.arrived += static_cast<uint32_t>(std::min<uint64_t>(arrived, plan_.datagrams));
  }
  if (look.rate.has_value()) arriving.rates.push_back(*look.rate);
  WayFacts& leaving = facts_.At(out);
  // Both ends time the same round trip: the better of two measurements.
  if (look.round_trip.has_value()) {
    for (WayFacts* way : {&leaving, &arriving}) {
      way->round_trip = std::min(way->round_trip.value_or(*look.round_trip), *look.round_trip);
    }
  }
  leaving.refused += look.refused ? 1 : 0;
  leaving.connected += look.connected ? 1 : 0;
}

}  // namespace ddprun::launcher
