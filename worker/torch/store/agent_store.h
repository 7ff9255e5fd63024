#ifndef DDPRUN_WORKER_TORCH_STORE_AGENT_STORE_H_
#define DDPRUN_WORKER_TORCH_STORE_AGENT_STORE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "worker/client/agent_client.h"
#include "worker/torch/store/gathering_store.h"

namespace ddprun::worker {

// c10d's store over the worker's own agent, so that no TCPStore and no free port are needed.
//
// c10d wants exceptions: every failed call throws c10::DistStoreError with the status' code and
// text. When the generation ends, waiting calls end at once that way (ABORTED).
// Threads: any, as KeyValueStore.
class AgentStore : public c10d::Store, public GatheringStore {
 public:
  explicit AgentStore(std::shared_ptr<KeyValueStore> store) : store_(std::move(store)) {}

  using c10d::Store::compareSet;
  using c10d::Store::set;

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> get(const std::string& key) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  int64_t add(const std::string& key, int64_t amount) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  std::vector<std::string> Gather(const std::string& key, const std::string& value,
                                  const std::vector<std::string>& keys,
                                  absl::Duration timeout) override;

 private:
  std::shared_ptr<KeyValueStore> store_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_STORE_AGENT_STORE_H_
