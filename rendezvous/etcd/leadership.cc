#include "rendezvous/etcd/leadership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

// How long this service may believe that it leads.
//
// etcd restarts the lease's time when it handles a renewal, which is some time after the renewal
// was sent and before its answer arrives. If until_ counted from the answer, this service would
// believe that it leads when etcd may already have ended the lease and elected another node. So
// until_ counts from `sent`. Both sides only measure durations; no clocks are compared.
//
// Example: a lease of 2 s, so a renewal every 500 ms; no member of etcd answers from 200 ms on.
//
//   ms    event                          until_   next renewal
//   0     the lease is asked for         2000     at once
//   100   renewal sent; answer at 140    2100     600, not 640
//   600   sent; fails at 1100            2100     1100
//   1100  sent; fails at 1600            2100     1600
//   1600  sent; no answer                2100
//   2100  end_ fires: the leadership is lost
//
// Safety doesn't depend on until_: etcd refuses this service's records once the leader's key has
// another create revision (docs/decisions/0051), and no decision is sent before it is recorded.

namespace ddprun::rendezvous {
namespace {

// Renewals in the time of one lease. Two may fail in a row, so the client has time to turn to
// another member of etcd when the one that it asked goes down.
constexpr int kRenewals = 4;

}  // namespace

Leadership::Leadership(EventLoop* loop, EtcdClient* client, int64_t lease, Instant asked,
                       absl::Duration ttl, std::function<void(absl::Status)> on_lost)
    : loop_(loop),
      client_(client),
      lease_(lease),
      ttl_(ttl),
      until_(asked + ttl),
      on_lost_(std::move(on_lost)),
      renewal_(loop, [this] { Renew(); }),
      end_(loop, [this] {
        Lose(last_error_.ok() ? absl::UnavailableError(client_->Name() + " does not answer")
                              : last_error_);
      }) {
  end_.Arm(until_);
  renewal_.Arm(loop->Now());
}

Leadership::~Leadership() { *alive_ = false; }

void Leadership::Renew() {
  const Instant sent = loop_->Now();
  client_->KeepAlive(
      lease_, std::min(ttl_ / kRenewals, EtcdClient::kTryTimeout),
      [this, alive = alive_, sent](const absl::StatusOr<etcdserverpb::LeaseKeepAliveResponse>& r) {
        if (*alive) OnAnswer(sent, r);
      });
}

void Leadership::OnAnswer(Instant sent,
                          const absl::StatusOr<etcdserverpb::LeaseKeepAliveResponse>& reply) {
  if (lost_) return;
  if (!reply.ok()) {
    last_error_ = reply.status();
    return renewal_.Arm(sent + ttl_ / kRenewals);
  }
  // etcd answers 0 for a lease that has expired or was revoked.
  if (reply->ttl() <= 0) {
    return Lose(absl::AbortedError("its lease in etcd is over: it was not heard of in time"));
  }
  last_error_ = absl::OkStatus();
  ttl_ = absl::Seconds(reply->ttl());
  until_ = sent + ttl_;
  end_.Arm(until_);
  renewal_.Arm(sent + ttl_ / kRenewals);
}

void Leadership::Lose(absl::Status why) {
  if (std::exchange(lost_, true)) return;
  renewal_.Disarm();
  end_.Disarm();
  on_lost_(std::move(why));
}

}  // namespace ddprun::rendezvous
