#ifndef DDPRUN_RENDEZVOUS_ETCD_LEADERSHIP_H_
#define DDPRUN_RENDEZVOUS_ETCD_LEADERSHIP_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "rendezvous/etcd/etcd_client.h"

namespace ddprun::rendezvous {

// Keeps the lease of a leadership alive, and ends the leadership when the lease may be over: the
// granted time after the last answered renewal was *sent*. Threads: the loop's.
class Leadership {
 public:
  // Requires: `client` outlives the Leadership. Params: asked: when the lease was asked for;
  // on_lost: called once; the lease may be over by then.
  Leadership(EventLoop* loop, EtcdClient* client, int64_t lease, Instant asked, absl::Duration ttl,
             std::function<void(absl::Status)> on_lost);
  ~Leadership();
  Leadership(const Leadership&) = delete;
  Leadership& operator=(const Leadership&) = delete;

 private:
  void Renew();
  void OnAnswer(Instant sent, const absl::StatusOr<etcdserverpb::LeaseKeepAliveResponse>& reply);
  void Lose(absl::Status why);

  EventLoop* const loop_;
  EtcdClient* const client_;
  const int64_t lease_;
  absl::Duration ttl_;
  Instant until_;
  const std::function<void(absl::Status)> on_lost_;
  absl::Status last_error_;
  bool lost_ = false;
  Timer renewal_;
  Timer end_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_ETCD_LEADERSHIP_H_
