#include "tests/fuzz/wire_world.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "rendezvous/wire/grpc_settings.h"
#include "tests/support/loop_until.h"
#include "tests/support/sample_messages.h"

namespace ddprun::rendezvous {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

size_t HeardBut(const RawStream& stream) {
  return static_cast<size_t>(
      std::count_if(stream.received().begin(), stream.received().end(),
                    [](const v1::ServiceMessage& message) { return !message.has_probe(); }));
}

// Without what time changes by itself.
v1::JobStatus Timeless(v1::JobStatus job) {
  job.clear_age_ms();
  job.clear_ledger();
  for (v1::NodeStatus& node : *job.mutable_nodes()) {
    node.clear_silent_ms();
    node.clear_progress_age_ms();
    node.clear_gpus_age_ms();
  }
  for (v1::GenerationStatus& generation : *job.mutable_history()) {
    generation.clear_began_ms_ago();
    generation.clear_ended_ms_ago();
  }
  return job;
}

}  // namespace

// One call. It is gRPC's, too, until it is done.
class WireWorld::Flight {
 public:
  Flight(EventLoop* loop, const std::shared_ptr<grpc::Channel>& channel)
      : inbox_(LoopInbox::Create(loop)), stub_(channel) {}
  ~Flight() { inbox_->Close(); }

  void Start(const std::string& method, const std::string& request) {
    const grpc::Slice slice(request);
    request_ = grpc::ByteBuffer(&slice, 1);
    stub_.UnaryCall(&context_, absl::StrCat("/ddprun.rendezvous.v1.Rendezvous/", method),
                    grpc::StubOptions(), &request_, &reply_,
                    [this, inbox = inbox_](const grpc::Status& status) {
                      inbox->Post([this, status] { status_ = FromGrpcStatus(status); });
                    });
  }
  void Cancel() { context_.TryCancel(); }
  bool done() const { return status_.has_value(); }
  Answer answer() const { return {.status = *status_, .bytes = reply_}; }

 private:
  const std::shared_ptr<LoopInbox> inbox_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer reply_;
  std::optional<absl::Status> status_;
};

WireWorld::WireWorld(std::string token) : loop_(*EventLoop::Create()), token_(std::move(token)) {
  Serve();
}

WireWorld::~WireWorld() { EndService(); }

void WireWorld::Serve() {
  ServerOptions options{.listen = "127.0.0.1:0", .token = token_};
  auto server = RendezvousServer::Start(loop_.get(), &events_, std::move(options));
  DDPRUN_CHECK(server.ok(), server.status().ToString());
  server_ = *std::move(server);
  channel_ = server_->InProcessChannel();
  BeginJob();
}

// gRPC's in-process transport doesn't bear a call while its server ends.
void WireWorld::EndService() {
  agent_->HalfClose();
  DDPRUN_CHECK(Until([this] { return agent_->done(); }), "the agent's stream doesn't end");
  agent_.reset();
  channel_.reset();
  server_->Shutdown();
  server_.reset();
}

void WireWorld::BeginJob() {
  run_id_ = absl::StrCat("job-", ++jobs_begun_);
  AgentMessage join = SampleJoin(run_id_, "good");
  std::get<Join>(join.body).token = token_;
  std::get<Join>(join.body).job.lease = absl::Hours(24);  // it answers no probe
  agent_ = Open();
  agent_->Send(join);
  DDPRUN_CHECK(
      Until([this] { return agent_->Last(&v1::ServiceMessage::has_assignment) != nullptr; }),
      "an agent that keeps the protocol isn't served");
  heard_ = HeardBut(*agent_);
  began_as_ = JobNow();
}

std::unique_ptr<RawStream> WireWorld::Open() {
  return std::make_unique<RawStream>(loop_.get(), channel_);
}

bool WireWorld::Until(const std::function<bool()>& done) {
  return LoopUntil(loop_.get(), done, kPatience);
}

WireWorld::Answer WireWorld::Call(const std::string& method, const std::string& request) {
  const auto flight = std::make_unique<Flight>(loop_.get(), channel_);
  flight->Start(method, request);
  if (method == "WatchEvents") {
    (void)Ping();
    flight->Cancel();
  }
  // The flight must stay as long as gRPC has it.
  DDPRUN_CHECK(Until([&] { return flight->done(); }), "a call doesn't end: " + method);
  return flight->answer();
}

bool WireWorld::Ping() {
  v1::StopJobRequest request;
  request.set_run_id("none of these");
  request.set_token(token_);
  return absl::IsNotFound(Call("StopJob", request.SerializeAsString()).status);
}

std::optional<v1::GetStatusReply> WireWorld::Status(const std::string& run_id) {
  v1::GetStatusRequest request;
  request.set_run_id(run_id);
  request.set_token(token_);
  const Answer answer = Call("GetStatus", request.SerializeAsString());
  v1::GetStatusReply reply;
  if (!answer.status.ok() || !ParseBytes(answer.bytes, &reply)) return std::nullopt;
  return reply;
}

void WireWorld::Knock(const std::string& bytes) {
  const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(server_->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // Otherwise each connection leaves a port that can't be used again for a minute.
  const linger reset{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return;
  send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  (void)Ping();
}

v1::JobStatus WireWorld::JobNow() {
  const std::optional<v1::GetStatusReply> status = Status(run_id_);
  if (!status.has_value()) return {};
  for (const v1::JobStatus& job : status->jobs()) {
    if (job.run_id() == run_id_) return Timeless(job);
  }
  return {};
}

std::string WireWorld::ChangeOfJob() {
  if (agent_->done())
    return absl::StrCat("its agent's stream ended: ", agent_->status().ToString());
  if (HeardBut(*agent_) != heard_) return "its agent heard something";
  const v1::JobStatus now = JobNow();
  if (now.SerializeAsString() == began_as_.SerializeAsString()) return "";
  return absl::StrCat("it was ", began_as_.ShortDebugString(), ", and is ", now.ShortDebugString());
}

void WireWorld::Renew(int most) {
  const std::optional<v1::GetStatusReply> status = Status();
  DDPRUN_CHECK(status.has_value(), "the service doesn't report its status");
  if (status->jobs_size() > most) {
    EndService();
    return Serve();
  }
  if (ChangeOfJob().empty()) return;
  agent_->HalfClose();
  DDPRUN_CHECK(Until([this] { return agent_->done(); }), "the agent's stream doesn't end");
  BeginJob();
}

}  // namespace ddprun::rendezvous
