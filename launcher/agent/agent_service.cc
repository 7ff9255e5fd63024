#include "launcher/agent/agent_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/text.h"
#include "launcher/logs/log_reader.h"
#include "launcher/stores/peer_store.h"
#include "rendezvous/core/admission.h"
#include "rendezvous/wire/grpc_settings.h"
#include "rendezvous/wire/peer.h"

namespace ddprun::launcher {
namespace {

// Most readers of logs at a time; each has a thread.
constexpr size_t kLogReadersMax = 16;

bool IsPeer(const grpc::CallbackServerContext& context) {
  return !rendezvous::IsOwnerPeer(context.peer());
}

}  // namespace

std::shared_ptr<AgentCall> AgentCall::Create(AgentService* service, uint64_t id,
                                             Exchange exchange) {
  std::shared_ptr<AgentCall> call(new AgentCall(service, id, std::move(exchange)));
  call->self_ = call;
  return call;
}

void AgentCall::Answer(const absl::Status& status) { Finish(rendezvous::ToGrpcStatus(status)); }

void AgentCall::OnCancel() { service_->OnCancel(id_); }

void AgentCall::OnDone() {
  service_->OnDone();
  const auto released = std::move(self_);  // may be the last reference
}

AgentService::AgentService(const AgentServerOptions& options, std::shared_ptr<LoopInbox> inbox,
                           Handlers handlers)
    : options_(options), inbox_(std::move(inbox)), handlers_(std::move(handlers)) {}

grpc::ServerUnaryReactor* AgentService::GetAssignment(
    grpc::CallbackServerContext* context, const agent::v1::GetAssignmentRequest* request,
    agent::v1::WorkerAssignment* reply) {
  return Accept(AssignmentExchange{request, reply},
                CheckWorker("assignment", request->local_rank(), IsPeer(*context)));
}

grpc::ServerUnaryReactor* AgentService::AwaitGenerationEnd(
    grpc::CallbackServerContext* context, const agent::v1::AwaitGenerationEndRequest* request,
    agent::v1::GenerationEnd* reply) {
  absl::Status checked =
      CheckWorker("end of a generation", request->local_rank(), IsPeer(*context));
  if (checked.ok() && request->generation() == 0) {
    checked = absl::InvalidArgumentError(
        "end of a generation: the request has no generation; take it from your assignment");
  }
  return Accept(EndExchange{request, reply}, std::move(checked));
}

grpc::ServerUnaryReactor* AgentService::Store(grpc::CallbackServerContext* context,
                                              const agent::v1::StoreRequest* request,
                                              agent::v1::StoreReply* reply) {
  StoreExchange exchange{.request = request,
                         .reply = reply,
                         .peer = IsPeer(*context) ? std::string(context->peer()) : ""};
  absl::Status checked = exchange.peer.empty() ? absl::OkStatus() : CheckPeer(*context);
  if (checked.ok()) checked = CheckStore(*request);
  if (checked.ok()) {
    absl::StatusOr<StoreOperation> operation = FromProto(*request);
    checked = operation.status();
    if (operation.ok()) exchange.operation = *std::move(operation);
  }
  return Accept(std::move(exchange), std::move(checked));
}

grpc::ServerUnaryReactor* AgentService::KeepMemory(grpc::CallbackServerContext* context,
                                                   const agent::v1::KeepMemoryRequest* request,
                                                   agent::v1::KeptMemory* reply) {
  return Accept(MemoryExchange{request, reply},
                CheckWorker("memory for checkpoints", request->local_rank(), IsPeer(*context)));
}

grpc::ServerUnaryReactor* AgentService::GetNodeState(
    grpc::CallbackServerContext* context, const agent::v1::GetNodeStateRequest* /*request*/,
    agent::v1::NodeState* reply) {
  return Accept(StateExchange{reply},
                IsPeer(*context) ? absl::PermissionDeniedError(
                                       "node state: only callers on this machine may read it")
                                 : absl::OkStatus());
}

grpc::ServerWriteReactor<agent::v1::LogPiece>* AgentService::ReadLogs(
    grpc::CallbackServerContext* context, const agent::v1::ReadLogsRequest* request) {
  const std::string peer(context->peer());
  const absl::Status checked = CheckLogs(*request, peer);
  if (!checked.ok()) return LogCall::Refuse(checked);
  inbox_->Post([this, peer] { handlers_.on_reader(peer); });
  if (++log_readers_ > kLogReadersMax) {
    --log_readers_;
    return LogCall::Refuse(absl::ResourceExhaustedError(
        absl::StrCat("logs: ", kLogReadersMax, " readers are there already; end one of them")));
  }
  LogRequest wanted{.follow = request->follow()};
  if (request->has_rank()) wanted.rank = request->rank();
  if (request->has_since_ms()) {
    // A time before the clock's beginning means everything.
    const auto ms = static_cast<int64_t>(std::min<uint64_t>(request->since_ms(), INT64_MAX / 2));
    wanted.since = MonotonicNow() - absl::Milliseconds(ms);
  }
  if (request->has_tail_lines()) wanted.tail_lines = request->tail_lines();
  return LogCall::Start(options_.logs, wanted, &log_readers_);
}

// Checked before the answer reveals anything about the job.
absl::Status AgentService::CheckPeer(const grpc::CallbackServerContext& context) const {
  if (options_.token.empty()) return absl::OkStatus();
  const auto token = context.client_metadata().find(kTokenMetadata);
  const std::string offered = token == context.client_metadata().end()
                                  ? ""
                                  : std::string(token->second.data(), token->second.size());
  if (rendezvous::SameSecret(options_.token, offered)) return absl::OkStatus();
  return absl::UnauthenticatedError("store: wrong or missing token of the job");
}

absl::Status AgentService::CheckLogs(const agent::v1::ReadLogsRequest& request,
                                     const std::string& peer) const {
  const bool by_owner = rendezvous::IsOwnerPeer(peer);
  if (!by_owner && !options_.token.empty() &&
      !rendezvous::SameSecret(options_.token, request.token())) {
    return absl::UnauthenticatedError("logs: wrong or missing token of the job");
  }
  if (request.run_id() != options_.run_id) {
    return absl::PermissionDeniedError(
        absl::StrCat("logs: the request is of job ", Quoted(request.run_id()),
                     ", this agent serves job ", Quoted(options_.run_id)));
  }
  if (!by_owner && options_.token.empty() && !rendezvous::IsLocalPeer(peer)) {
    return absl::PermissionDeniedError(absl::StrCat(
        "logs: those of a job without a token are read only on the node's own machine, not from ",
        rendezvous::PeerHost(peer), ": run the command there, or start jobs with a token"));
  }
  if (options_.logs != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "logs: the workers' output goes to no file on this node: start the job with --tee 3 (files "
      "and "
      "console) or --redirects 3 (files only), and --log_dir DIR");
}

void AgentService::OnCancel(uint64_t id) {
  inbox_->Post([this, id] { handlers_.on_cancel(id); });
}

void AgentService::OnDone() { --calls_; }

absl::Status AgentService::CheckWorker(absl::string_view what, uint32_t local_rank,
                                       bool from_peer) const {
  if (from_peer) {
    return absl::PermissionDeniedError(absl::StrCat(
        what, ": only workers of this node may ask for it; use the unix socket DDPRUN_AGENT"));
  }
  if (local_rank >= options_.worker_count) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, ": there is no local rank ", local_rank, ", this node has ",
        CountText(options_.worker_count, "worker"), "; take LOCAL_RANK of the environment"));
  }
  return absl::OkStatus();
}

absl::Status AgentService::CheckStore(const agent::v1::StoreRequest& request) const {
  if (request.run_id() != options_.run_id) {
    return absl::PermissionDeniedError(absl::StrCat(
        "store: the request is of job ", Quoted(request.run_id()), ", this agent serves job ",
        Quoted(options_.run_id), "; take run id and address from your own assignment"));
  }
  if (request.generation() == 0) {
    return absl::InvalidArgumentError(
        "store: the request has no generation; take it from your assignment");
  }
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* AgentService::Accept(AgentCall::Exchange exchange, absl::Status checked) {
  const std::shared_ptr<AgentCall> call = AgentCall::Create(this, ++last_id_, std::move(exchange));
  if (++calls_ > options_.calls_max && checked.ok()) {
    checked = absl::ResourceExhaustedError(
        absl::StrCat("agent: ", options_.calls_max,
                     " calls are open already; end some that wait, then try again"));
  }
  if (!checked.ok()) {
    call->Answer(checked);
  } else if (!inbox_->Post([this, call] { handlers_.on_call(call); })) {
    call->Answer(absl::AbortedError("the agent is ending; the job is over"));
  }
  return call.get();
}

}  // namespace ddprun::launcher
