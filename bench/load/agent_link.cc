#include "bench/load/agent_link.h"

#include <arpa/inet.h>
#include <grpcpp/create_channel_posix.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "rendezvous/wire/grpc_settings.h"

namespace ddprun::bench {
namespace {

using rendezvous::AttendCall;

constexpr absl::Duration kPatienceMax = absl::Seconds(8);

// 127.0.0.2 and so on: no address twice, and none that ends with 0 or 255.
sockaddr_in AddressOf(uint32_t host) {
  constexpr uint32_t kInBlock = 250;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(0x7f000000U + ((host / kInBlock) << 8U) + host % kInBlock + 2);
  return address;
}

}  // namespace

AgentLink::AgentLink(const LinkPlace* place, uint32_t host, rendezvous::ReconnectSettings pauses,
                     absl::Duration patience, Handler* handler)
    : place_(place),
      host_(host),
      first_patience_(patience),
      handler_(handler),
      pauses_(pauses, RandomNumber(), place->loop->Now()),
      patience_(patience),
      retry_(place->loop, [this] { Try(); }),
      timeout_(place->loop, [this] { OnTimeout(); }) {}

AgentLink::~AgentLink() {
  if (call_ != nullptr) call_->Abandon();
}

void AgentLink::Begin() {
  wanted_ = true;
  if (call_ == nullptr && !connecting_.valid()) Try();
}

void AgentLink::Try() {
  open_ = false;
  heard_ = false;
  if (first_patience_ < absl::InfiniteDuration()) timeout_.Arm(place_->loop->Now() + patience_);
  connecting_.Reset(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  DDPRUN_CHECK(connecting_.valid(), "no descriptor is left: raise ulimit -n");
  const sockaddr_in own = AddressOf(host_);
  sockaddr_in service{};
  service.sin_family = AF_INET;
  service.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  service.sin_port = htons(static_cast<in_port_t>(place_->port));
  const int bound = bind(connecting_.get(), reinterpret_cast<const sockaddr*>(&own), sizeof(own));
  DDPRUN_CHECK(bound == 0, "127.0.0.0/8 is not this machine's");
  if (connect(connecting_.get(), reinterpret_cast<const sockaddr*>(&service), sizeof(service)) !=
          0 &&
      errno != EINPROGRESS) {
    return Retry();
  }
  watch_ = std::make_unique<FdWatch>(place_->loop, connecting_.get(), FdWatch::Writable(),
                                     [this] { OnConnected(); });
}

void AgentLink::OnConnected() {
  watch_.reset();
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(connecting_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return Retry();
  socket_ = connecting_.Release();
  call_ = AttendCall::Start(
      this, place_->inbox,
      grpc::CreateCustomInsecureChannelFromFd(
          "service", socket_, rendezvous::ChannelSettings({.keepalive = place_->keepalive})));
}

void AgentLink::Retry() {
  watch_.reset();
  connecting_.Reset();
  timeout_.Disarm();
  if (!wanted_) return;
  const Instant now = place_->loop->Now();
  retry_.Arm(now + (heard_ ? pauses_.AfterStream() : pauses_.AfterFailure(now)));
}

void AgentLink::OnTimeout() {
  patience_ = std::min(2 * patience_, kPatienceMax);
  if (call_ != nullptr) return call_->Cancel();
  Retry();
}

void AgentLink::Write(const rendezvous::AgentMessage& message) {
  if (open() && !frozen_) call_->Write(message);
}

void AgentLink::HalfClose() {
  wanted_ = false;
  if (call_ != nullptr) call_->HalfClose();
}

void AgentLink::Cut() {
  if (call_ != nullptr) shutdown(socket_, SHUT_RDWR);
  Rest();
}

void AgentLink::Rest() {
  wanted_ = false;
  open_ = false;
  retry_.Disarm();
  timeout_.Disarm();
  watch_.reset();
  connecting_.Reset();
  if (call_ != nullptr) std::exchange(call_, nullptr)->Cancel();
}

LinkBytes AgentLink::bytes() const { return open() ? BytesOf(socket_) : LinkBytes(); }

// ------------------------------------------------------------- the stream

void AgentLink::OnCallOpen(AttendCall* call) {
  if (call != call_.get()) return;
  open_ = true;
  timeout_.Disarm();
  patience_ = first_patience_;
  handler_->OnLinkOpen(this);
}

void AgentLink::OnCallMessage(AttendCall* call,
                              absl::StatusOr<rendezvous::ServiceMessage> message) {
  if (call == call_.get() && frozen_) return;  // a frozen link stops reading
  if (call == call_.get() && message.ok()) {
    heard_ = true;
    handler_->OnLinkMessage(this, *std::move(message));
  }
  call->ReadNext();
}

void AgentLink::OnCallDone(AttendCall* call, const grpc::Status& /*status*/) {
  if (call != call_.get()) return;
  call_.reset();
  open_ = false;
  handler_->OnLinkClosed(this);
  Retry();
}

}  // namespace ddprun::bench
