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
#include "ddprun/etcd/rpc.pb.h"
#include "rendezvous/etcd/core/etcd_settings.h"

namespace grpc {
class Channel;
class ClientContext;
}  // namespace grpc

namespace ddprun::rendezvous {

// Calls to a cluster of etcd. Each call tries one member after the other until one answers or
// `patience` is over; a member that fell silent costs `kTryTimeout`. So a change may happen more
// than once, or in spite of an error: callers guard it by revisions.
//
// `done` is called once, on the loop, never before the call returns, and never after the client's
// end. Errors: UNAVAILABLE: no member answered in time; the text has the last error. Else etcd's
// own, with the member's name. Threads: the loop's.
class EtcdClient {
 public:
  template <typename Reply>
  using Done = std::function<void(absl::StatusOr<Reply>)>;

  static constexpr absl::Duration kTryTimeout = absl::Milliseconds(700);

  // Errors: those of reading the files of TLS, with their names.
  static absl::StatusOr<std::unique_ptr<EtcdClient>> Create(EventLoop* loop, EtcdSettings settings);
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  // Reads one key; the value is as new as the call (linearizable).
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
  // Waits for a change of the key after that revision, at most for `patience`; its end is no error.
  // Two members are asked, because the silence of a member that went with its machine isn't
  // noticed.
  void AwaitChange(const std::string& key, int64_t revision, absl::Duration patience,
                   const std::function<void(absl::Status)>& done);

  // All members; the first one is the one that answered last, and is asked next.
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
    absl::Status trouble;  // the last error that had a reason; OK = it answered
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
  size_t current_ = 0;  // the member that is tried first: the last one that reported a change
  std::string token_;   // of etcd's authentication; "" = none so far
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::unique_ptr<Operation>> operations_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_ETCD_ETCD_CLIENT_H_
