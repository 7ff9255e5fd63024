#include "rendezvous/etcd/leadership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun::rendezvous {
namespace {

// Renewals in the time of one lease: some may be lost with a member of etcd.
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
