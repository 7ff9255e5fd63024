#include "rendezvous/client/rendezvous_client.h"

#include <grpcpp/channel.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "rendezvous/client/attend_stream.h"
#include "rendezvous/wire/grpc_settings.h"

namespace ddprun::rendezvous {
namespace {

// Statuses with which the service, or something else at its address, says no for good; OK is an
// orderly end. All others may pass.
bool IsRefusal(absl::StatusCode code) {
  static constexpr absl::StatusCode kRefusals[] = {
      absl::StatusCode::kOk,
      absl::StatusCode::kFailedPrecondition,
      absl::StatusCode::kUnauthenticated,
      absl::StatusCode::kInvalidArgument,
      absl::StatusCode::kAlreadyExists,
      absl::StatusCode::kAborted,
      absl::StatusCode::kResourceExhausted,
      absl::StatusCode::kPermissionDenied,
      absl::StatusCode::kUnimplemented,
  };
  return std::find(std::begin(kRefusals), std::end(kRefusals), code) != std::end(kRefusals);
}

// A peer that speaks, but not gRPC, or gRPC without our service. gRPC tells it in words only.
bool IsForeignPeer(const absl::Status& status) {
  if (status.code() == absl::StatusCode::kUnimplemented) return true;
  for (const char* sign :
       {"http2 header with status", "Trying to connect an http1.x server", "Failed parsing HTTP/2",
        "unexpected bytes", "Expected SETTINGS frame"}) {
    if (absl::StrContains(std::string(status.message()), sign)) return true;
  }
  return false;
}

class RendezvousClientImpl final : public RendezvousClient {
 public:
  RendezvousClientImpl(EventLoop* loop, ClientOptions options, Callbacks callbacks,
                       std::shared_ptr<grpc::Channel> channel)
      : loop_(loop),
        options_(std::move(options)),
        callbacks_(std::move(callbacks)),
        channel_(channel != nullptr ? std::move(channel) : MakeChannel(options_.target)),
        stub_(v1::Rendezvous::NewStub(channel_)),
        backoff_(options_.backoff_min),
        jitter_(RandomNumber()),
        retry_(loop, [this] { Open(); }) {
    Open();
  }

  ~RendezvousClientImpl() override {
    if (stream_ != nullptr) stream_->Abandon();
  }

  bool Send(const AgentMessage& message) override {
    return open_ && stream_ != nullptr && stream_->Send(message);
  }

  void Finish() override {
    finishing_ = true;
    retry_.Disarm();
    if (stream_ == nullptr) return;
    stream_->Finish();
  }

 private:
  void Open() {
    stream_ = AttendStream::Start(
        loop_, stub_.get(),
        {.on_open =
             [this] {
               open_ = true;
               callbacks_.on_stream_open();
             },
         .on_message =
             [this](ServiceMessage message) {
               // It works: the next loss is a new one.
               backoff_ = options_.backoff_min;
               was_served_ = true;
               callbacks_.on_message(std::move(message));
             },
         .on_closed = [this](absl::Status status) { OnClosed(std::move(status)); }});
  }

  void OnClosed(absl::Status status) {
    stream_.reset();
    open_ = false;
    if (IsForeignPeer(status)) {
      status = absl::FailedPreconditionError(
          absl::StrCat("what answers at ", options_.target, " is not a ddprun rendezvous service (",
                       status.message(), "): another program has this port; choose a free one"));
    }
    const bool will_retry = !finishing_ && !IsRefusal(status.code());
    if (will_retry) ArmRetry();
    callbacks_.on_stream_closed(status, will_retry);
  }

  // The first try after a stream that worked comes at once; then 100 ms doubling to 1 s, each ±20 %
  // so that the agents of a large job don't come in step.
  void ArmRetry() {
    if (std::exchange(was_served_, false)) return retry_.Arm(loop_->Now());
    const double factor = 0.8 + static_cast<double>(jitter_.Below(401)) / 1000.0;
    retry_.Arm(loop_->Now() + backoff_ * factor);
    backoff_ = std::min(backoff_ * 2, options_.backoff_max);
  }

  EventLoop* const loop_;
  const ClientOptions options_;
  const Callbacks callbacks_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Rendezvous::Stub> stub_;
  absl::Duration backoff_;
  Rng jitter_;
  Timer retry_;
  std::shared_ptr<AttendStream> stream_;
  bool open_ = false;
  bool was_served_ = false;
  bool finishing_ = false;
};

}  // namespace

std::unique_ptr<RendezvousClient> RendezvousClient::Start(EventLoop* loop, ClientOptions options,
                                                          Callbacks callbacks,
                                                          std::shared_ptr<grpc::Channel> channel) {
  return std::make_unique<RendezvousClientImpl>(loop, std::move(options), std::move(callbacks),
                                                std::move(channel));
}

}  // namespace ddprun::rendezvous
