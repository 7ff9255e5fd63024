#ifndef DDPRUN_RENDEZVOUS_ETCD_LEADER_FINDER_H_
#define DDPRUN_RENDEZVOUS_ETCD_LEADER_FINDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/instant.h"
#include "rendezvous/client/service_address.h"
#include "rendezvous/etcd/core/etcd_settings.h"
#include "rendezvous/etcd/etcd_client.h"
#include "rendezvous/etcd/leadership.h"

namespace ddprun::rendezvous {

// The agent's side of the election: finds the job's service by its key in etcd, and stands for
// election if there is no leader. Threads: the loop's.
class LeaderFinder final : public ServiceLocator {
 public:
  // The leadership that this node has won.
  struct Election {
    int64_t lease = 0;
    int64_t revision = 0;  // of the leadership
    Instant asked;         // when the lease was asked for
    absl::Duration ttl;    // granted by etcd
    std::string vanished;  // the former leader, if it ended without resigning; "" = none
    std::string ended;     // why a job of this name had ended before this node began; "" = none
    std::vector<std::string> endpoints;  // of etcd; the first one answers
  };

  struct Callbacks {
    // This node is elected: it serves the job, or calls Resign().
    std::function<void(Election)> on_elected;
    // The lease of this node's service is over: the service must end at once.
    std::function<void()> on_superseded;
  };

  // Errors: as EtcdClient::Create.
  static absl::StatusOr<std::unique_ptr<LeaderFinder>> Create(
      EventLoop* loop, EtcdSettings settings, const std::string& run_id, std::string node_id,
      absl::Duration ttl, Callbacks callbacks);
  ~LeaderFinder() override;

  // Further answer: ABORTED: the job has ended, and this node began before that.
  void Locate(bool again, std::function<void(absl::StatusOr<std::string>)> found,
              std::function<void()> moved) override;
  // The elected service is gone. Another node can be elected now, this node after a pause at the
  // earliest.
  void Resign();
  // Resigns if this node leads, and never stands again. `done`: etcd knows of it, or doesn't
  // answer.
  void Leave(std::function<void()> done);

  std::string Name() const { return client_->Name(); }

 private:
  LeaderFinder(EventLoop* loop, std::unique_ptr<EtcdClient> client, JobKeys keys,
               std::string node_id, absl::Duration ttl, Callbacks callbacks);
  template <typename Reply, typename Handler>
  EtcdClient::Done<Reply> Step(Handler handler);
  void Look();
  void OnLooked(const absl::StatusOr<etcdserverpb::RangeResponse>& reply);
  void OnLeader(const Leader& leader);
  void AwaitChange(int64_t revision, absl::Duration patience);
  void Stand();
  void OnGranted(const absl::StatusOr<etcdserverpb::LeaseGrantResponse>& reply);
  void OnClaimed(const absl::StatusOr<etcdserverpb::TxnResponse>& reply);
  void Answer(absl::StatusOr<std::string> target);
  void Watch(const Leader& leader);
  void OnWatched(const absl::StatusOr<etcdserverpb::RangeResponse>& reply);
  void Supersede();

  EventLoop* const loop_;
  const std::unique_ptr<EtcdClient> client_;
  const JobKeys keys_;
  const std::string node_id_;
  const absl::Duration ttl_;
  const Callbacks callbacks_;

  uint64_t round_ = 0;  // answers of etcd to earlier rounds are ignored
  std::function<void(absl::StatusOr<std::string>)> found_;  // null: no call is waiting
  std::function<void()> moved_;                             // null: no target was given
  Instant asked_;                                           // time of the last Locate
  bool again_ = false;
  std::string told_;           // the last target
  int64_t watched_ = 0;        // the revision after which a change is awaited
  int64_t told_revision_ = 0;  // of the leadership of told_; never goes back
  int64_t began_ = 0;          // etcd's revision when it first answered; 0 = no answer so far
  std::optional<Election> standing_;  // a lease that was asked for; revision 0 = not elected
  bool leads_ = false;
  bool may_stand_ = true;
  Instant stands_from_;  // not before
  absl::Duration pause_;
  Timer timer_;  // Stand() or Look(), later
  std::function<void()> on_due_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_ETCD_LEADER_FINDER_H_
