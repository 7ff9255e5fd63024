#ifndef DDPRUN_LAUNCHER_KEEPER_OUTPUT_REST_H_
#define DDPRUN_LAUNCHER_KEEPER_OUTPUT_REST_H_

#include <poll.h>

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/fd.h"

namespace ddprun::launcher {

// What workers have written and their agent, which passes it on, has not read: where the agent
// dies, the keeper writes it to its own stderr in its place, so that no last words are lost.
// Threads: the keeper's only one.
class OutputRest {
 public:
  // The agent reads from these, too, what the worker of this local rank writes.
  void Add(uint32_t local_rank, std::vector<Fd> ends);
  // Nobody writes to them any more but workers of these local ranks, and the agent reads them to
  // their end.
  void ClearAllBut(const std::set<uint32_t>& local_ranks);
  // What poll(2) should watch, for PourReadable(): writes what came, and forgets those that have
  // ended. Requires: the agent is gone.
  std::vector<pollfd> Polls() const;
  void PourReadable(const std::vector<pollfd>& polled);
  // Writes what is left in them. Waits for a slow console, but no longer than 200 ms for nothing.
  // Requires: the agent is gone.
  void Pour() const;

 private:
  std::multimap<uint32_t, Fd> ends_;  // by local rank
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_KEEPER_OUTPUT_REST_H_
