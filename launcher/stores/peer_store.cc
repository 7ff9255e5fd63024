#include "launcher/stores/peer_store.h"

#include <grpc/support/time.h>
#include <grpcpp/client_context.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "rendezvous/wire/grpc_settings.h"

namespace ddprun::launcher {
namespace {

using agent::v1::StoreReply;
using agent::v1::StoreRequest;

template <typename Keys>
std::vector<std::string> ListOf(const Keys& keys) {
  return {keys.begin(), keys.end()};
}

}  // namespace

absl::StatusOr<StoreOperation> FromProto(const StoreRequest& request) {
  switch (request.operation_case()) {
    case StoreRequest::kSet:
      return SetKey{request.set().key(), request.set().value()};
    case StoreRequest::kGet:
      return GetKey{request.get().key(), TimeoutOf(request)};
    case StoreRequest::kWait:
      return WaitForKeys{ListOf(request.wait().keys()), TimeoutOf(request)};
    case StoreRequest::kAdd:
      return AddToKey{request.add().key(), request.add().amount()};
    case StoreRequest::kCheck:
      return CheckKeys{ListOf(request.check().keys())};
    case StoreRequest::kDelete:
      return DeleteKey{request.delete_().key()};
    case StoreRequest::kCompareSet:
      return CompareAndSetKey{request.compare_set().key(), request.compare_set().expected(),
                              request.compare_set().desired()};
    case StoreRequest::kCount:
      return CountKeys{};
    case StoreRequest::kGather:
      return GatherKeys{request.gather().key(), request.gather().value(),
                        ListOf(request.gather().keys()), TimeoutOf(request)};
    case StoreRequest::OPERATION_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "store: the request has no operation that this agent knows; are the sender's and the agent's "
      "releases the same?");
}

StoreReply ToProto(const StoreResult& result) {
  StoreReply reply;
  if (result.value != nullptr) reply.set_value(*result.value);
  reply.set_number(result.number);
  reply.set_found(result.found);
  for (const auto& value : result.values) reply.add_values(*value);
  return reply;
}

std::string OperationName(const StoreRequest& request) {
  switch (request.operation_case()) {
    case StoreRequest::kSet:
      return "set";
    case StoreRequest::kGet:
      return "get";
    case StoreRequest::kWait:
      return "wait";
    case StoreRequest::kAdd:
      return "add";
    case StoreRequest::kCheck:
      return "check";
    case StoreRequest::kDelete:
      return "delete";
    case StoreRequest::kCompareSet:
      return "compare_set";
    case StoreRequest::kCount:
      return "count";
    case StoreRequest::kGather:
      return "gather";
    case StoreRequest::OPERATION_NOT_SET:
      break;
  }
  return "unknown";
}

absl::Duration TimeoutOf(const StoreRequest& request) {
  if (request.has_get()) return absl::Milliseconds(request.get().timeout_ms());
  if (request.has_wait()) return absl::Milliseconds(request.wait().timeout_ms());
  if (request.has_gather()) return absl::Milliseconds(request.gather().timeout_ms());
  return absl::ZeroDuration();
}

namespace {

constexpr absl::Duration kDeadlineEarly = absl::Milliseconds(2);

// Whether the status is the other agent's answer, which is passed on, and not an error of gRPC.
bool IsAnswer(absl::StatusCode code) {
  static constexpr std::array kAnswers = {
      absl::StatusCode::kOk,
      absl::StatusCode::kAborted,
      absl::StatusCode::kDeadlineExceeded,
      absl::StatusCode::kFailedPrecondition,
      absl::StatusCode::kInvalidArgument,
      absl::StatusCode::kPermissionDenied,
      absl::StatusCode::kResourceExhausted,
  };
  return std::find(kAnswers.begin(), kAnswers.end(), code) != kAnswers.end();
}

}  // namespace

struct PeerStore::Call {
  std::string operation;
  absl::Duration patience;
  Instant deadline;
  grpc::ClientContext context;
  agent::v1::StoreReply reply;
};

PeerStore::PeerStore(EventLoop* loop, Options options, OnReply on_reply)
    : loop_(loop),
      options_(std::move(options)),
      on_reply_(std::move(on_reply)),
      inbox_(LoopInbox::Create(loop)),
      channel_(rendezvous::MakeChannel(options_.address, options_.tls,
                                       {.message_bytes = kAgentMessageBytesMax})),
      stub_(agent::v1::Agent::NewStub(channel_)) {}

PeerStore::~PeerStore() {
  for (const auto& [id, call] : calls_) call->context.TryCancel();
  calls_.clear();
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return running_ == 0; });
  lock.unlock();
  inbox_->RunPostedAndClose();
}

bool PeerStore::Failing() const {
  return channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_TRANSIENT_FAILURE;
}

void PeerStore::Forward(uint64_t id, const agent::v1::StoreRequest& request) {
  DDPRUN_CHECK(!calls_.contains(id), "a call is forwarded twice");
  const auto call = std::make_shared<Call>();
  calls_.emplace(id, call);
  call->operation = OperationName(request);
  call->patience = TimeoutOf(request) + options_.margin;
  call->deadline = loop_->Now() + call->patience;
  if (!options_.token.empty()) call->context.AddMetadata(kTokenMetadata, options_.token);
  call->context.set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                   gpr_time_from_millis(absl::ToInt64Milliseconds(call->patience), GPR_TIMESPAN)));
  {
    const std::lock_guard lock(mutex_);
    ++running_;
  }
  stub_->async()->Store(
      &call->context, &request, &call->reply, [this, id, call](const grpc::Status& status) {
        inbox_->Post([this, id, status] { OnDone(id, rendezvous::FromGrpcStatus(status)); });
        const std::lock_guard lock(mutex_);
        // Under the lock: after it the destructor may have ended.
        if (--running_ == 0) idle_.notify_all();
      });
}

void PeerStore::Cancel(uint64_t id) {
  const auto found = calls_.find(id);
  if (found == calls_.end()) return;
  found->second->context.TryCancel();
  calls_.erase(found);
}

void PeerStore::OnDone(uint64_t id, const absl::Status& status) {
  const auto found = calls_.find(id);
  if (found == calls_.end()) return;  // cancelled
  const std::shared_ptr<Call> call = std::move(found->second);
  calls_.erase(found);
  on_reply_(id, Judge(*call, status), &call->reply);
}

absl::Status PeerStore::Judge(const Call& call, const absl::Status& status) const {
  // gRPC counts milliseconds, of a clock that it has read before, and may be early by some.
  const bool silent = loop_->Now() + kDeadlineEarly >= call.deadline;
  if (IsAnswer(status.code()) && !(silent && absl::IsDeadlineExceeded(status))) return status;
  const std::string why =
      silent ? absl::StrCat("gave no answer within ", absl::FormatDuration(call.patience))
             : absl::StrCat("is unavailable (", std::string(status.message()), ")");
  return absl::UnavailableError(
      absl::StrCat("store ", call.operation, ": rank 0's agent at ", options_.address, " ", why,
                   "; its node may be lost, wait for the next generation"));
}

}  // namespace ddprun::launcher
