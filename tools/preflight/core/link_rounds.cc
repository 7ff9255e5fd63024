#include "tools/preflight/core/link_rounds.h"

#include <algorithm>
#include <set>

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

}  // namespace ddprun::launcher
