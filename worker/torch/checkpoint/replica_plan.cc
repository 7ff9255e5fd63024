#include "worker/torch/checkpoint/replica_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

// ---- Which ranks keep copies
//
// Goal: each rank sends its share to `copies` other ranks, on hosts as different as possible, and
// no rank keeps more copies than another. To choose any rank of another host would overload the
// small hosts: with hosts {0 0 0 1}, rank 3 would keep the copies of the other three.
//
// So ranks stand in a row, host after host, and a copy is a *distance*: every rank sends to the one
// that far ahead, around the end. A distance is a permutation, hence one copy a rank. For each copy
// the distance is taken that wastes fewest, i.e. puts fewest on a host that has that share already.
//
// Example: hosts {0 0 1 1 2 2}, two copies. Wasted copies by distance:
//
//   distance      1  2  3  4  5
//   first copy    3  0  0  0  3     takes 2:  0->2 1->3 2->4 3->5 4->0 5->1
//   second copy   6  -  3  0  3     takes 4:  0->4 1->5 2->0 3->1 4->2 5->3
//
// Rank 0's share is then on hosts 0, 1 and 2. With uneven hosts some copies are wasted: {0 0 0 1}
// loses two of four with every distance, which is the price of even loads.
//
// ---- Which state can be put together
//
// A state is whole if some rank has each of its shards. Shards of different generations don't mix,
// though they may have the same step: ranks that do a step again, in another group, may get other
// last bits. Of the whole states the one with the highest step wins, and of two with the same step
// the later generation's, because the training has gone on from that one.
//
// Example: two ranks, each with a copy of the other's share. Rank 1 is killed after step 5, before
// its copy for that step has arrived, and a new worker takes its place.
//
//   rank 0 has   (5, shard 0) (4, shard 0) (4, shard 1)
//   rank 1 has   nothing
//
// Step 5 has one shard of two, step 4 has both, on rank 0: training goes on after step 4.

namespace ddprun::worker {
namespace {

bool Contains(const std::vector<uint32_t>& list, uint32_t wanted) {
  return std::find(list.begin(), list.end(), wanted) != list.end();
}

}  // namespace

std::vector<std::vector<uint32_t>> ChooseHolders(const std::vector<uint32_t>& hosts,
                                                 uint32_t copies) {
  const size_t ranks = hosts.size();
  std::vector<uint32_t> row(ranks);  // the ranks, host after host
  std::iota(row.begin(), row.end(), 0);
  std::stable_sort(row.begin(), row.end(),
                   [&](uint32_t one, uint32_t other) { return hosts[one] < hosts[other]; });
  std::vector<std::vector<uint32_t>> used(ranks);  // hosts that have a share, by its rank
  for (size_t rank = 0; rank < ranks; ++rank) used[rank] = {hosts[rank]};
  std::vector<std::vector<uint32_t>> holders(ranks);
  std::vector<bool> taken(ranks, false);  // distances in the row
  for (uint32_t copy = 0; copy < copies && copy + 1 < ranks; ++copy) {
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
  // By step, generation and number of ranks: by shard, the rank that sends it. A rank that has its
  // own shard keeps it, so that no bytes travel; else the lowest rank that has a copy sends.
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
