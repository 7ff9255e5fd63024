#include "rendezvous/server/rendezvous_server.h"

#include <grpc/support/time.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/status_macros.h"
#include "rendezvous/server/server_impl.h"
#include "rendezvous/wire/grpc_listener.h"
#include "rendezvous/wire/grpc_settings.h"

namespace ddprun::rendezvous {
namespace {

// How long Shutdown lets streams deliver their last status before they are cut.
constexpr absl::Duration kShutdownGrace = absl::Milliseconds(200);
constexpr absl::Duration kShutdownBound = absl::Seconds(2);

Term DrawTerm() {
  uint64_t number = 0;
  while (number == 0) number = RandomNumber();
  return Term(number);
}

// The term that agents of the only job know from a former service.
Term TermOf(const ServerOptions& options) {
  for (const KeptJob& kept : options.kept) {
    if (kept.run_id == options.only_run_id) return kept.record.term;
  }
  return options.first_term.value() != 0 ? options.first_term : DrawTerm();
}

std::shared_ptr<Journal> OrNoJournal(std::shared_ptr<Journal> journal) {
  return journal != nullptr ? std::move(journal) : std::make_shared<NoJournal>();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RendezvousServer>> RendezvousServer::Start(EventLoop* loop,
                                                                          EventLog* events,
                                                                          ServerOptions options) {
  auto server = std::make_unique<ServerImpl>(loop, events, std::move(options));
  DDPRUN_RETURN_IF_ERROR(server->Listen());
  return server;
}

ServerImpl::ServerImpl(EventLoop* loop, EventLog* events, ServerOptions options)
    : loop_(loop),
      events_(events),
      options_(std::move(options)),
      term_(TermOf(options_)),
      journal_(OrNoJournal(options_.journal)),
      refusals_(events),
      inbox_(LoopInbox::Create(loop)),
      registry_(std::make_shared<CallRegistry>(
          [this, inbox = inbox_](const std::string& peer) {
            inbox->Post([this, peer] {
              if (door_ != nullptr) door_->TurnOut(peer);
            });
          },
          options_.stranger_call_every)),
      board_(std::make_shared<StatusBoard>()),
      service_(loop, this, inbox_, registry_, board_) {}

ServerImpl::~ServerImpl() { Shutdown(); }

absl::Status ServerImpl::Listen() {
  if (IsUnixAddress(options_.listen)) {
    DDPRUN_ASSIGN_OR_RETURN(GrpcListener listener, StartGrpcListener(options_.listen, &service_));
    server_ = std::move(listener.server);
  } else {
    DDPRUN_RETURN_IF_ERROR(ListenOnTcp());
  }
  RecoverJobs();  // on the loop, so before any message is handled
  events_->Write(loop_->Now(), "service_listening",
                 {{"listen", options_.listen}, {"port", port_}, {"term", term_.value()}});
  Log(LogLevel::kInfo, absl::StrCat("service_listening listen=", options_.listen, " port=", port_,
                                    " term=", term_.value()));
  return absl::OkStatus();
}

absl::Status ServerImpl::ListenOnTcp() {
  DDPRUN_ASSIGN_OR_RETURN(TcpListener listener, ListenTcp(options_.listen));
  const GrpcLimits limits = {.streams_per_connection = kStreamsPerConnection};
  std::string socket = options_.socket;
  if (absl::Status status = socket.empty() ? absl::OkStatus() : CheckListenable(socket);
      !status.ok()) {
    Notify(
        absl::StrCat("warning: commands on this machine need token and TLS: ", status.message()));
    socket.clear();
  }
  DDPRUN_ASSIGN_OR_RETURN(FedGrpcServer fed,
                          StartFedGrpcServer(&service_, limits, options_.tls, socket));
  server_ = std::move(fed.server);
  port_ = listener.port;
  door_ = std::make_unique<FrontDoor>(
      loop_, events_, &refusals_, std::move(listener), std::move(fed.acceptor),
      FrontDoor::Options{.bounds = options_.door.value_or(DoorBoundsFor(DescriptorLimit())),
                         .wants_tls = options_.tls.used(),
                         .on_store = options_.on_store});
  return absl::OkStatus();
}

void ServerImpl::Known(const std::string& peer) {
  if (door_ != nullptr) door_->Known(peer);
}

void ServerImpl::Known(const StreamEntry& entry) {
  registry_->Known(entry.stream.get());
  Known(entry.stream->peer());
}

std::shared_ptr<grpc::Channel> ServerImpl::InProcessChannel() {
  return server_->InProcessChannel(ChannelSettings());
}

void ServerImpl::Shutdown() {
  DDPRUN_CHECK(loop_->OnLoop(), "Shutdown() is for the loop");
  if (server_ == nullptr) return;
  // From here on no posted call runs; waiting ones are dropped.
  inbox_->Close();
  door_.reset();
  const absl::Status ending = absl::UnavailableError("the rendezvous service is ending");
  const CallRegistry::Open open = registry_->Close();
  for (const auto& stream : open.streams) stream->FinishNow(ending);
  for (grpc::ServerUnaryReactor* call : open.calls) call->Finish(ToGrpcStatus(ending));
  server_->Shutdown(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                   gpr_time_from_millis(absl::ToInt64Milliseconds(kShutdownGrace), GPR_TIMESPAN)));
  const bool done = registry_->WaitUntilDone(kShutdownBound);
  DDPRUN_CHECK(done, "gRPC is not done with a stream after its server's end");
  streams_.clear();
  lingering_.clear();
  jobs_.clear();
  server_.reset();
}

// ------------------------------------------------------------- streams

void ServerImpl::OnStreamOpen(const std::shared_ptr<AttendStream>& stream) {
  stream->set_key(StreamKey(++last_key_));
  streams_[stream->key()].stream = stream;
  stream->ReadNext();
}

void ServerImpl::OnStreamMessage(AttendStream* stream, absl::StatusOr<AgentMessage> message) {
  StreamEntry& entry = streams_.at(stream->key());
  if (!message.ok()) {
    const bool version = message.status().code() == absl::StatusCode::kFailedPrecondition;
    const std::string kind = version ? "other_protocol" : "malformed_message";
    return IsStranger(entry) ? RefuseFirst(entry, kind, message.status())
                             : Refuse(entry, kind, message.status());
  }
  if (entry.heartbeat_of.has_value()) {
    OnHeartbeat(entry, *std::move(message));
  } else if (entry.job == nullptr) {
    OnFirstMessage(entry, *std::move(message));
  } else {
    entry.job->Step(MessageReceived{.stream = stream->key(), .message = *std::move(message)});
  }
  if (!stream->closing()) stream->ReadNext();
}

void ServerImpl::OnStreamReport(AttendStream* stream, const AgentMessage& renewal,
                                const TrainingReport& training) {
  StreamEntry& entry = streams_.at(stream->key());
  if (entry.job == nullptr) return;
  entry.report = {renewal.node_id, renewal.generation, training};
}

void ServerImpl::OnFirstMessage(StreamEntry& entry, AgentMessage message) {
  if (const Heartbeat* heartbeat = std::get_if<Heartbeat>(&message.body); heartbeat != nullptr) {
    return OnHeartbeatStream(entry, *heartbeat);
  }
  const Join* join = std::get_if<Join>(&message.body);
  if (join == nullptr) {
    return RefuseFirst(entry, "no_join",
                       absl::InvalidArgumentError("the first message of a stream must be a Join"));
  }
  absl::StatusOr<JobShell*> job = FindJob(message, *join);
  if (!job.ok()) {
    const std::string kind = absl::StrCat("join_", absl::StatusCodeToString(job.status().code()));
    return absl::IsUnauthenticated(job.status()) ? RefuseFirst(entry, kind, job.status())
                                                 : Refuse(entry, kind, job.status());
  }
  entry.job = *job;
  entry.job->streams().insert(entry.stream->key());
  entry.job->Step(MessageReceived{.stream = entry.stream->key(), .message = std::move(message)});
}

void ServerImpl::RefuseFirst(StreamEntry& entry, const std::string& kind,
                             const absl::Status& status) {
  if (registry_->Charge(CallerOf(entry.stream->peer(), /*trusted=*/false))) {
    return Refuse(entry, kind, status);
  }
  // UNAVAILABLE, which agents retry, because an agent may share the address.
  Refuse(entry, "too_many_calls", absl::UnavailableError(TooManyCalls().message()));
}

void ServerImpl::OnStreamSilent(AttendStream* stream) {
  Refuse(streams_.at(stream->key()), "silent_stream",
         absl::DeadlineExceededError(absl::StrCat(
             "no Join came within ", absl::FormatDuration(StreamLimits{}.first_message))));
}

void ServerImpl::OnStreamEnded(AttendStream* stream) {
  NotifyJobClosed(streams_.at(stream->key()), /*finished=*/false);
  stream->Close(absl::OkStatus());
}

void ServerImpl::OnStreamDone(AttendStream* stream) {
  const auto found = streams_.find(stream->key());
  if (found == streams_.end()) return;  // refused by the registry
  NotifyJobClosed(found->second, /*finished=*/true);
  EndHeartbeats(found->second);
  JobShell* job = found->second.job;
  streams_.erase(found);
  const auto inbox = inbox_;
  if (job != nullptr) {
    job->streams().erase(stream->key());
    ForgetIfDone(job);
    if (!inbox->open()) return;  // the end of the only job was ours too
  }
  if (streams_.empty()) {
    for (const auto& on_idle : std::exchange(on_idle_, {})) on_idle();
  }
}

void ServerImpl::NotifyWhenIdle(std::function<void()> on_idle) {
  on_idle_.push_back(std::move(on_idle));
  if (!streams_.empty()) return;
  inbox_->Post([this] {
    if (!streams_.empty()) return;
    for (const auto& call : std::exchange(on_idle_, {})) call();
  });
}

// Reports each stream of a job as closed, once.
void ServerImpl::NotifyJobClosed(StreamEntry& entry, bool finished) {
  if (entry.job == nullptr || std::exchange(entry.told_job, true)) return;
  EndHeartbeats(entry);
  entry.job->Step(StreamClosed{.stream = entry.stream->key(), .finished = finished});
}

void ServerImpl::Refuse(StreamEntry& entry, const std::string& kind, const absl::Status& status,
                        bool flush) {
  refusals_.Count(loop_->Now(), kind, entry.stream->peer(), status);
  entry.stream->Close(status, flush);
  NotifyJobClosed(entry, /*finished=*/false);
}

void ServerImpl::SendTo(StreamKey key, const SharedMessage& message) {
  const auto found = streams_.find(key);
  if (found == streams_.end()) return;
  if (Send(found->second, message)) return;
  Refuse(found->second, "slow_reader",
         absl::UnavailableError("the agent does not read: too many messages wait for it"),
         /*flush=*/false);
}

void ServerImpl::EndStream(StreamKey key, const absl::Status& status) {
  const auto found = streams_.find(key);
  if (found == streams_.end()) return;
  EndHeartbeats(found->second);
  found->second.stream->Close(status);
}

}  // namespace ddprun::rendezvous
