#ifndef DDPRUN_LAUNCHER_KEEPER_OUTPUT_REST_H_
#define DDPRUN_LAUNCHER_KEEPER_OUTPUT_REST_H_

#include <poll.h>

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/fd.h"

namespace ddprun::launcher {

// Workers' output that their agent hasn't read. If the agent dies, the keeper writes it to its own
// stderr, so that no last lines are lost. Threads: the keeper's only one.
class OutputRest {
 public:
  // Adds duplicates of the ends from which the agent reads the output of this local rank's worker.
  void Add(uint32_t local_rank, std::vector<Fd> ends);
  // Drops all ends except those of these local ranks: their workers have ended, and the agent reads
  // the rest.
  void ClearAllBut(const std::set<uint32_t>& local_ranks);
  // Polls(): the descriptors for poll(2). PourReadable(): writes the output that came, and drops
  // ends that have reached end of file. Requires: the agent is gone.
  std::vector<pollfd> Polls() const;
  void PourReadable(const std::vector<pollfd>& polled);
  // Writes the rest. Waits for a slow console, but gives up after 200 ms without progress.
  // Requires: the agent is gone.
  void Pour() const;

 private:
  std::multimap<uint32_t, Fd> ends_;  // by local rank
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_KEEPER_OUTPUT_REST_H_
