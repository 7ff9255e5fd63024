#include "rendezvous/client/rendezvous_client.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/rng.h"
#include "rendezvous/client/attend_call.h"
#include "rendezvous/client/failure_text.h"
#include "rendezvous/client/heartbeat_path.h"
#include "rendezvous/core/timing.h"
#include "rendezvous/wire/grpc_settings.h"

namespace ddprun::rendezvous {
namespace {

// How long a try may take until the owner learns of it. The time grows with each try in a row,
// because a name server that hangs or a network that loses packets may need more.
constexpr absl::Duration kOpenTimeoutMin = absl::Milliseconds(1800);
constexpr absl::Duration kOpenTimeoutMax = absl::Seconds(8);
// How long the service may take to end a stream after this side has closed.
constexpr absl::Duration kFinishTimeout = absl::Seconds(2);

class ClientImpl final : public RendezvousClient, public AttendCall::Owner {
 public:
  ClientImpl(EventLoop* loop, ClientOptions options, Callbacks callbacks,
             std::shared_ptr<grpc::Channel> channel);
  ~ClientImpl() override;

  const std::string& target() const override { return options_.target; }
  bool Send(const AgentMessage& message) override;
  bool SendRenewal(const AgentMessage& message, const TrainingReport& training) override;
  void Finish() override;

  void OnCallOpen(AttendCall* call) override;
  void OnCallMessage(AttendCall* call, absl::StatusOr<ServiceMessage> message) override;
  void OnCallDone(AttendCall* call, const grpc::Status& status) override;

 private:
  // Breaks the stream off if too many messages wait (`taken` is false).
  bool Taken(bool taken);
  void Try();
  void OnLocated(absl::StatusOr<std::string> target);
  void Connect();
  void BreakOff(absl::Status why, bool retry);
  void OnOpenTimeout();
  void NotifyClosed(const absl::Status& status, bool will_retry);
  void OnLease(absl::Duration lease);

  EventLoop* const loop_;
  ClientOptions options_;  // the target changes if there is a locator
  const Callbacks callbacks_;
  const std::shared_ptr<grpc::Channel> fixed_channel_;
  const std::shared_ptr<LoopInbox> inbox_;
  ReconnectPauses pauses_;
  std::shared_ptr<AttendCall> call_;  // the current try; null between two
  bool open_ = false;
  bool heard_ = false;   // on this stream
  bool joined_ = false;  // on some stream
  bool failed_ = false;  // the last try with a locator opened no stream
  bool finishing_ = false;
  // Why this client broke the call off; nullopt = the call's own status says why it ended.
  struct Own {
    absl::Status why;
    bool retry;
  };
  std::optional<Own> own_reason_;
  AgentMessage header_;         // of the last Join
  absl::Duration lease_;        // of that Join
  uint64_t heartbeat_key_ = 0;  // of the stream; 0 = it has none
  std::vector<std::unique_ptr<HeartbeatPath>> heartbeats_;
  absl::Duration open_timeout_ = kOpenTimeoutMin;
  Timer retry_timer_;
  Timer open_timer_;
  Timer finish_timer_;
};

ClientImpl::ClientImpl(EventLoop* loop, ClientOptions options, Callbacks callbacks,
                       std::shared_ptr<grpc::Channel> channel)
    : loop_(loop),
      options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      fixed_channel_(std::move(channel)),
      inbox_(LoopInbox::Create(loop)),
      pauses_(options_.reconnect, RandomNumber(), loop->Now()),
      retry_timer_(loop, [this] { Try(); }),
      open_timer_(loop, [this] { OnOpenTimeout(); }),
      finish_timer_(loop, [this] {
        BreakOff(absl::DeadlineExceededError(absl::StrCat(
                     "the rendezvous service at ", options_.target, " did not end the stream")),
                 /*retry=*/false);
      }) {
  Try();
}

ClientImpl::~ClientImpl() {
  inbox_->Close();
  if (call_ != nullptr) call_->Abandon();
}

void ClientImpl::Try() {
  open_ = false;
  heard_ = false;
  own_reason_.reset();
  if (options_.locator == nullptr) return Connect();
  options_.locator->Locate(
      std::exchange(failed_, true),
      [this, inbox = inbox_](absl::StatusOr<std::string> target) {
        if (inbox->open()) OnLocated(std::move(target));
      },
      [this, inbox = inbox_] {
        if (!inbox->open() || finishing_) return;
        BreakOff(
            absl::UnavailableError(absl::StrCat("the service at ", options_.target, " is gone")),
            /*retry=*/true);
      });
}

void ClientImpl::OnLocated(absl::StatusOr<std::string> target) {
  if (finishing_) return;
  if (target.ok()) {
    options_.target = *std::move(target);
    return Connect();
  }
  // As in OnCallDone.
  const bool renews = joined_ && absl::IsUnauthenticated(target.status());
  const bool retry = IsWorthRetrying(target.status()) || renews;
  if (retry) retry_timer_.Arm(loop_->Now() + pauses_.AfterFailure(loop_->Now()));
  NotifyClosed(target.status(), retry);
}

void ClientImpl::Connect() {
  // Each try has a channel of its own. A channel that failed before would first sit out gRPC's
  // back-offs; that of the name resolver (1 s, growing to 2 minutes) has no setting.
  call_ = AttendCall::Start(
      this, inbox_,
      fixed_channel_ != nullptr
          ? fixed_channel_
          : MakeChannel(options_.target, options_.tls, {.keepalive = options_.keepalive}));
  open_timer_.Arm(loop_->Now() + open_timeout_);
}

void ClientImpl::OnOpenTimeout() {
  BreakOff(absl::DeadlineExceededError(
               absl::StrCat("no answer within ", absl::FormatDuration(open_timeout_),
                            "; is the address right, and does a firewall drop packets?")),
           /*retry=*/true);
  open_timeout_ = std::min(2 * open_timeout_, kOpenTimeoutMax);
}

void ClientImpl::BreakOff(absl::Status why, bool retry) {
  if (call_ == nullptr) return;
  if (!own_reason_.has_value()) own_reason_ = Own{.why = std::move(why), .retry = retry};
  open_ = false;
  heartbeats_.clear();
  call_->Cancel();
}

void ClientImpl::OnCallOpen(AttendCall* call) {
  if (call != call_.get() || own_reason_.has_value()) return;
  open_ = true;
  failed_ = false;
  open_timer_.Disarm();
  open_timeout_ = kOpenTimeoutMin;
  const auto on_open = callbacks_.on_stream_open;  // it may destroy us
  on_open();
}

void ClientImpl::OnCallMessage(AttendCall* call, absl::StatusOr<ServiceMessage> message) {
  if (!message.ok()) {
    BreakOff({message.status().code(),
              absl::StrCat("rendezvous service at ", options_.target,
                           " sent a message that is refused: ", message.status().message())},
             /*retry=*/false);
  } else if (!own_reason_.has_value()) {
    heard_ = true;
    if (const Welcome* welcome = std::get_if<Welcome>(&*message)) {
      joined_ = true;
      heartbeats_.clear();
      heartbeat_key_ = welcome->heartbeat_key;
      header_.term = welcome->term;
      OnLease(welcome->lease);
    } else if (const Probe* probe = std::get_if<Probe>(&*message)) {
      OnLease(probe->lease > absl::ZeroDuration() ? probe->lease : lease_);
    }
    const auto inbox = inbox_;
    const auto on_message = callbacks_.on_message;
    on_message(*std::move(message));
    if (!inbox->open()) return;  // it destroyed us
  }
  call->ReadNext();
}

void ClientImpl::OnCallDone(AttendCall* /*call*/, const grpc::Status& status) {
  call_.reset();
  open_ = false;
  heartbeats_.clear();
  open_timer_.Disarm();
  finish_timer_.Disarm();
  absl::Status why = own_reason_.has_value() && !status.ok()
                         ? own_reason_->why
                         : DescribeFailure(options_.target, status);
  // An agent that was connected before may try again while certificates are exchanged, or while its
  // descriptors are in use.
  const bool renews =
      joined_ && ((!heard_ && absl::IsUnauthenticated(why)) || LacksDescriptors(why));
  const bool retry = !finishing_ && (own_reason_.has_value() ? own_reason_->retry
                                                             : IsWorthRetrying(why) || renews);
  if (retry) {
    const Instant now = loop_->Now();
    retry_timer_.Arm(now + (heard_ ? pauses_.AfterStream() : pauses_.AfterFailure(now)));
  }
  NotifyClosed(why, retry);
}

void ClientImpl::NotifyClosed(const absl::Status& status, bool will_retry) {
  const auto on_closed = callbacks_.on_stream_closed;  // it may destroy us
  on_closed(status, will_retry);
}

// The lease in force follows the number of nodes, and so do the connections.
void ClientImpl::OnLease(absl::Duration lease) {
  const bool can_lose = fixed_channel_ == nullptr && !absl::StartsWith(options_.target, "unix:");
  if (heartbeat_key_ == 0 || !can_lose || finishing_) return;
  const size_t paths = HeartbeatPaths(std::max(lease, options_.lease));
  if (heartbeats_.size() > paths) heartbeats_.resize(paths);
  while (heartbeats_.size() < paths) {
    heartbeats_.push_back(std::make_unique<HeartbeatPath>(loop_, options_, header_, heartbeat_key_,
                                                          callbacks_.on_heartbeat));
  }
}

bool ClientImpl::Send(const AgentMessage& message) {
  DDPRUN_CHECK(loop_->OnLoop(), "Send() is for the loop");
  if (!open_ || finishing_) return false;
  if (std::holds_alternative<Join>(message.body)) {
    header_ = message;
    lease_ = std::get<Join>(message.body).job.lease;
    header_.body = Renewal();  // drops the Join with its token
  }
  return Taken(call_->Write(message));
}

bool ClientImpl::SendRenewal(const AgentMessage& message, const TrainingReport& training) {
  DDPRUN_CHECK(loop_->OnLoop(), "SendRenewal() is for the loop");
  if (!open_ || finishing_) return false;
  return Taken(call_->Write(message, training));
}

bool ClientImpl::Taken(bool taken) {
  if (taken) return true;
  BreakOff(absl::UnavailableError(absl::StrCat("the service does not read: ", kOutgoingMessagesMax,
                                               " messages wait for it")),
           /*retry=*/true);
  return false;
}

void ClientImpl::Finish() {
  DDPRUN_CHECK(loop_->OnLoop(), "Finish() is for the loop");
  if (std::exchange(finishing_, true)) return;
  const absl::Status cancelled = absl::CancelledError("finished before a stream was open");
  if (call_ == nullptr) {
    retry_timer_.Disarm();
    inbox_->Post([this, cancelled] { NotifyClosed(cancelled, false); });
    return;
  }
  if (!open_) return BreakOff(cancelled, /*retry=*/false);
  heartbeats_.clear();
  call_->HalfClose();
  finish_timer_.Arm(loop_->Now() + kFinishTimeout);
}

}  // namespace

absl::Duration KeepaliveOf(const JobSpec& job) {
  return std::max(kClientKeepaliveTime, ProbePace(job.lease, job.nodes_min).interval * 3 / 2);
}

absl::Duration LeaseOf(const JobSpec& job) { return ProbePace(job.lease, job.nodes_min).lease; }

std::unique_ptr<RendezvousClient> RendezvousClient::Start(EventLoop* loop, ClientOptions options,
                                                          Callbacks callbacks,
                                                          std::shared_ptr<grpc::Channel> channel) {
  return std::make_unique<ClientImpl>(loop, std::move(options), std::move(callbacks),
                                      std::move(channel));
}

}  // namespace ddprun::rendezvous
