#ifndef DDPRUN_RENDEZVOUS_ETCD_ETCD_CLIENT_H_
#define DDPRUN_RENDEZVOUS_ETCD_ETCD_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/loop_inbox.h"
#include "ddprun/etcd/rpc.pb.h"
#include "rendezvous/etcd/core/etcd_settings.h"

namespace grpc {
class Channel;
class ClientContext;
}  // namespace grpc

namespace ddprun::rendezvous {

// Calls to a cluster of etcd. Each is tried at one member after the other until one answers or its
// patience is over; a member that fell silent costs a call `kTryTimeout`. So what is called may
// have happened more than once, or after an error: callers guard it by revisions.
//
// `done` is called once, on the loop, not before the call returns, and never after the client's
// end. Errors: UNAVAILABLE — no member answered in time; the text says what the last one said. Else
// etcd's own, with the member's name. Threads: the loop's.
class EtcdClient {
 public:
  template <typename Reply>
  using Done = std::function<void(absl::StatusOr<Reply>)>;

  static constexpr absl::Duration kTryTimeout = absl::Milliseconds(700);

  // Errors: of reading the files of TLS, with their names.
  static absl::StatusOr<std::unique_ptr<EtcdClient>> Create(EventLoop* loop, EtcdSettings settings);
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  // Of one key; as new as the call (linearizable).
  void Range(const std::string& key, absl::Duration patience,
             Done<etcdserverpb::RangeResponse> done);
  void Range(etcdserverpb::RangeRequest request, absl::Duration patience,
             Done<etcdserverpb::RangeResponse> done);
  void Txn(etcdserverpb::TxnRequest request, absl::Duration patience,
           Done<etcdserverpb::TxnResponse> done);
  void Grant(int64_t lease, absl::Duration ttl, absl::Duration patience,
             Done<etcdserverpb::LeaseGrantResponse> done);
  void Revoke(int64_t lease, absl::Duration patience, Done<etcdserverpb::LeaseRevokeResponse> done);
  void KeepAlive(int64_t lease, absl::Duration patience,
                 Done<etcdserverpb::LeaseKeepAliveResponse> done);
  // Waits for a change of the key after that revision, at most as long as `patience`, which is no
  // error. Two members are asked: of one that went with its machine nobody hears that it is silent.
  void AwaitChange(const std::string& key, int64_t revision, absl::Duration patience,
                   const std::function<void(absl::Status)>& done);

  // All members, and first the one that is asked next: it answered last.
  std::vector<std::string> Endpoints() const;
  // For people: "etcd at a:2379, b:2379".
  std::string Name() const;

 private:
  class Operation;
  template <typename Request, typename Reply>
  class Unary;
  template <typename Request, typename Reply>
  class Stream;
  struct Member {
    std::string endpoint;
    std::shared_ptr<grpc::Channel> channel;
    absl::Status trouble;  // what the last try came to that said why; OK = it answered
  };

  EtcdClient(EventLoop* loop, EtcdSettings settings);
  absl::Status Connect();
  uint64_t Begin(std::unique_ptr<Operation> operation);
  void Abandon(uint64_t id);
  void Try(uint64_t id);
  void OnTried(uint64_t id, size_t member, const absl::Status& status);
  void End(uint64_t id, const absl::Status& status);
  void Authenticate(uint64_t waiting);
  void OnAuthenticated(uint64_t waiting, const absl::StatusOr<etcdserverpb::AuthenticateResponse>&);
  absl::Status Explain(const absl::Status& status, size_t member) const;

  EventLoop* const loop_;
  const EtcdSettings settings_;
  const std::shared_ptr<LoopInbox> inbox_;
  std::vector<Member> members_;
  size_t current_ = 0;  // the member that is tried first; where a change was told last
  std::string token_;   // of etcd's authentication; "" = none yet
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::unique_ptr<Operation>> operations_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_ETCD_ETCD_CLIENT_H_
