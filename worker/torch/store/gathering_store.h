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

// A store in which a rank says something and hears what all say in one call, which c10d's have no
// word for. Throws as c10d's do.
class GatheringStore {
 public:
  virtual ~GatheringStore() = default;

  // Sets `key`, unless it is empty; waits for all `keys`, and returns their values in that order.
  virtual std::vector<std::string> Gather(const std::string& key, const std::string& value,
                                          const std::vector<std::string>& keys,
                                          absl::Duration timeout) = 0;
};

// `store` as one; null: it can't.
GatheringStore* AsGathering(c10d::Store& store);

// The same with any store: one call where it can, else one for each key and more.
std::vector<std::string> Gather(c10d::Store& store, const std::string& key,
                                const std::string& value, const std::vector<std::string>& keys,
                                absl::Duration timeout);

// What each of `ranks` says under `topic`, by rank; the own rank says `word`.
std::vector<std::string> GatherWords(c10d::Store& store, const std::string& topic, uint32_t rank,
                                     size_t ranks, const std::string& word, absl::Duration timeout);

// A part of a store, which can what that can.
class StorePart : public c10d::PrefixStore, public GatheringStore {
 public:
  using c10d::PrefixStore::PrefixStore;

  const c10::intrusive_ptr<c10d::Store>& whole() const { return store_; }
  std::vector<std::string> Gather(const std::string& key, const std::string& value,
                                  const std::vector<std::string>& keys,
                                  absl::Duration timeout) override;
};

// What Gloo meets over: of each rank it sets one key that ends with the rank's number, and then it
// waits for all others' and gets them, one after the other (gloo/transport/tcp/context.cc). Here
// its set is put off until it asks for the first one; then all come in one call. Threads: one.
class RendezvousStore : public c10d::Store {
 public:
  RendezvousStore(c10::intrusive_ptr<c10d::Store> store, size_t ranks);

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
  // All ranks' keys, if this is one of them; else none.
  std::vector<std::string> KeysBeside(const std::string& key) const;
  void Fetch(const std::string& key, std::chrono::milliseconds timeout);
  void SetNow();

  const c10::intrusive_ptr<c10d::Store> store_;
  const size_t ranks_;
  std::string key_, value_;  // set later; "" = nothing is
  std::map<std::string, std::string> known_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_STORE_GATHERING_STORE_H_
