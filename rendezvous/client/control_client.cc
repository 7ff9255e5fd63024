#include "rendezvous/client/control_client.h"

#include <grpcpp/client_context.h>

#include "absl/strings/str_cat.h"
#include "ddprun/rendezvous/v1/rendezvous.grpc.pb.h"
#include "rendezvous/wire/grpc_settings.h"
#include "rendezvous/wire/grpc_status.h"

namespace ddprun::rendezvous {
namespace {

// gRPC counts deadlines on a clock of its own when they are given as a span.
void SetTimeout(grpc::ClientContext* context, absl::Duration timeout) {
  context->set_deadline(gpr_time_from_millis(absl::ToInt64Milliseconds(timeout), GPR_TIMESPAN));
}

absl::Status Explain(const std::string& target, const grpc::Status& status) {
  const absl::Status plain = FromGrpcStatus(status);
  if (absl::IsUnavailable(plain) || absl::IsDeadlineExceeded(plain)) {
    return {plain.code(),
            absl::StrCat("no rendezvous service answers at ", target, ": ", plain.message())};
  }
  return plain;
}

}  // namespace

absl::StatusOr<v1::GetStatusReply> FetchStatus(const std::string& target, const std::string& run_id,
                                               absl::Duration timeout) {
  const auto stub = v1::Rendezvous::NewStub(MakeChannel(target));
  grpc::ClientContext context;
  SetTimeout(&context, timeout);
  v1::GetStatusRequest request;
  request.set_run_id(run_id);
  v1::GetStatusReply reply;
  const grpc::Status status = stub->GetStatus(&context, request, &reply);
  if (!status.ok()) return Explain(target, status);
  return reply;
}

absl::Status RequestStop(const std::string& target, const std::string& run_id,
                         const std::string& token, const std::string& reason,
                         absl::Duration timeout) {
  const auto stub = v1::Rendezvous::NewStub(MakeChannel(target));
  grpc::ClientContext context;
  SetTimeout(&context, timeout);
  v1::StopJobRequest request;
  request.set_run_id(run_id);
  request.set_token(token);
  request.set_reason(reason);
  v1::StopJobReply reply;
  const grpc::Status status = stub->StopJob(&context, request, &reply);
  return status.ok() ? absl::OkStatus() : Explain(target, status);
}

}  // namespace ddprun::rendezvous
