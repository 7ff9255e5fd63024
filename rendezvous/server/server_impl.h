#ifndef DDPRUN_RENDEZVOUS_SERVER_SERVER_IMPL_H_
#define DDPRUN_RENDEZVOUS_SERVER_SERVER_IMPL_H_

#include <grpcpp/server.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/journal/journal.h"
#include "rendezvous/server/attend_stream.h"
#include "rendezvous/server/front_door.h"
#include "rendezvous/server/job_shell.h"
#include "rendezvous/server/refusals.h"
#include "rendezvous/server/rendezvous_server.h"
#include "rendezvous/server/service.h"

namespace ddprun::rendezvous {

// All streams and jobs, and which stream belongs to which job. Threads: the loop's.
class ServerImpl final : public RendezvousServer, public Service::Owner, public JobShell::Host {
 public:
  ServerImpl(EventLoop* loop, EventLog* events, ServerOptions options);
  ~ServerImpl() override;

  absl::Status Listen();

  int port() const override { return port_; }
  Term term() const override { return term_; }
  const std::map<std::string, uint64_t>& refusals() const override { return refusals_.counts(); }
  void NotifyWhenIdle(std::function<void()> on_idle) override;
  std::shared_ptr<grpc::Channel> InProcessChannel() override;
  void Shutdown() override;

 private:
  // The last report of a node's workers, and the node and generation that it came from. The core
  // doesn't have it, because no rule uses it.
  struct Report {
    NodeId node_id;
    Generation generation;
    TrainingReport training;
  };
  struct StreamEntry {
    std::shared_ptr<AttendStream> stream;
    JobShell* job = nullptr;  // since its Join
    bool told_job = false;    // the job was notified that the stream is closed
    // For an agent's stream: the streams for heartbeats beside it. For one of those: the agent's.
    uint64_t heartbeat_key = 0;
    std::vector<StreamKey> heartbeats;
    std::optional<StreamKey> heartbeat_of;
    Report report;
  };

  // AttendStream::Owner
  void OnStreamOpen(const std::shared_ptr<AttendStream>& stream) override;
  void OnStreamMessage(AttendStream* stream, absl::StatusOr<AgentMessage> message) override;
  void OnStreamReport(AttendStream* stream, const AgentMessage& renewal,
                      const TrainingReport& training) override;
  void OnStreamSilent(AttendStream* stream) override;
  void OnStreamEnded(AttendStream* stream) override;
  void OnStreamDone(AttendStream* stream) override;
  // Service::Owner
  bool MayRead(const std::string& token, const std::string& peer) const override;
  bool IsTrusted(const std::string& token, const std::string& peer) const override;
  absl::StatusOr<StatusBoard::Snapshot> OnGetStatus(const v1::GetStatusRequest& request,
                                                    const std::string& peer) override;
  absl::Status OnStopJob(const v1::StopJobRequest& request, const std::string& peer) override;
  absl::Status OnDrainNode(const v1::DrainNodeRequest& request, const std::string& peer,
                           v1::DrainNodeReply* reply) override;
  // EventWatch::Owner
  void OnWatchEvents(const v1::WatchEventsRequest& request, const std::string& peer,
                     const std::shared_ptr<EventWatch>& watch) override;
  // JobShell::Host
  void SendTo(StreamKey stream, const SharedMessage& message) override;
  void EndStream(StreamKey stream, const absl::Status& status) override;
  void OnRecordStale(JobShell* job, const std::string& why) override;
  void OnJobEnded(JobShell* job, Outcome outcome) override;

  absl::Status ListenOnTcp();
  // The connection is a member's, or that of a caller with the token.
  void Known(const std::string& peer);
  void Known(const StreamEntry& entry);
  // Whether the stream is still unauthenticated, so that any peer may have sent its messages.
  bool IsStranger(const StreamEntry& entry) const {
    return entry.job == nullptr && !entry.heartbeat_of.has_value();
  }
  void OnFirstMessage(StreamEntry& entry, AgentMessage message);
  absl::StatusOr<JobShell*> FindJob(const AgentMessage& message, const Join& join);
  // Refuses a stranger's first message, without handling it if its address has spent its allowance.
  void RefuseFirst(StreamEntry& entry, const std::string& kind, const absl::Status& status);
  void AddReports(JobShell& job, v1::JobStatus* status) const;
  void RecoverJobs();
  absl::Status CheckRunId(const std::string& run_id) const;
  absl::Status NoSuchJob(const std::string& run_id) const;
  absl::Status CheckRead(const std::string& token, const std::string& peer);
  absl::Status CheckControl(const std::string& what, const std::string& token,
                            const std::string& reason, const std::string& peer);
  std::string JobNames() const;
  absl::StatusOr<JobShell*> JobOf(const std::string& run_id) const;
  absl::StatusOr<JobShell*> LiveJob(const std::string& run_id) const;
  void Refuse(StreamEntry& entry, const std::string& kind, const absl::Status& status,
              bool flush = true);
  void NotifyJobClosed(StreamEntry& entry, bool finished);
  bool Send(StreamEntry& entry, const SharedMessage& message);
  // Streams beside an agent's that carry heartbeats only (R4).
  void OnHeartbeatStream(StreamEntry& entry, const Heartbeat& heartbeat);
  void OnHeartbeat(StreamEntry& entry, AgentMessage message);
  void EndHeartbeats(StreamEntry& entry);
  void ForgetJob(const std::string& run_id);
  void ForgetIfDone(JobShell* job);

  EventLoop* const loop_;
  EventLog* const events_;
  ServerOptions options_;  // as given, but without `kept`
  const Term term_;
  const std::shared_ptr<Journal> journal_;
  Refusals refusals_;
  const std::shared_ptr<LoopInbox> inbox_;
  const std::shared_ptr<CallRegistry> registry_;
  const std::shared_ptr<StatusBoard> board_;
  Service service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<FrontDoor> door_;  // null for a unix socket
  int port_ = 0;
  uint64_t last_key_ = 0;
  std::map<StreamKey, StreamEntry> streams_;
  EncodedMessages encoded_;
  std::map<uint64_t, StreamKey> heartbeat_keys_;  // of the agents' streams
  std::map<std::string, std::unique_ptr<JobShell>> jobs_;
  std::map<std::string, std::unique_ptr<Timer>> lingering_;  // bounds of ended jobs
  std::map<Outcome, uint32_t> ended_;                        // number of jobs by outcome
  std::vector<std::function<void()>> on_idle_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_SERVER_IMPL_H_
