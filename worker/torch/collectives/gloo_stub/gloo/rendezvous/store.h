#ifndef DDPRUN_WORKER_TORCH_COLLECTIVES_GLOO_STUB_GLOO_RENDEZVOUS_STORE_H_
#define DDPRUN_WORKER_TORCH_COLLECTIVES_GLOO_STUB_GLOO_RENDEZVOUS_STORE_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#define GLOO_STORE_HAS_STORE_V2 1

// LibTorch carries its own Gloo inside libtorch_cpu.so but not its headers. ProcessGroupGloo.hpp
// needs only these declarations; nothing of ours calls into them.
namespace gloo::rendezvous {

class Store {
 public:
  virtual ~Store();
  virtual void set(const std::string& key, const std::vector<char>& value) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout);
  virtual bool has_v2_support();
  virtual std::vector<std::vector<char>> multi_get(const std::vector<std::string>& keys);
  virtual void multi_set(const std::vector<std::string>& keys,
                         const std::vector<std::vector<char>>& values);
  virtual void append(const std::string& key, const std::vector<char>& value);
  virtual int64_t add(const std::string& key, int64_t amount);
};

}  // namespace gloo::rendezvous

#endif  // DDPRUN_WORKER_TORCH_COLLECTIVES_GLOO_STUB_GLOO_RENDEZVOUS_STORE_H_
