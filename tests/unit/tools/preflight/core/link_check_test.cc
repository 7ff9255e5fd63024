#include "tools/preflight/core/link_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "tests/support/inputs.h"
#include "tools/preflight/core/link_judge.h"
#include "tools/preflight/core/link_text.h"

// The check on networks that are made up, with noise as on a machine that has more to do than it
// can.
namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

struct FakeLink {
  bool cut = false;
  uint32_t lost_percent = 0;
  double rate = 1e10;
  absl::Duration round_trip = absl::Microseconds(60);
  bool blocked = false;
};

class FakeNetwork {
 public:
  FakeNetwork(uint32_t nodes, uint64_t seed)
      : nodes_(nodes), rng_(seed), ways_(nodes * nodes), work_(nodes, absl::Milliseconds(1)) {}

  FakeLink& At(uint32_t from, uint32_t to) { return ways_[from * nodes_ + to]; }
  void All(const std::function<void(FakeLink&)>& change) {
    for (FakeLink& link : ways_) change(link);
  }
  void Sends(uint32_t node, const std::function<void(FakeLink&)>& change) {
    for (uint32_t to = 0; to < nodes_; ++to) change(At(node, to));
  }
  void Receives(uint32_t node, const std::function<void(FakeLink&)>& change) {
    for (uint32_t from = 0; from < nodes_; ++from) change(At(from, node));
  }
  absl::Duration& Work(uint32_t node) { return work_[node]; }
  // In the next pass alone.
  void HoldUp(uint32_t node) { held_up_.insert(node); }
  void SetAddress(uint32_t node, const std::string& address) { addresses_[node] = address; }
  // Everything but cuts and blocks is measured wrongly now and then, the more at the same time the
  // more often.
  void set_noisy(bool noisy) { noisy_ = noisy; }

  LinkCheck Check() {
    std::vector<NodeFacts> facts(nodes_);
    for (uint32_t i = 0; i < nodes_; ++i) {
      facts[i].name = absl::StrCat("n", i);
      facts[i].address = addresses_.contains(i) ? addresses_.at(i) : "";
      facts[i].told = silent_.count(i) == 0;
    }
    LinkCheck check(facts);
    for (ProbePlan plan = check.Next({}, kLimit); !plan.over; plan = check.Next({}, kLimit)) {
      Check(plan);
      check.Add(Answer(plan));
    }
    return check;
  }
  std::vector<Trouble> Troubles() { return FindLinkTroubles(Check().facts()); }
  void Silence(uint32_t node) { silent_.insert(node); }

 private:
  static constexpr absl::Duration kLimit = absl::Seconds(3);

  static void Check(const ProbePlan& plan) {
    for (const auto& round : plan.rounds) {
      std::set<uint32_t> busy;
      for (const Link& pair : round) {
        EXPECT_TRUE(busy.insert(pair.from).second && busy.insert(pair.to).second);
      }
    }
  }

  double Noise(size_t at_once) {
    if (!noisy_) return 1;
    // A measurement beside others may be starved to a tenth, one alone to a half.
    const double worst = at_once > 1 ? 0.1 : 0.5;
    if (!rng_.Chance(at_once > 1 ? 25 : 8)) return 0.8 + 0.2 * Fraction();
    return worst + (1 - worst) * Fraction();
  }
  double Fraction() { return static_cast<double>(rng_.Below(1000)) / 1000; }

  void AddDatagrams(const ProbePlan& plan,
                    std::vector<std::optional<NodeMeasurements>>* measurements) {
    for (const Link& link : plan.links) {
      const FakeLink& there = At(link.from, link.to);
      const FakeLink& back = At(link.to, link.from);
      uint32_t arrived = 0;
      for (uint32_t i = 0; i < plan.datagrams && !there.cut; ++i) {
        arrived += rng_.Chance(there.lost_percent) ? 0 : 1;
      }
      if (noisy_ && plan.datagrams < kMoreDatagrams && rng_.Chance(5) && arrived > 0) --arrived;
      MeasurementOf(measurements, link.to, link.from).arrived = arrived;
      if (there.cut || back.cut) continue;
      const double wait = noisy_ && rng_.Chance(plan.links.size() > 4 ? 10 : 1) ? 20 : 1;
      MeasurementOf(measurements, link.from, link.to).round_trip = there.round_trip * wait;
    }
  }

  void AddTransfers(const ProbePlan& plan,
                    std::vector<std::optional<NodeMeasurements>>* measurements) {
    for (const auto& round : plan.rounds) {
      for (const Link& pair : round) {
        PeerMeasurement& measurement = MeasurementOf(measurements, pair.from, pair.to);
        measurement.refused = At(pair.from, pair.to).blocked;
        measurement.connected = !measurement.refused;
        if (measurement.refused) continue;
        MeasurementOf(measurements, pair.to, pair.from).rate =
            At(pair.from, pair.to).rate * Noise(round.size());
        measurement.rate = At(pair.to, pair.from).rate * Noise(round.size());
      }
    }
  }

  PeerMeasurement& MeasurementOf(std::vector<std::optional<NodeMeasurements>>* measurements,
                                 uint32_t node, uint32_t peer) {
    for (PeerMeasurement& measurement : (*measurements)[node]->peers) {
      if (measurement.peer == peer) return measurement;
    }
    return (*measurements)[node]->peers.emplace_back(PeerMeasurement{.peer = peer});
  }

  std::vector<std::optional<NodeMeasurements>> Answer(const ProbePlan& plan) {
    std::vector<std::optional<NodeMeasurements>> measurements(nodes_);
    for (uint32_t i = 0; i < nodes_; ++i) {
      const int factor = held_up_.erase(i) > 0 ? 3 : 1;
      measurements[i].emplace(NodeMeasurements{.work = factor * work_[i]});
    }
    AddDatagrams(plan, &measurements);
    AddTransfers(plan, &measurements);
    for (const uint32_t node : silent_) measurements[node].reset();
    return measurements;
  }

  uint32_t nodes_;
  Rng rng_;
  std::vector<FakeLink> ways_;
  std::map<uint32_t, std::string> addresses_;  // "" for others
  std::vector<absl::Duration> work_;
  std::set<uint32_t> held_up_;
  std::set<uint32_t> silent_;
  bool noisy_ = false;
};

// "slow n3 sends", "cut 1>4": what a list of troubles says.
std::vector<std::string> Names(const std::vector<Trouble>& troubles) {
  constexpr const char* kKinds[] = {"missing", "silent", "cut", "blocked",
                                    "lossy",   "slow",   "far", "busy"};
  constexpr const char* kSides[] = {"sends", "receives", "both"};
  std::vector<std::string> names;
  for (const Trouble& trouble : troubles) {
    const char* kind = kKinds[static_cast<size_t>(trouble.kind)];
    names.push_back(trouble.node.has_value()
                        ? absl::StrCat(kind, " n", *trouble.node, " ",
                                       kSides[static_cast<size_t>(trouble.side)])
                        : absl::StrCat(kind, " ", trouble.link.from, ">", trouble.link.to));
  }
  return names;
}

TEST(Tournament, EachPairOnceAndEachNodeOnceInARound) {
  for (uint32_t nodes = 0; nodes < 20; ++nodes) {
    const auto rounds = Tournament(nodes, 100);
    std::set<Link> seen;
    for (const auto& round : rounds) {
      std::set<uint32_t> busy;
      for (const Link& pair : round) {
        EXPECT_LT(pair.from, pair.to);
        EXPECT_LT(pair.to, nodes);
        EXPECT_TRUE(busy.insert(pair.from).second && busy.insert(pair.to).second);
        EXPECT_TRUE(seen.insert(pair).second);
      }
    }
    EXPECT_EQ(seen.size(), nodes * (nodes - std::min(nodes, 1U)) / 2) << nodes;
    EXPECT_LE(rounds.size(), nodes + nodes % 2);
  }
  EXPECT_THAT(Tournament(64, 15), SizeIs(15));
}

TEST(PackRounds, LeavesOutWhatHasNoPlace) {
  const std::vector<Link> pairs = {{0, 1}, {0, 2}, {0, 3}, {1, 2}};
  const auto rounds = PackRounds(pairs, 4, 2);
  ASSERT_EQ(rounds.size(), 2U);
  EXPECT_THAT(rounds[0], ElementsAre(Link{0, 1}));
  EXPECT_THAT(rounds[1], ElementsAre(Link{0, 2}));
  EXPECT_THAT(PackRounds(pairs, 4, 9), SizeIs(3));
  EXPECT_THAT(PackRounds(pairs, 1, 9), SizeIs(4));
}

TEST(LinkCheck, AHealthyNetworkIsMeasuredOnce) {
  FakeNetwork network(8, 1);
  const LinkCheck check = network.Check();
  EXPECT_EQ(check.passes(), 2U);
  EXPECT_THAT(FindLinkTroubles(check.facts()), IsEmpty());
}

TEST(LinkCheck, NobodyIsWorseWhereAllAreEquallySlow) {
  FakeNetwork network(8, 1);
  network.All([](FakeLink& link) {
    link.rate = 1e6;
    link.round_trip = absl::Milliseconds(80);
    link.lost_percent = 5;
  });
  for (uint32_t i = 0; i < 8; ++i) network.Work(i) = absl::Milliseconds(20);
  EXPECT_THAT(Names(network.Troubles()), IsEmpty());
}

TEST(LinkCheck, ANodeThatSendsSlowly) {
  FakeNetwork network(8, 1);
  network.Sends(3, [](FakeLink& link) { link.rate = 2e9; });
  EXPECT_THAT(Names(network.Troubles()), ElementsAre("slow n3 sends"));
  network.Receives(3, [](FakeLink& link) { link.rate = 2e9; });
  EXPECT_THAT(Names(network.Troubles()), ElementsAre("slow n3 both"));
}

TEST(LinkCheck, TwinHalfAsFastIsNotSlow) {
  FakeNetwork network(8, 1);
  network.Sends(3, [](FakeLink& link) { link.rate = 6e9; });
  EXPECT_THAT(Names(network.Troubles()), IsEmpty());
}

// On one machine it is chance which of two processes has the better place.
TEST(LinkCheck, AWayWithinOneMachineIsNotSlow) {
  FakeNetwork network(2, 1);
  network.At(0, 1).rate = 9e10;
  network.At(1, 0).rate = 2e9;
  EXPECT_THAT(Names(network.Troubles()), ElementsAre("slow 1>0"));  // negative control
  network.SetAddress(0, "10.0.0.1");
  network.SetAddress(1, "10.0.0.1");
  EXPECT_THAT(Names(network.Troubles()), IsEmpty());
}

TEST(LinkCheck, ANetworkIsNotSlowBesideAMachinesMemory) {
  FakeNetwork network(4, 1);
  for (uint32_t node = 0; node < 4; ++node) {
    network.SetAddress(node, node < 2 ? "10.0.0.1" : "10.0.0.2");
  }
  for (const uint32_t node : {0U, 2U}) {
    network.At(node, node + 1).rate = network.At(node + 1, node).rate = 9e10;
  }
  EXPECT_THAT(Names(network.Troubles()), IsEmpty());
  network.At(0, 2).rate = network.At(0, 3).rate = 1e9;
  EXPECT_THAT(Names(network.Troubles()), Not(IsEmpty())) << "but beside the rest of the network";
}

// Beyond 10 Gbit/s one connection shows what its ends' processors do.
TEST(LinkCheck, AQuickWayIsNotSlowBesideAQuickerOne) {
  FakeNetwork network(2, 1);
  network.At(0, 1).rate = 7.7e10;
  network.At(1, 0).rate = 1.1e10;
  EXPECT_THAT(Names(network.Troubles()), IsEmpty());
  network.At(1, 0).rate = 0.9e10;
  EXPECT_THAT(Names(network.Troubles()), ElementsAre("slow 1>0"));
}

TEST(LinkCheck, OneWayIsCut) {
  FakeNetwork network(8, 1);
  network.At(2, 5).cut = true;
  const LinkCheck check = network.Check();
  EXPECT_THAT(Names(FindLinkTroubles(check.facts())), ElementsAre("cut 2>5"));
  const auto findings = DescribeTroubles(check.facts());
  EXPECT_EQ(findings[0].text.id, "way_cut");
  EXPECT_EQ(findings[0].text.what,
            "n2 to n5 is cut: none of 1200 datagrams arrived, while the other direction works");
  EXPECT_THAT(findings[0].text.fix, SizeIs(2));
  EXPECT_TRUE(Prevents(findings[0].trouble.kind));
}

TEST(LinkCheck, ANodeThatIsCutOff) {
  FakeNetwork network(5, 1);
  network.Receives(4, [](FakeLink& link) { link.cut = true; });
  EXPECT_THAT(Names(network.Troubles()), ElementsAre("cut n4 receives"));
}

TEST(LinkCheck, OneWayLosesPackets) {
  FakeNetwork network(8, 1);
  network.At(6, 1).lost_percent = 5;
  network.At(6, 1).rate = 1e8;
  network.At(1, 6).rate = 1e9;
  EXPECT_THAT(Names(network.Troubles()), ElementsAre("lossy 6>1"));
}

TEST(LinkCheck, FarNodesAndLinks) {
  FakeNetwork network(8, 1);
  network.At(0, 1).round_trip = network.At(1, 0).round_trip = absl::Milliseconds(5);
  EXPECT_THAT(Names(network.Troubles()), ElementsAre("far 0>1"));
  const auto far = [](FakeLink& link) { link.round_trip = absl::Milliseconds(5); };
  network.Sends(7, far);
  network.Receives(7, far);
  EXPECT_THAT(Names(network.Troubles()), ElementsAre("far n7 both", "far 0>1"));
}

TEST(LinkCheck, ConnectionsThatCanNotBeMade) {
  FakeNetwork network(4, 1);
  network.At(0, 2).blocked = true;
  EXPECT_THAT(Names(network.Troubles()), ElementsAre("blocked 0>2"));
}

TEST(LinkCheck, ASlowCpuAndASilentNode) {
  FakeNetwork network(4, 1);
  network.Work(2) = absl::Milliseconds(3);
  network.Silence(1);
  EXPECT_THAT(Names(network.Troubles()), ElementsAre("silent n1 both", "busy n2 both"));
}

TEST(LinkCheck, ACpuThatIsHeldUpInOnePassIsNotSlow) {
  FakeNetwork network(4, 1);
  network.HoldUp(2);
  EXPECT_THAT(Names(network.Troubles()), IsEmpty());
}

TEST(LinkCheck, NodesThatNeverCameAreToldOf) {
  NetworkFacts facts;
  facts.nodes = {{.name = "n1", .address = "10.0.0.1", .told = true},
                 {.name = "node rank 1", .missing = true}};
  facts.links.resize(4);
  const std::vector<LinkFinding> findings = DescribeTroubles(facts);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].text.id, "node_missing");
  EXPECT_EQ(findings[0].text.severity, Severity::kError);
  EXPECT_FALSE(Prevents(findings[0].trouble.kind)) << "those that came are tested further";
  EXPECT_THAT(findings[0].text.what, testing::StartsWith("node rank 1 never came"));
  EXPECT_THAT(NetworkText(facts, findings, absl::Seconds(1)),
              testing::StartsWith("network: 1 of 2 nodes (n1), 1.0 s\n"));
}

TEST(LinkCheck, NobodyIsToLookAtANodeThatNeverCame) {
  NetworkFacts facts;
  facts.nodes = {{.name = "n1", .address = "10.0.0.1", .told = true},
                 {.name = "n2", .address = "10.0.0.2", .told = true},
                 {.name = "n3", .address = "10.0.0.3", .told = true},
                 {.name = "node rank 3", .missing = true}};
  facts.links.resize(16);
  for (uint32_t to : {1U, 2U}) {
    facts.At({.from = 0, .to = to}) = {.sent = 1000, .arrived = 0, .told = true};
    facts.At({.from = to, .to = 0}) = {.sent = 1000, .arrived = 0, .told = true};
  }
  facts.At({.from = 1, .to = 2}) = {.sent = 1000, .arrived = 1000, .told = true};
  facts.At({.from = 2, .to = 1}) = {.sent = 1000, .arrived = 1000, .told = true};
  const std::vector<LinkFinding> findings = DescribeTroubles(facts);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[1].text.id, "node_cut");
  EXPECT_THAT(findings[1].text.fix, testing::Contains(testing::HasSubstr("10.0.0.3")));
}

TEST(LinkCheck, SmallNetworks) {
  FakeNetwork two(2, 1);
  EXPECT_THAT(Names(two.Troubles()), IsEmpty());
  two.At(0, 1).rate = 1e9;
  EXPECT_THAT(Names(two.Troubles()), ElementsAre("slow 0>1"));
  FakeNetwork three(3, 1);
  three.Sends(2, [](FakeLink& link) { link.rate = 1e9; });
  three.Receives(2, [](FakeLink& link) { link.rate = 1e9; });
  EXPECT_THAT(Names(three.Troubles()), ElementsAre("slow n2 both"));
  EXPECT_THAT(Names(FakeNetwork(1, 1).Troubles()), IsEmpty());
}

TEST(LinkCheck, LargeNetworksAreMeasuredInPart) {
  FakeNetwork network(64, 1);
  network.Sends(40, [](FakeLink& link) { link.rate = 1e9; });
  EXPECT_THAT(Names(network.Troubles()), ElementsAre("slow n40 sends"));
}

// What of a node's measurements can't be (the wire has checked ranges) does no harm.
TEST(LinkCheck, OverrunIsNotLoss) {
  LinkCheck check({{.name = "a", .told = true}, {.name = "b", .told = true}});
  check.Next({}, absl::Seconds(1));
  NodeMeasurements late{.peers = {{.peer = 0, .arrived = kFirstDatagrams - 50}}, .overrun = 50};
  NodeMeasurements fine{.peers = {{.peer = 1, .arrived = kFirstDatagrams}}};
  check.Add({fine, late});
  EXPECT_EQ(check.facts().At({0, 1}).Loss(), 0);
  // Negative control.
  LinkCheck lossy({{.name = "a", .told = true}, {.name = "b", .told = true}});
  lossy.Next({}, absl::Seconds(1));
  late.overrun = 0;
  lossy.Add({fine, late});
  EXPECT_EQ(lossy.facts().At({0, 1}).Loss(), 0.25);
}

TEST(LinkCheck, NoPassBeginsAfterTheTime) {
  LinkCheck check({{.name = "a", .told = true}, {.name = "b", .told = true}});
  EXPECT_FALSE(check.Next(absl::Seconds(9), absl::Seconds(1)).over);
  check.Add({NodeMeasurements{}, NodeMeasurements{}});
  EXPECT_TRUE(check.Next(absl::Seconds(9), absl::Seconds(1)).over);
}

// ------------------------------------------------------------- many networks

const auto kSeeds = Inputs<uint64_t>(1500);

// What is done to a network, and what must be found.
std::vector<std::string> Spoil(uint64_t seed, FakeNetwork* network) {
  Rng rng(seed);
  const auto node = static_cast<uint32_t>(rng.Below(8));
  const auto other = static_cast<uint32_t>((node + 1 + rng.Below(7)) % 8);
  const auto slow = [](FakeLink& link) { link.rate = 1e9; };
  switch (seed % 6) {
    case 0:
      return {};
    case 1:
      network->All(slow);
      return {};
    case 2:
      network->Sends(node, slow);
      return {absl::StrCat("slow n", node, " sends")};
    case 3:
      network->At(node, other).lost_percent = 5 + static_cast<uint32_t>(rng.Below(20));
      return {absl::StrCat("lossy ", node, ">", other)};
    case 4:
      network->At(node, other).cut = true;
      return {absl::StrCat("cut ", node, ">", other)};
    default:
      for (const uint32_t each : {node, other}) {
        network->Sends(each, slow);
        network->Receives(each, slow);
      }
      return {absl::StrCat("slow n", std::min(node, other), " both"),
              absl::StrCat("slow n", std::max(node, other), " both")};
  }
}

TEST(LinkCheck, ManyNoisyNetworksAreJudgedRightly) {
  int accused_at_once = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    FakeNetwork network(8, seed);
    network.set_noisy(true);
    const std::vector<std::string> expected = Spoil(seed, &network);
    const LinkCheck check = network.Check();
    EXPECT_EQ(Names(FindLinkTroubles(check.facts())), expected) << "seed " << seed;
    // Negative control: with the first measurement alone somebody is accused in most healthy
    // networks.
    if (seed % 6 != 0) continue;
    NetworkFacts once = check.facts();
    for (LinkFacts& link : once.links) {
      if (!link.rates.empty()) link.rates.assign(3, link.rates.front());
    }
    accused_at_once += FindLinkTroubles(once).empty() ? 0 : 1;
  }
  EXPECT_GT(accused_at_once, static_cast<int>(kSeeds / 6 / 2));
}

}  // namespace
}  // namespace ddprun::launcher
