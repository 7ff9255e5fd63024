#include "launcher/watch/log_client.h"

#include <grpcpp/client_context.h>

#include "ddprun/agent/v1/agent.grpc.pb.h"
#include "rendezvous/client/failure_text.h"
#include "rendezvous/wire/grpc_settings.h"

namespace ddprun::launcher {

absl::Status ReadLogs(const std::string& target, const agent::v1::ReadLogsRequest& request,
                      const std::function<void(const agent::v1::LogPiece&)>& on_piece) {
  const auto stub = agent::v1::Agent::NewStub(rendezvous::MakeChannel(target));
  grpc::ClientContext context;
  const auto reader = stub->ReadLogs(&context, request);
  agent::v1::LogPiece piece;
  while (reader->Read(&piece)) on_piece(piece);
  const grpc::Status status = reader->Finish();
  return status.ok() ? absl::OkStatus() : rendezvous::DescribeFailure(target, status);
}

}  // namespace ddprun::launcher
