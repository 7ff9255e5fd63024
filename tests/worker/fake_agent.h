#ifndef DDPRUN_TESTS_WORKER_FAKE_AGENT_H_
#define DDPRUN_TESTS_WORKER_FAKE_AGENT_H_

#include <cstdint>
#include <memory>
#include <string>

namespace ddprun::testing {

// The agent of a one-node job as its workers see it: proto agent/v1 on a unix socket, over a plain
// map. Rank and local rank are the same. Threads: any.
class FakeAgent {
 public:
  struct Options {
    std::string socket_path;
    uint32_t world_size = 2;
    uint64_t generation = 1;
    std::string run_id = "test";
    bool keeps_values_back = false;  // of each Gather, the last one
  };

  static std::unique_ptr<FakeAgent> Start(const Options& options);
  virtual ~FakeAgent() = default;

  // Ends the generation: all calls, pending and later, get ABORTED with `why`, except those that
  // wait for this end or for the next generation.
  virtual void EndGeneration(const std::string& why) = 0;
  // Begins the next generation, with an empty store. Requires: the one before has ended.
  virtual void BeginGeneration(uint64_t generation, uint32_t world_size) = 0;
  // Returns when `count` workers in all have heard that their generation is over, and wait for the
  // next one.
  virtual void AwaitRejoining(int count) = 0;
  // Returns when `count` calls wait for a key.
  virtual void AwaitWaiters(int count) = 0;
  // From now on calls of workers on a store key that contains `key` wait until their generation is
  // over; "" = none do.
  virtual void HoldStoreAt(const std::string& key) = 0;
  // Returns when so many calls are held.
  virtual void AwaitHeld(int count) = 0;
};

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_FAKE_AGENT_H_
