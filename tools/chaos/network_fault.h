#ifndef DDPRUN_TOOLS_CHAOS_NETWORK_FAULT_H_
#define DDPRUN_TOOLS_CHAOS_NETWORK_FAULT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "tools/chaos/core/chaos_plan.h"

namespace ddprun::launcher {

// The nftables rules of a network fault, as `nft -f -` takes them: a table of its own that drops
// packets of every interface but the loopback. Source: nft(8).
std::string NetworkRules(const std::string& table, const FaultPlan& fault);

// OK when this process may change the machine's packet filter with nft(8). Changes nothing.
// Errors: FAILED_PRECONDITION with what is missing.
absl::Status CheckNetworkFaults();

// Drops packets of this machine for a time. A separate process removes the rules when the time is
// over, when this object is destroyed, and when ddprun dies for any reason. Threads: the loop's.
//
// tc netem isn't used: an interface has one queue discipline, which may be the machine's own.
class NetworkFault {
 public:
  // Requires: fault.lasts is finite. `on_over`: the rules are gone.
  // Errors: of fork(2) and nft(8), with nft's message.
  static absl::StatusOr<std::unique_ptr<NetworkFault>> Begin(EventLoop* loop,
                                                             const FaultPlan& fault,
                                                             std::function<void()> on_over);
  // Waits until the rules are gone.
  ~NetworkFault();
  NetworkFault(const NetworkFault&) = delete;
  NetworkFault& operator=(const NetworkFault&) = delete;

 private:
  NetworkFault() = default;
  void OnHealed();

  pid_t healer_ = 0;
  Fd life_;   // closing it makes the other process remove the rules at once
  Fd pidfd_;  // of that process
  std::function<void()> on_over_;
  std::unique_ptr<FdWatch> watch_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CHAOS_NETWORK_FAULT_H_
