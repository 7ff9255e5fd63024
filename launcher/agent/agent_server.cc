#include "launcher/agent/agent_server.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include <grpc/support/time.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/errno_status.h"
#include "base/event_log.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/agent/agent_service.h"
#include "launcher/logs/log_catalog.h"
#include "launcher/stores/core/key_value_store.h"
#include "launcher/stores/peer_store.h"
#include "rendezvous/server/front_door.h"
#include "rendezvous/server/refusals.h"
#include "rendezvous/wire/grpc_listener.h"
#include "rendezvous/wire/grpc_settings.h"
#include "rendezvous/wire/tcp_listener.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Assignment;
using rendezvous::Generation;

// How long a shutdown waits for answers under way: a caller that is stopped never reads.
constexpr int64_t kShutdownPatienceMs = 200;

class AgentServerImpl final : public AgentServer {
 public:
  AgentServerImpl(EventLoop* loop, AgentServerOptions options);
  ~AgentServerImpl() override { Shutdown("the agent has ended"); }

  absl::Status Listen();

  int peer_port() const override { return peer_port_; }
  void BeginGeneration(const Assignment& assignment, const std::set<uint32_t>& kept) override;
  void OnStarted(Generation generation, uint32_t local_rank) override;
  void EndTurn(Generation generation, const std::string& why,
               const std::set<uint32_t>& spared) override;
  void EndGeneration(Generation generation, const std::string& why) override;
  void Shutdown(const std::string& why) override;

 private:
  // What an unanswered call waits for.
  enum class Waits {
    kForGeneration,  // parked until `deadline`
    kForStore,
    kForPeer,
  };
  struct Pending {
    std::shared_ptr<AgentCall> call;
    Instant deadline;  // until when the call may be parked
    Waits waits = Waits::kForGeneration;
  };

  // The connection belongs to an agent of another node, or to an authorized reader of logs.
  void Known(const std::string& peer);
  void OnCall(std::shared_ptr<AgentCall> call);
  void OnCancel(uint64_t id);
  void OnPeerReply(uint64_t id, const absl::Status& status, agent::v1::StoreReply* reply);
  void OnTimer();
  void Rearm();

  // Answers the call if possible, or passes it to the store or rank 0's agent; else parks it.
  void Route(uint64_t id);
  void Route(uint64_t id, const AssignmentExchange& exchange);
  void Route(uint64_t id, const EndExchange& exchange);
  void Route(uint64_t id, StoreExchange& exchange);
  void Route(uint64_t id, const MemoryExchange& exchange);
  void Route(uint64_t id, const StateExchange& exchange);
  absl::Status Fence(Generation generation) const;
  agent::v1::WorkerAssignment AssignmentOf(uint32_t local_rank) const;
  void NoteWaiting(uint32_t local_rank, Generation after) const;

  void Park(std::shared_ptr<AgentCall> call, absl::Duration patience);
  void Unpark(uint64_t id, Waits waits);
  void ExpireParked();
  absl::Status Expired(AgentCall& call) const;
  void StepStore(StoreEvent event);
  void CloseGeneration(const std::string& why);
  void Answer(uint64_t id, const absl::Status& status);

  EventLoop* const loop_;
  const AgentServerOptions options_;
  const std::shared_ptr<LoopInbox> inbox_;
  AgentService service_;
  EventLog events_;  // never written; FrontDoor needs one
  rendezvous::Refusals refusals_{&events_};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<rendezvous::FrontDoor> door_;  // for other nodes; none without a peer listener
  int peer_port_ = 0;
  Timer timer_;
  bool shut_down_ = false;

  std::optional<Assignment> newest_;    // the newest generation that began here
  std::optional<std::string> over_;     // why newest_ has ended; nullopt = it is current
  std::set<uint32_t> can_rejoin_;       // local ranks of workers that can rejoin
  std::set<uint32_t> untaken_;          // kept workers without an OnStarted() for newest_
  std::optional<std::string> turn_;     // why the workers are stopped; nullopt = they aren't
  std::optional<KeyValueStore> store_;  // while newest_ is current and rank 0 is here
  std::unique_ptr<PeerStore> peer_;     // rank 0's agent, when it was elsewhere

  std::map<uint64_t, Pending> pending_;            // by the id of the call
  std::set<std::pair<Instant, uint64_t>> parked_;  // calls that wait for a generation
};

AgentServerImpl::AgentServerImpl(EventLoop* loop, AgentServerOptions options)
    : loop_(loop),
      options_(std::move(options)),
      inbox_(LoopInbox::Create(loop)),
      service_(options_, inbox_,
               {.on_call = [this](std::shared_ptr<AgentCall> call) { OnCall(std::move(call)); },
                .on_cancel = [this](uint64_t id) { OnCancel(id); },
                .on_reader = [this](const std::string& peer) { Known(peer); }}),
      timer_(loop, [this] { OnTimer(); }) {}

// ------------------------------------------------------------- listening

absl::Status AgentServerImpl::Listen() {
  const std::string socket = absl::StrCat("unix:", options_.socket_path);
  grpc::ServerBuilder builder;
  // The calls of all workers of another node share one connection; service_ bounds them.
  rendezvous::ApplyServerSettings(&builder, {.message_bytes = kAgentMessageBytesMax,
                                             .streams_per_connection = options_.calls_max});
  DDPRUN_RETURN_IF_ERROR(rendezvous::CheckListenable(socket));
  builder.AddListeningPort(socket, grpc::InsecureServerCredentials());
  rendezvous::TcpListener listener;
  std::unique_ptr<rendezvous::FrontDoor::Acceptor> acceptor;
  if (!options_.peer_listen.empty()) {
    DDPRUN_ASSIGN_OR_RETURN(listener,
                            rendezvous::ListenTcp(options_.peer_listen, options_.avoided_ports));
    peer_port_ = listener.port;
    acceptor = rendezvous::AddFedPort(&builder, options_.tls);
  }
  builder.RegisterService(&service_);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    return absl::UnavailableError(absl::StrCat(
        "agent: can't listen on ", socket,
        ": it was taken a moment ago, or gRPC refuses it; LOGLEVEL=INFO shows its reason"));
  }
  if (acceptor != nullptr) {
    const uint64_t descriptors = DescriptorLimit();
    door_ = std::make_unique<rendezvous::FrontDoor>(
        loop_, &events_, &refusals_, std::move(listener), std::move(acceptor),
        rendezvous::FrontDoor::Options{
            .bounds = options_.door.value_or(rendezvous::DoorBoundsFor(descriptors)),
            .wants_tls = options_.tls.used(),
            .server = "this agent"});
  }
  if (chmod(options_.socket_path.c_str(), S_IRUSR | S_IWUSR) != 0) {
    return ErrnoStatus(errno, absl::StrCat("chmod ", Quoted(options_.socket_path)));
  }
  return absl::OkStatus();
}

void AgentServerImpl::Known(const std::string& peer) {
  if (door_ != nullptr && door_->strangers() > 0) door_->Known(peer);
}

// ------------------------------------------------------------- generations

void AgentServerImpl::BeginGeneration(const Assignment& assignment,
                                      const std::set<uint32_t>& kept) {
  DDPRUN_CHECK(loop_->OnLoop(), "the agent's server belongs to its loop");
  const uint64_t number = assignment.generation.value();
  if (shut_down_) return;
  if (newest_.has_value() && assignment.generation <= newest_->generation) {
    Log(LogLevel::kWarning, absl::StrCat("agent: generation ", number, " is ignored, ",
                                         newest_->generation.value(), " began before"));
    return;
  }
  if (newest_.has_value() && !over_.has_value()) {
    CloseGeneration(absl::StrCat("generation ", newest_->generation.value(), " is over; ", number,
                                 " is current: get the new assignment"));
  }
  newest_ = assignment;
  over_.reset();
  can_rejoin_ = untaken_ = kept;
  turn_.reset();
  if (assignment.store_address.empty()) {
    peer_.reset();
    store_.emplace();
  } else if (peer_ == nullptr || peer_->address() != assignment.store_address || peer_->Failing()) {
    peer_ = std::make_unique<PeerStore>(
        loop_,
        PeerStore::Options{.address = assignment.store_address,
                           .margin = options_.generation_wait + options_.peer_patience,
                           .tls = options_.tls,
                           .token = options_.token},
        [this](uint64_t id, const absl::Status& status, agent::v1::StoreReply* reply) {
          OnPeerReply(id, status, reply);
        });
  }
  for (const auto& [deadline, id] : std::vector(parked_.begin(), parked_.end())) Route(id);
  Rearm();
}

void AgentServerImpl::OnStarted(Generation generation, uint32_t local_rank) {
  DDPRUN_CHECK(loop_->OnLoop(), "the agent's server belongs to its loop");
  const bool is_newest = newest_.has_value() && newest_->generation == generation;
  if (shut_down_ || !is_newest || turn_.has_value() || over_.has_value()) return;
  if (untaken_.erase(local_rank) == 0) return;
  for (const auto& [deadline, id] : std::vector(parked_.begin(), parked_.end())) {
    const auto* exchange = std::get_if<AssignmentExchange>(&pending_.at(id).call->exchange());
    if (exchange != nullptr && exchange->request->local_rank() == local_rank) Route(id, *exchange);
  }
  Rearm();
}

void AgentServerImpl::EndTurn(Generation generation, const std::string& why,
                              const std::set<uint32_t>& spared) {
  DDPRUN_CHECK(loop_->OnLoop(), "the agent's server belongs to its loop");
  if (shut_down_ || !newest_.has_value() || newest_->generation != generation) return;
  if (!turn_.has_value()) turn_ = why;
  std::erase_if(can_rejoin_, [&](uint32_t local_rank) { return !spared.contains(local_rank); });
  for (const auto& [deadline, id] : std::vector(parked_.begin(), parked_.end())) {
    const AgentCall::Exchange& parked = pending_.at(id).call->exchange();
    const auto* exchange = std::get_if<EndExchange>(&parked);
    if (exchange == nullptr) {
      // A kept worker that hasn't got this generation's assignment has thereby let go of it.
      if (const auto* next = std::get_if<AssignmentExchange>(&parked)) Route(id, *next);
      continue;
    }
    const bool rejoins = can_rejoin_.contains(exchange->request->local_rank());
    rejoins ? Route(id, *exchange) : Answer(id, absl::AbortedError(why));
  }
  Rearm();
}

void AgentServerImpl::EndGeneration(Generation generation, const std::string& why) {
  DDPRUN_CHECK(loop_->OnLoop(), "the agent's server belongs to its loop");
  if (!newest_.has_value() || newest_->generation != generation || over_.has_value()) return;
  CloseGeneration(absl::StrCat("generation ", generation.value(), " is over: ", why));
  Rearm();
}

void AgentServerImpl::CloseGeneration(const std::string& why) {
  over_ = why;
  if (store_.has_value()) StepStore(StoreClosed{why});
  store_.reset();
  std::vector<uint64_t> forwarded;
  for (const auto& [id, pending] : pending_) {
    if (pending.waits == Waits::kForPeer) forwarded.push_back(id);
  }
  for (const uint64_t id : forwarded) {
    peer_->Cancel(id);
    Answer(id, absl::AbortedError(why));
  }
}

void AgentServerImpl::Shutdown(const std::string& why) {
  DDPRUN_CHECK(loop_->OnLoop(), "the agent's server belongs to its loop");
  if (std::exchange(shut_down_, true)) return;
  if (options_.logs != nullptr) options_.logs->Close();
  inbox_->RunPostedAndClose();
  CloseGeneration(why);
  while (!pending_.empty()) Answer(pending_.begin()->first, absl::AbortedError(why));
  timer_.Disarm();
  peer_.reset();
  door_.reset();
  if (server_ == nullptr) return;
  server_->Shutdown(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                 gpr_time_from_millis(kShutdownPatienceMs, GPR_TIMESPAN)));
  server_.reset();
  unlink(options_.socket_path.c_str());
}

// ------------------------------------------------------------- calls

void AgentServerImpl::OnCall(std::shared_ptr<AgentCall> call) {
  const uint64_t id = call->id();
  const auto* assignment = std::get_if<AssignmentExchange>(&call->exchange());
  const auto* store = std::get_if<StoreExchange>(&call->exchange());
  if (store != nullptr && !store->peer.empty()) Known(store->peer);
  absl::Duration patience = options_.generation_wait;
  if (assignment != nullptr) patience = absl::Milliseconds(assignment->request->timeout_ms());
  if (std::holds_alternative<EndExchange>(call->exchange())) patience = absl::InfiniteDuration();
  Park(std::move(call), patience);
  Route(id);
  ExpireParked();
  Rearm();
}

void AgentServerImpl::OnCancel(uint64_t id) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return;
  if (found->second.waits == Waits::kForStore) StepStore(StoreCallCancelled{StoreCallId(id)});
  if (found->second.waits == Waits::kForPeer) peer_->Cancel(id);
  Answer(id, absl::CancelledError("the caller is gone"));
  Rearm();
}

void AgentServerImpl::OnPeerReply(uint64_t id, const absl::Status& status,
                                  agent::v1::StoreReply* reply) {
  auto& exchange = std::get<StoreExchange>(pending_.at(id).call->exchange());
  if (status.ok()) exchange.reply->Swap(reply);
  Answer(id, status);
}

void AgentServerImpl::OnTimer() {
  if (store_.has_value()) StepStore(StoreTimerDue{});
  ExpireParked();
  Rearm();
}

void AgentServerImpl::Rearm() {
  Instant next = store_.has_value() ? store_->NextDeadline() : Instant::Infinite();
  if (!parked_.empty()) next = std::min(next, parked_.begin()->first);
  timer_.Arm(next);
}

void AgentServerImpl::Route(uint64_t id) {
  std::visit([&](auto& exchange) { Route(id, exchange); }, pending_.at(id).call->exchange());
}

void AgentServerImpl::Route(uint64_t id, const AssignmentExchange& exchange) {
  const Generation after(exchange.request->after_generation());
  const uint32_t local_rank = exchange.request->local_rank();
  const bool waits = over_.has_value() || !newest_.has_value() || newest_->generation <= after;
  if (waits || untaken_.contains(local_rank)) return NoteWaiting(local_rank, after);
  const bool can_park = exchange.request->can_park();
  *exchange.reply = AssignmentOf(local_rank);
  Answer(id, absl::OkStatus());
  if (can_park && options_.on_can_park) options_.on_can_park(local_rank);
}

// A worker that can rejoin and asks for the generation after its own has let go of its own. So has
// a kept worker that hadn't got the newest generation's assignment before that was over.
void AgentServerImpl::NoteWaiting(uint32_t local_rank, Generation after) const {
  if (!can_rejoin_.contains(local_rank) || !options_.on_let_go) return;
  const bool is_over = turn_.has_value() || over_.has_value();
  const bool of_it = is_over ? after <= newest_->generation : after == newest_->generation;
  if (of_it) options_.on_let_go(newest_->generation, local_rank);
}

void AgentServerImpl::Route(uint64_t id, const EndExchange& exchange) {
  const uint32_t local_rank = exchange.request->local_rank();
  const Generation generation(exchange.request->generation());
  const bool is_newest = newest_.has_value() && newest_->generation == generation;
  if (is_newest && !turn_.has_value() && !over_.has_value()) {
    const bool is_news = can_rejoin_.insert(local_rank).second;
    if (is_news && options_.on_can_rejoin) {
      options_.on_can_rejoin(generation, local_rank, exchange.request->same_place());
    }
    return;
  }
  const bool is_known = newest_.has_value() && can_rejoin_.contains(local_rank);
  if (is_known && generation <= newest_->generation) {
    exchange.reply->set_why(is_newest
                                ? turn_.value_or(over_.value_or(""))
                                : absl::StrCat("generation ", generation.value(), " is over"));
    return Answer(id, absl::OkStatus());
  }
  Answer(id, absl::FailedPreconditionError(absl::StrCat(
                 "end of generation ", generation.value(), ": local rank ", local_rank,
                 is_newest ? " is being stopped" : " is not one of its workers",
                 newest_.has_value()
                     ? absl::StrCat("; the newest here is ", newest_->generation.value())
                     : "; none has begun here",
                 turn_.has_value() && !turn_->empty() ? absl::StrCat(" (", *turn_, ")") : "")));
}

void AgentServerImpl::Route(uint64_t id, StoreExchange& exchange) {
  const Generation generation(exchange.request->generation());
  if (!newest_.has_value() || generation > newest_->generation) return;
  if (absl::Status fence = Fence(generation); !fence.ok()) return Answer(id, fence);
  if (store_.has_value()) {
    Unpark(id, Waits::kForStore);
    return StepStore(StoreCall{StoreCallId(id), std::move(exchange.operation)});
  }
  if (!exchange.peer.empty()) {
    return Answer(
        id, absl::FailedPreconditionError(absl::StrCat(
                "store ", OperationName(*exchange.request), ": generation ", generation.value(),
                " keeps its store at ", newest_->store_address, ", not at this agent; ask there")));
  }
  Unpark(id, Waits::kForPeer);
  peer_->Forward(id, *exchange.request);
}

void AgentServerImpl::Route(uint64_t id, const MemoryExchange& exchange) {
  absl::StatusOr<agent::v1::KeptMemory> kept = options_.keep_memory(*exchange.request);
  if (kept.ok()) *exchange.reply = *std::move(kept);
  Answer(id, kept.status());
}

void AgentServerImpl::Route(uint64_t id, const StateExchange& exchange) {
  *exchange.reply = options_.node_state();
  if (newest_ && !over_) exchange.reply->set_first_rank(newest_->base_rank);
  Answer(id, absl::OkStatus());
}

absl::Status AgentServerImpl::Fence(Generation generation) const {
  if (generation == newest_->generation) {
    return over_.has_value() ? absl::AbortedError(*over_) : absl::OkStatus();
  }
  const std::string now = over_.has_value()
                              ? absl::StrCat(" and so is its successor (", *over_, ")")
                              : absl::StrCat("; ", newest_->generation.value(), " is current");
  return absl::AbortedError(
      absl::StrCat("generation ", generation.value(), " is over", now, ": get the new assignment"));
}

agent::v1::WorkerAssignment AgentServerImpl::AssignmentOf(uint32_t local_rank) const {
  agent::v1::WorkerAssignment reply;
  reply.set_generation(newest_->generation.value());
  reply.set_rank(newest_->base_rank + local_rank);
  reply.set_local_rank(local_rank);
  reply.set_world_size(newest_->world_size);
  reply.set_local_world_size(options_.worker_count);
  reply.set_group_rank(newest_->group_rank);
  reply.set_group_world_size(newest_->group_world_size);
  reply.set_restart_count(newest_->restart_count);
  reply.set_max_restarts(options_.max_restarts);
  reply.set_run_id(options_.run_id);
  reply.set_master_addr(newest_->master_addr);
  reply.set_master_port(newest_->master_port);
  reply.set_node_address(options_.node_address);
  return reply;
}

// ------------------------------------------------------------- calls that wait

void AgentServerImpl::Park(std::shared_ptr<AgentCall> call, absl::Duration patience) {
  const uint64_t id = call->id();
  const Instant deadline = loop_->Now() + patience;
  parked_.emplace(deadline, id);
  pending_.emplace(id, Pending{std::move(call), deadline, Waits::kForGeneration});
}

void AgentServerImpl::Unpark(uint64_t id, Waits waits) {
  Pending& pending = pending_.at(id);
  parked_.erase({pending.deadline, id});
  pending.waits = waits;
}

void AgentServerImpl::ExpireParked() {
  const Instant now = loop_->Now();
  while (!parked_.empty() && parked_.begin()->first <= now) {
    const uint64_t id = parked_.begin()->second;
    Answer(id, Expired(*pending_.at(id).call));
  }
}

absl::Status AgentServerImpl::Expired(AgentCall& call) const {
  const std::string newest = !newest_.has_value() ? "none has begun here"
                             : over_.has_value()
                                 ? *over_
                                 : absl::StrCat(newest_->generation.value(), " is current here");
  if (const auto* assignment = std::get_if<AssignmentExchange>(&call.exchange())) {
    return absl::DeadlineExceededError(absl::StrCat(
        "assignment: no generation after ", assignment->request->after_generation(),
        " began within ", assignment->request->timeout_ms(), " ms; ", newest, "; ask again"));
  }
  const auto& request = *std::get<StoreExchange>(call.exchange()).request;
  return absl::UnavailableError(absl::StrCat(
      "store ", OperationName(request), ": generation ", request.generation(),
      " did not begin at this agent within ", absl::FormatDuration(options_.generation_wait), "; ",
      newest, "; is this agent cut off from the rendezvous service?"));
}

void AgentServerImpl::StepStore(StoreEvent event) {
  for (StoreAnswer& answer : store_->Step(loop_->Now(), std::move(event))) {
    const uint64_t id = answer.call.value();
    auto& exchange = std::get<StoreExchange>(pending_.at(id).call->exchange());
    if (answer.result.ok()) *exchange.reply = ToProto(*answer.result);
    Answer(id, answer.result.status());
  }
}

void AgentServerImpl::Answer(uint64_t id, const absl::Status& status) {
  const auto node = pending_.extract(id);
  parked_.erase({node.mapped().deadline, id});
  node.mapped().call->Answer(status);
}

}  // namespace

absl::StatusOr<std::unique_ptr<AgentServer>> AgentServer::Start(EventLoop* loop,
                                                                AgentServerOptions options) {
  auto server = std::make_unique<AgentServerImpl>(loop, std::move(options));
  DDPRUN_RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace ddprun::launcher
