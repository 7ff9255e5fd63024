#include "launcher/cli/control_commands.h"

#include <google/protobuf/util/json_util.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/log.h"
#include "rendezvous/client/control_client.h"

namespace ddprun::launcher {
namespace {

std::string Target(const QueryOptions& options) {
  const bool literal_v6 = options.host.find(':') != std::string::npos;
  return literal_v6 ? absl::StrCat("[", options.host, "]:", options.port)
                    : absl::StrCat(options.host, ":", options.port);
}

int Fail(const absl::Status& status) {
  Tell(absl::StrCat("error: ", status.message()));
  return 1;
}

void PrintNode(const rendezvous::v1::NodeStatus& node) {
  const std::string rank = node.has_group_rank() ? absl::StrCat(node.group_rank()) : "-";
  absl::PrintF("  %5s  %-28s %-12s %8d %8.1fs  %s\n", rank, node.node_id(), node.state(),
               node.worker_count(), static_cast<double>(node.silent_ms()) / 1e3, node.address());
  if (!node.guards().empty()) absl::PrintF("         guards: %s\n", node.guards());
}

void PrintJob(const rendezvous::v1::JobStatus& job) {
  absl::PrintF("job %s: %s, generation %d, restarts %d of %d\n  %s\n", job.run_id(), job.phase(),
               job.generation(), job.restart_count(), job.max_restarts(), job.description());
  if (!job.reason().empty()) absl::PrintF("  %s\n", job.reason());
  absl::PrintF("  %5s  %-28s %-12s %8s %9s  %s\n", "rank", "node", "state", "workers", "silent",
               "address");
  for (const auto& node : job.nodes()) PrintNode(node);
}

}  // namespace

int ShowStatus(const StatusOptions& options) {
  const absl::StatusOr<rendezvous::v1::GetStatusReply> reply =
      rendezvous::FetchStatus(Target(options), options.run_id, options.timeout);
  if (!reply.ok()) return Fail(reply.status());
  if (options.json) {
    std::string text;
    google::protobuf::util::JsonPrintOptions format;
    format.preserve_proto_field_names = true;
    format.always_print_primitive_fields = true;
    const auto status = google::protobuf::util::MessageToJsonString(*reply, &text, format);
    if (!status.ok()) return Fail(absl::InternalError(status.ToString()));
    std::puts(text.c_str());
    return 0;
  }
  absl::PrintF("ddprun rendezvous service %s at %s, term %x, %d jobs\n", reply->release(),
               Target(options), reply->term(), reply->jobs_size());
  for (const auto& job : reply->jobs()) PrintJob(job);
  return 0;
}

int StopJob(const StopOptions& options) {
  const absl::Status status = rendezvous::RequestStop(
      Target(options), options.run_id, options.token, options.reason, options.timeout);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace ddprun::launcher
