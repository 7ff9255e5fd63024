#include "worker/torch/checkpoint/replica_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

namespace ddprun::worker {
namespace {

bool Contains(const std::vector<uint32_t>& list, uint32_t wanted) {
  return std::find(list.begin(), list.end(), wanted) != list.end();
}

}  // namespace

std::vector<std::vector<uint32_t>> ChooseHolders(const std::vector<uint32_t>& hosts,
                                                 uint32_t copies) {
  const size_t ranks = hosts.size();
  std::vector<uint32_t> row(ranks);  // hosts one after the other
  std::iota(row.begin(), row.end(), 0);
  std::stable_sort(row.begin(), row.end(),
                   [&](uint32_t one, uint32_t other) { return hosts[one] < hosts[other]; });
  std::vector<std::vector<uint32_t>> used(ranks);  // hosts that have a share, by its rank
  for (size_t rank = 0; rank < ranks; ++rank) used[rank] = {hosts[rank]};
  std::vector<std::vector<uint32_t>> holders(ranks);
  std::vector<bool> taken(ranks, false);  // distances in the row
  for (uint32_t copy = 0; copy < copies && copy + 1 < ranks; ++copy) {
    // A distance is the same for all, so that each rank keeps one copy more.
    const auto in_vain = [&](size_t distance) {
      size_t count = 0;
      for (size_t i = 0; i < ranks; ++i) {
        count += Contains(used[row[i]], hosts[row[(i + distance) % ranks]]) ? 1 : 0;
      }
      return count;
    };
    size_t best = 0;
    size_t least = ranks + 1;
    for (size_t distance = 1; distance < ranks; ++distance) {
      const size_t count = taken[distance] ? ranks + 1 : in_vain(distance);
      if (count >= least) continue;
      best = distance;
      least = count;
    }
    taken[best] = true;
    for (size_t i = 0; i < ranks; ++i) {
      const uint32_t holder = row[(i + best) % ranks];
      holders[row[i]].push_back(holder);
      used[row[i]].push_back(hosts[holder]);
    }
  }
  return holders;
}

std::optional<RecoveryPoint> ChooseRecoveryPoint(
    const std::vector<std::vector<RecordKey>>& records) {
  struct Copy {
    uint32_t rank;
    int64_t bytes;
  };
  // By step, then by generation; and by shard who has it.
  std::map<std::tuple<int64_t, uint64_t, uint32_t>, std::map<uint32_t, Copy>> states;
  for (uint32_t rank = 0; rank < records.size(); ++rank) {
    for (const RecordKey& key : records[rank]) {
      if (key.shard >= key.world_size) continue;
      auto& sources = states[{key.step, key.generation, key.world_size}];
      const Copy copy = {.rank = rank, .bytes = key.bytes};
      const bool is_new = sources.emplace(key.shard, copy).second;
      if (!is_new && rank == key.shard) sources.at(key.shard) = copy;
    }
  }
  for (auto state = states.rbegin(); state != states.rend(); ++state) {
    const auto& [step, generation, world_size] = state->first;
    if (state->second.size() != world_size) continue;
    RecoveryPoint point;
    point.state = {.generation = generation, .world_size = world_size, .step = step};
    for (const auto& [shard, copy] : state->second) {
      point.sources.push_back(copy.rank);
      point.bytes.push_back(copy.bytes);
    }
    return point;
  }
  return std::nullopt;
}

}  // namespace ddprun::worker
