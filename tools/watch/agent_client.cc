#include "tools/watch/agent_client.h"

#include <grpc/support/time.h>
#include <grpcpp/client_context.h>

#include "absl/strings/str_cat.h"
#include "ddprun/agent/v1/agent.grpc.pb.h"
#include "rendezvous/client/failure_text.h"
#include "rendezvous/wire/grpc_settings.h"

namespace ddprun::launcher {
namespace {

// This process never cancels a call, so CANCELLED means that the agent ends.
absl::Status DescribeAgentFailure(const std::string& target, const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::CANCELLED) {
    return absl::UnavailableError(absl::StrCat(target, ": the agent there ends"));
  }
  return rendezvous::DescribeFailure(target, status, "agent");
}

}  // namespace

absl::Status ReadLogs(const rendezvous::ServiceAddress& agent,
                      const agent::v1::ReadLogsRequest& request,
                      const std::function<void(const agent::v1::LogPiece&)>& on_piece,
                      const TlsFiles& tls) {
  const auto stub = agent::v1::Agent::NewStub(rendezvous::MakeChannel(agent.target, tls));
  grpc::ClientContext context;
  const auto reader = stub->ReadLogs(&context, request);
  agent::v1::LogPiece piece;
  while (reader->Read(&piece)) on_piece(piece);
  const grpc::Status status = reader->Finish();
  return status.ok() ? absl::OkStatus() : DescribeAgentFailure(agent.name, status);
}

absl::StatusOr<agent::v1::NodeState> FetchNodeState(const std::string& target,
                                                    absl::Duration timeout) {
  const auto stub = agent::v1::Agent::NewStub(rendezvous::MakeChannel(target));
  grpc::ClientContext context;
  context.set_deadline(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                   gpr_time_from_nanos(absl::ToInt64Nanoseconds(timeout), GPR_TIMESPAN)));
  agent::v1::NodeState state;
  const grpc::Status status = stub->GetNodeState(&context, {}, &state);
  if (!status.ok()) return DescribeAgentFailure(target, status);
  return state;
}

}  // namespace ddprun::launcher
