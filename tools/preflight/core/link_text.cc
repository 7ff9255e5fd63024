#include "tools/preflight/core/link_text.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

constexpr std::array<const char*, kTroubleKinds> kLinkIds = {
    "way_missing", "way_silent", "way_cut", "tcp_blocked",
    "way_lossy",   "way_slow",   "way_far", "way_busy"};
constexpr std::array<const char*, kTroubleKinds> kNodeIds = {
    "node_missing", "node_silent", "node_cut", "tcp_blocked_node",
    "node_lossy",   "node_slow",   "node_far", "node_busy"};

// The effect on a run, by kind.
constexpr std::array<const char*, kTroubleKinds> kWhys = {
    "a run waits for it until its join timeout, then fails",
    "a run waits for it until its timeout, then fails",
    "ranks there never meet: a run hangs in its first collective, until its timeout",
    "process groups connect over TCP at ports that the kernel chooses: a run fails or hangs as it "
    "begins",
    "TCP sends again what is lost, 200 ms later: a step takes many times as long",
    "each all-reduce goes at the speed of the slowest way: every rank waits for this one",
    "each collective waits for the longest round trip: small ones are slow",
    "all ranks wait for the slowest in each step"};

std::string LinkName(const NetworkFacts& facts, Link link) {
  return absl::StrCat(facts.nodes[link.from].name, " to ", facts.nodes[link.to].name);
}

std::string Percent(double share) { return absl::StrFormat("%.1f %%", share * 100); }

// "what n3 sends", of a node's side.
std::string SideName(const std::string& name, Side side) {
  switch (side) {
    case Side::kSends:
      return absl::StrCat("what ", name, " sends");
    case Side::kReceives:
      return absl::StrCat("what is sent to ", name);
    case Side::kBoth:
      return absl::StrCat("what ", name, " sends, and what is sent to it,");
  }
  return name;
}

std::string SilentText(const NetworkFacts& facts, uint32_t node) {
  const std::string& name = facts.nodes[node].name;
  const std::string& first = facts.nodes[0].name;
  if (facts.nodes[node].heard) {
    return absl::StrCat("nothing gets from ", first, " to ", name, ", while ", name, " reaches ",
                        first);
  }
  return absl::StrCat(name, " gave no answer: it is gone or very busy, or the way from it to ",
                      first, " is cut");
}

std::string NodeText(const NetworkFacts& facts, const Trouble& trouble) {
  const std::string& name = facts.nodes[*trouble.node].name;
  const std::string side = SideName(name, trouble.side);
  switch (trouble.kind) {
    case TroubleKind::kMissing:
      return absl::StrCat(name, " never came: it wasn't started, or the way between it and the ",
                          "rendezvous endpoint is cut, in one direction or in both");
    case TroubleKind::kSilent:
      return SilentText(facts, *trouble.node);
    case TroubleKind::kCut:
      return absl::StrCat("nothing of ", side, " arrives (", trouble.links, " ways)");
    case TroubleKind::kBlocked:
      return absl::StrCat("TCP connections ",
                          trouble.side == Side::kSends      ? "from "
                          : trouble.side == Side::kReceives ? "to "
                                                            : "from and to ",
                          name, " can't be made, though datagrams arrive");
    case TroubleKind::kLossy:
      return absl::StrCat("of ", side, " packets are lost, up to ", Percent(trouble.value), " on ",
                          trouble.links, " ways (others: ", Percent(trouble.usual), ")");
    case TroubleKind::kSlow:
      return absl::StrCat(side, " is slow: ", RateText(trouble.value),
                          " at worst, where others have ", RateText(trouble.usual), " (",
                          trouble.links, " ways)");
    case TroubleKind::kFar:
      return absl::StrCat(name, " is far: a round trip takes up to ", TimeText(trouble.value),
                          ", between others ", TimeText(trouble.usual));
    case TroubleKind::kBusy:
      return absl::StrCat("the CPUs of ", name, " are slow: ", TimeText(trouble.value),
                          " for what takes others ", TimeText(trouble.usual));
  }
  return name;
}

std::string LinkText(const NetworkFacts& facts, const Trouble& trouble) {
  std::string name = LinkName(facts, trouble.link);
  const Link back{.from = trouble.link.to, .to = trouble.link.from};
  const LinkFacts& seen = facts.At(trouble.link);
  switch (trouble.kind) {
    case TroubleKind::kMissing:
    case TroubleKind::kSilent:
    case TroubleKind::kBusy:
      return name;
    case TroubleKind::kCut:
      return absl::StrCat(name, " is cut: none of ", seen.sent, " datagrams arrived",
                          facts.At(back).arrived > 0 ? ", while the other direction works" : "");
    case TroubleKind::kBlocked:
      return absl::StrCat("TCP connections from ", name, " can't be made, though datagrams arrive");
    case TroubleKind::kLossy:
      return absl::StrCat(name, " loses packets: ", Percent(trouble.value), " of ", seen.sent,
                          " (others: ", Percent(trouble.usual), ")");
    case TroubleKind::kSlow:
      return absl::StrCat(name, " is slow: ", RateText(trouble.value), ", where others have ",
                          RateText(trouble.usual));
    case TroubleKind::kFar:
      return absl::StrCat("between ", facts.nodes[trouble.link.from].name, " and ",
                          facts.nodes[trouble.link.to].name, " a round trip takes ",
                          TimeText(trouble.value), ", between others ", TimeText(trouble.usual));
  }
  return name;
}

// The node from which to check another one: node 0; for node 0 the last node that isn't missing.
uint32_t Onlooker(const NetworkFacts& facts, uint32_t node) {
  if (node != 0) return 0;
  auto last = static_cast<uint32_t>(facts.nodes.size() - 1);
  while (last > 0 && facts.nodes[last].missing) --last;
  return last;
}

// Commands to look further with: on which node, and what.
std::vector<std::string> NextSteps(const NetworkFacts& facts, const Trouble& trouble) {
  const bool is_node = trouble.node.has_value();
  const NodeFacts& here = facts.nodes[is_node ? *trouble.node : trouble.link.from];
  const NodeFacts& there = facts.nodes[is_node ? Onlooker(facts, *trouble.node) : trouble.link.to];
  const std::string to = there.address.empty() ? there.name : there.address;
  const std::string on_here = absl::StrCat("  # on ", here.name);
  switch (trouble.kind) {
    case TroubleKind::kMissing:
      return {absl::StrCat("ping -c 3 ", to, on_here,
                           ", and look at what its ddprun says of the endpoint")};
    case TroubleKind::kSilent:
      return {absl::StrCat("ping -c 3 ", to, on_here)};
    case TroubleKind::kCut:
      return {absl::StrCat("ip route get ", to, on_here),
              absl::StrCat("sudo nft list ruleset  # on ", here.name, " and ", there.name,
                           ": is one of them dropping it?")};
    case TroubleKind::kBlocked:
      return {absl::StrCat("sudo nft list ruleset  # on ", there.name,
                           ": all ports must be open between the nodes")};
    case TroubleKind::kLossy:
      return {absl::StrCat("ip -s link", on_here, ": errors, dropped, overrun"),
              absl::StrCat("sudo ethtool -S INTERFACE | grep -iE 'err|drop|crc'", on_here)};
    case TroubleKind::kSlow:
      return {absl::StrCat("cat /sys/class/net/INTERFACE/speed", on_here,
                           ": as fast as on the others?"),
              absl::StrCat("tc qdisc show; ip -s link", on_here)};
    case TroubleKind::kFar:
      return {absl::StrCat("ip route get ", to, on_here, ": through which interface?")};
    case TroubleKind::kBusy:
      return {absl::StrCat("top -b -n 1 | head -20", on_here, ": which other processes compute?"),
              absl::StrCat("ddprun doctor", on_here)};
  }
  return {};
}

void AppendRange(const char* title, const std::string& median, const std::string& worst,
                 std::string* text) {
  absl::StrAppendFormat(text, "  %-12s median %s, worst %s\n", title, median, worst);
}

std::string NamesText(const NetworkFacts& facts) {
  constexpr size_t kNamesShown = 8;
  std::vector<std::string> names;
  for (const NodeFacts& node : facts.nodes) {
    if (!node.missing) names.push_back(node.name);
  }
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamesShown); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", names[i]);
  }
  if (names.size() > kNamesShown) absl::StrAppend(&text, ", and ", names.size() - kNamesShown);
  return text;
}

}  // namespace

std::string RateText(double bits_per_second) {
  if (bits_per_second >= 1e9) return absl::StrFormat("%.1f Gbit/s", bits_per_second / 1e9);
  if (bits_per_second >= 1e6) return absl::StrFormat("%.1f Mbit/s", bits_per_second / 1e6);
  return absl::StrFormat("%.1f kbit/s", bits_per_second / 1e3);
}

std::string TimeText(double seconds) {
  if (seconds >= 1) return absl::StrFormat("%.2f s", seconds);
  if (seconds >= 1e-3) return absl::StrFormat("%.2f ms", seconds * 1e3);
  return absl::StrFormat("%.0f us", seconds * 1e6);
}

std::vector<LinkFinding> DescribeTroubles(const NetworkFacts& facts) {
  std::vector<LinkFinding> findings;
  for (const Trouble& trouble : FindLinkTroubles(facts)) {
    const auto kind = static_cast<size_t>(trouble.kind);
    Finding text;
    const bool is_error = Prevents(trouble.kind) || trouble.kind == TroubleKind::kMissing;
    text.severity = is_error ? Severity::kError : Severity::kWarning;
    text.id = trouble.node.has_value() ? kNodeIds[kind] : kLinkIds[kind];
    text.what = trouble.node.has_value() ? NodeText(facts, trouble) : LinkText(facts, trouble);
    text.why = kWhys[kind];
    text.fix = NextSteps(facts, trouble);
    findings.push_back({.text = std::move(text), .trouble = trouble});
  }
  return findings;
}

NetworkSummary Summarize(const NetworkFacts& facts) {
  NetworkSummary summary;
  std::vector<double> trips;
  std::vector<double> rates;
  const auto count = static_cast<uint32_t>(facts.nodes.size());
  for (uint32_t i = 0; i < count * count; ++i) {
    const Link link{.from = i / count, .to = i % count};
    const LinkFacts& seen = facts.links[i];
    summary.sent += seen.sent;
    summary.arrived += seen.arrived;
    if (seen.round_trip.has_value()) {
      trips.push_back(absl::ToDoubleSeconds(*seen.round_trip));
      if (trips.back() > summary.round_trip_worst.value_or(-1)) {
        summary.round_trip_worst = trips.back();
        summary.round_trip_worst_link = link;
      }
    }
    if (const std::optional<double> rate = seen.BestRate(); rate.has_value()) {
      rates.push_back(*rate);
      if (!summary.rate_worst.has_value() || *rate < *summary.rate_worst) {
        summary.rate_worst = *rate;
        summary.rate_worst_link = link;
      }
    }
  }
  const auto median = [](std::vector<double>& values) -> std::optional<double> {
    if (values.empty()) return std::nullopt;
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  summary.round_trip_median = median(trips);
  summary.rate_median = median(rates);
  return summary;
}

std::string NetworkText(const NetworkFacts& facts, const std::vector<LinkFinding>& findings,
                        absl::Duration took) {
  const auto missing = static_cast<size_t>(std::count_if(
      facts.nodes.begin(), facts.nodes.end(), [](const NodeFacts& node) { return node.missing; }));
  const std::string there = missing == 0 ? "" : absl::StrCat(facts.nodes.size() - missing, " of ");
  std::string text = absl::StrCat("network: ", there, CountText(facts.nodes.size(), "node"), " (",
                                  NamesText(facts), "), ",
                                  absl::StrFormat("%.1f s", absl::ToDoubleSeconds(took)), "\n");
  const NetworkSummary summary = Summarize(facts);
  if (summary.round_trip_worst.has_value()) {
    AppendRange("round trip", TimeText(*summary.round_trip_median),
                absl::StrCat(TimeText(*summary.round_trip_worst), " (",
                             LinkName(facts, summary.round_trip_worst_link), ")"),
                &text);
  }
  if (summary.rate_worst.has_value()) {
    AppendRange("throughput", RateText(*summary.rate_median),
                absl::StrCat(RateText(*summary.rate_worst), " (",
                             LinkName(facts, summary.rate_worst_link), ")"),
                &text);
  }
  if (summary.sent > 0) {
    absl::StrAppendFormat(&text, "  %-12s %d of %d datagrams\n", "lost",
                          summary.sent - summary.arrived, summary.sent);
  }
  constexpr size_t kFindingsShown = 20;
  for (size_t i = 0; i < std::min(findings.size(), kFindingsShown); ++i) {
    const LinkFinding& finding = findings[i];
    absl::StrAppend(&text, "\n", SeverityName(finding.text.severity), ": ", finding.text.what,
                    "\n  ", finding.text.why, "\n");
    for (const std::string& step : finding.text.fix) absl::StrAppend(&text, "    ", step, "\n");
  }
  if (findings.size() > kFindingsShown) {
    absl::StrAppend(&text, "\nand ", findings.size() - kFindingsShown, " more; see --json\n");
  }
  if (findings.empty() && facts.nodes.size() > 1) {
    absl::StrAppend(&text, "  no node and no way is worse than the others\n");
  }
  return text;
}

}  // namespace ddprun::launcher
