#ifndef DDPRUN_RENDEZVOUS_SERVER_ETCD_SEAT_H_
#define DDPRUN_RENDEZVOUS_SERVER_ETCD_SEAT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "rendezvous/core/agent_message.h"
#include "rendezvous/etcd/core/etcd_settings.h"
#include "rendezvous/etcd/etcd_client.h"
#include "rendezvous/etcd/etcd_journal.h"
#include "rendezvous/etcd/leadership.h"

namespace ddprun::rendezvous {

// What the agent of an elected node passes to its service.
struct EtcdSeatConfig {
  EtcdSettings settings;
  std::string run_id;
  std::string node_id;
  std::string node_address;  // at which agents reach this node
  int64_t lease = 0;
  int64_t revision = 0;  // of the leadership
  int64_t asked_ns = 0;  // CLOCK_MONOTONIC, when the lease was asked for
  int64_t ttl_s = 0;
  std::string vanished;  // as JobRecord.vanished
};

// The service's side of its leadership: the record in etcd, the lease, and the published address.
// Blocking methods run the loop. Threads: the loop's.
class EtcdSeat {
 public:
  // Reads the job's record. Params: on_lost: the leadership is over, or may be: the service must
  // end. Errors: as EtcdClient::Create and EtcdJournal::Load; ABORTED: the leadership is over
  // already.
  static absl::StatusOr<std::unique_ptr<EtcdSeat>> Take(EventLoop* loop, EtcdSeatConfig config,
                                                        std::function<void(absl::Status)> on_lost);

  const std::shared_ptr<EtcdJournal>& journal() const { return journal_; }
  const std::vector<KeptJob>& kept() const { return kept_; }
  // Publishes this service's address to all agents. Errors: as Take.
  absl::Status Publish(int port);
  // Gives the leadership up when all calls to etcd are answered; waits 2 s at most. Params:
  // node_lives: as in Resignation(); ended: the text about the ended job that late nodes get for 10
  // min; "" = another node takes the job over.
  void Leave(bool node_lives, const std::string& ended);

 private:
  EtcdSeat(EventLoop* loop, EtcdSeatConfig config) : loop_(loop), config_(std::move(config)) {}
  absl::Status Await(const std::function<void(std::function<void(absl::Status)>)>& begin);
  void Lose(absl::Status why);
  void Resign(etcdserverpb::TxnRequest resignation, std::function<void(absl::Status)> done);

  EventLoop* const loop_;
  const EtcdSeatConfig config_;
  JobKeys keys_;
  std::unique_ptr<EtcdClient> client_;
  std::shared_ptr<EtcdJournal> journal_;
  std::unique_ptr<Leadership> leadership_;
  std::vector<KeptJob> kept_;
  absl::Status lost_;
  std::function<void(absl::Status)> awaited_;  // null: no call waits
  std::function<void(absl::Status)> on_lost_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_ETCD_SEAT_H_
