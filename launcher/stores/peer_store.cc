#include "launcher/stores/peer_store.h"

#include <algorithm>
#include <array>
#include <utility>

#include <grpc/support/time.h>
#include <grpcpp/client_context.h>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "launcher/stores/store_wire.h"
#include "rendezvous/wire/grpc_settings.h"
#include "rendezvous/wire/grpc_status.h"

namespace ddprun::launcher {
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
