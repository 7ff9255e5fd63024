#include "rendezvous/client/heartbeat_path.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "rendezvous/wire/grpc_settings.h"

namespace ddprun::rendezvous {
namespace {

constexpr absl::Duration kPauseMin = absl::Milliseconds(100);
constexpr absl::Duration kPauseMax = absl::Seconds(1);

}  // namespace

HeartbeatPath::HeartbeatPath(EventLoop* loop, ClientOptions options, AgentMessage header,
                             uint64_t key, std::function<void()> on_probe)
    : loop_(loop),
      options_(std::move(options)),
      message_(std::move(header)),
      key_(key),
      on_probe_(std::move(on_probe)),
      inbox_(LoopInbox::Create(loop)),
      pause_(kPauseMin),
      retry_timer_(loop, [this] { Try(); }) {
  Try();
}

HeartbeatPath::~HeartbeatPath() {
  inbox_->Close();
  if (call_ != nullptr) call_->Abandon();
}

void HeartbeatPath::Try() {
  call_ = AttendCall::Start(
      this, inbox_, MakeChannel(options_.target, options_.tls, {.keepalive = options_.keepalive}));
}

void HeartbeatPath::OnCallOpen(AttendCall* call) {
  message_.body = Heartbeat{.key = key_};
  call->Write(message_);
}

void HeartbeatPath::OnCallMessage(AttendCall* call, absl::StatusOr<ServiceMessage> message) {
  const Probe* probe = message.ok() ? std::get_if<Probe>(&*message) : nullptr;
  if (probe != nullptr) {
    pause_ = kPauseMin;
    message_.body = Renewal{.nonce = probe->nonce};
    call->Write(message_);
    const auto inbox = inbox_;
    const auto on_probe = on_probe_;
    on_probe();
    if (!inbox->open()) return;  // it destroyed us
  }
  call->ReadNext();
}

// Errors aren't reported here: the agent's own stream has the same ones.
void HeartbeatPath::OnCallDone(AttendCall* /*call*/, const grpc::Status& /*status*/) {
  call_.reset();
  retry_timer_.Arm(loop_->Now() + pause_);
  pause_ = std::min(2 * pause_, kPauseMax);
}

}  // namespace ddprun::rendezvous
