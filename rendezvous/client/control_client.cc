#include "rendezvous/client/control_client.h"

#include <grpc/support/time.h>
#include <grpcpp/client_context.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "ddprun/rendezvous/v1/rendezvous.grpc.pb.h"
#include "rendezvous/client/failure_text.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/wire/field_checker.h"
#include "rendezvous/wire/grpc_settings.h"
#include "rendezvous/wire/status_pages.h"

namespace ddprun::rendezvous {
namespace {

gpr_timespec DeadlineIn(absl::Duration timeout) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_millis(absl::ToInt64Milliseconds(timeout), GPR_TIMESPAN));
}

void SetTimeout(absl::Duration timeout, grpc::ClientContext* context) {
  context->set_deadline(DeadlineIn(timeout));
}

// One attempt to connect may take all of `timeout`, because a slow machine answers late; never less
// than the default.
std::shared_ptr<grpc::Channel> Connect(const std::string& target, const TlsFiles& tls,
                                       absl::Duration timeout) {
  GrpcLimits limits;
  limits.connect_timeout = std::max(limits.connect_timeout, timeout);
  return MakeChannel(target, tls, limits);
}

absl::Status Describe(const std::string& name, const grpc::Status& status) {
  absl::Status described = DescribeFailure(name, status);
  // What the service says itself, and what is a whole sentence already.
  if (!IsWorthRetrying(described) || absl::IsNotFound(described)) return described;
  return {described.code(),
          absl::StrCat("cannot reach the rendezvous service at ", name, ": ", described.message())};
}

}  // namespace

absl::StatusOr<v1::GetStatusReply> FetchStatus(const ServiceAddress& service,
                                               const std::string& run_id, absl::Duration timeout,
                                               const std::string& token, const TlsFiles& tls) {
  const auto stub = v1::Rendezvous::NewStub(Connect(service.target, tls, timeout));
  v1::GetStatusReply reply;
  const grpc::Status status =
      FetchWholeStatus(*stub, ValidUtf8(run_id), ValidUtf8(token), timeout, &reply);
  if (!status.ok()) return Describe(service.name, status);
  return reply;
}

absl::Status RequestStop(const ServiceAddress& service, const std::string& run_id,
                         const std::string& token, const std::string& reason,
                         absl::Duration timeout, const TlsFiles& tls) {
  const auto stub = v1::Rendezvous::NewStub(Connect(service.target, tls, timeout));
  grpc::ClientContext context;
  SetTimeout(timeout, &context);
  v1::StopJobRequest request;
  request.set_run_id(ValidUtf8(run_id));
  request.set_token(ValidUtf8(token));
  request.set_reason(CutText(reason, kTextBytesMax));
  v1::StopJobReply reply;
  return Describe(service.name, stub->StopJob(&context, request, &reply));
}

absl::StatusOr<v1::DrainNodeReply> RequestDrain(const ServiceAddress& service,
                                                const v1::DrainNodeRequest& request,
                                                absl::Duration timeout, const TlsFiles& tls) {
  const auto stub = v1::Rendezvous::NewStub(Connect(service.target, tls, timeout));
  grpc::ClientContext context;
  SetTimeout(timeout, &context);
  v1::DrainNodeReply reply;
  const grpc::Status status = stub->DrainNode(&context, request, &reply);
  if (!status.ok()) return Describe(service.name, status);
  return reply;
}

bool AwaitService(const ServiceAddress& service, absl::Duration patience, const TlsFiles& tls) {
  return Connect(service.target, tls, patience)->WaitForConnected(DeadlineIn(patience));
}

absl::Status WatchEvents(
    const ServiceAddress& service, const v1::WatchEventsRequest& request, absl::Duration timeout,
    const std::function<bool(const std::string& run_id, const v1::JobEvent&)>& on_event,
    const TlsFiles& tls) {
  const auto stub = v1::Rendezvous::NewStub(Connect(service.target, tls, timeout));
  grpc::ClientContext context;
  if (!request.follow()) SetTimeout(timeout, &context);
  const auto reader = stub->WatchEvents(&context, request);
  v1::JobEvents events;
  bool ended = false;
  while (reader->Read(&events)) {
    for (const v1::JobEvent& event : events.events()) {
      ended = ended || event.event() == "verdict";
      if (on_event(events.run_id(), event)) continue;
      context.TryCancel();
      while (reader->Read(&events)) {
      }
      reader->Finish();  // cancelled
      return absl::OkStatus();
    }
  }
  const grpc::Status status = reader->Finish();
  // After the verdict the service may be gone before it has said goodbye.
  return status.ok() || ended ? absl::OkStatus() : Describe(service.name, status);
}

}  // namespace ddprun::rendezvous
