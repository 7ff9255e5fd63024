#ifndef DDPRUN_WORKER_TORCH_STORE_GATHERING_STORE_H_
#define DDPRUN_WORKER_TORCH_STORE_GATHERING_STORE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/time/time.h"

namespace ddprun::worker {

// A store that can set a rank's value and return all ranks' values in one call, which c10d's stores
// can't. Throws as c10d's do.
class GatheringStore {
 public:
  virtual ~GatheringStore() = default;

  // Sets `key`, unless it is empty; waits for all `keys`, and returns their values in that order.
  virtual std::vector<std::string> Gather(const std::string& key, const std::string& value,
                                          const std::vector<std::string>& keys,
                                          absl::Duration timeout) = 0;
};

// `store` as a GatheringStore; null if it isn't one.
GatheringStore* AsGathering(c10d::Store& store);

// GatheringStore::Gather for any store: in one call if possible, else in more than one a key.
std::vector<std::string> Gather(c10d::Store& store, const std::string& key,
                                const std::string& value, const std::vector<std::string>& keys,
                                absl::Duration timeout);

// Exchanges values under `topic`: sets `word` for the own rank, and returns those of all `ranks`.
std::vector<std::string> GatherWords(c10d::Store& store, const std::string& topic, uint32_t rank,
                                     size_t ranks, const std::string& word, absl::Duration timeout);

// A part of a store (c10d::PrefixStore) that can gather if the whole store can.
class StorePart : public c10d::PrefixStore, public GatheringStore {
 public:
  using c10d::PrefixStore::PrefixStore;

  const c10::intrusive_ptr<c10d::Store>& whole() const { return store_; }
  std::vector<std::string> Gather(const std::string& key, const std::string& value,
                                  const std::vector<std::string>& keys,
                                  absl::Duration timeout) override;
};

// The store over which Gloo's ranks meet. Gloo sets one key, which ends with the rank's number, and
// then waits for the others' keys and gets them one by one (gloo/transport/tcp/context.cc). This
// store delays the set until Gloo asks for the first key, and then gathers all keys in one call.
//
// Gloo waits for a key only as long as for a connection. A rank may be later than that, because it
// looks up its machine's name before (5 s and more where a name server doesn't answer), or because
// its machine is busy. So the store waits longer: a rank that is lost ends the wait.
// Threads: one.
class RendezvousStore : public c10d::Store {
 public:
  // Params: patience: for the slowest rank's key, whatever Gloo asks for.
  RendezvousStore(c10::intrusive_ptr<c10d::Store> store, size_t ranks, absl::Duration patience);

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

 private:
  // The keys of all ranks if `key` is one of them; else none.
  std::vector<std::string> KeysBeside(const std::string& key) const;
  void Fetch(const std::string& key, std::chrono::milliseconds timeout);
  void SetNow();

  const c10::intrusive_ptr<c10d::Store> store_;
  const size_t ranks_;
  const absl::Duration patience_;
  std::string key_, value_;  // to be set later; "" = nothing
  std::map<std::string, std::string> known_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_STORE_GATHERING_STORE_H_
