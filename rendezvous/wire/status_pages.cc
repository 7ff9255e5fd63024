#include "rendezvous/wire/status_pages.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "rendezvous/wire/training.h"

namespace ddprun::rendezvous {

bool HasJob(const v1::GetStatusReply& whole, const std::string& run_id) {
  return run_id.empty() ||
         std::any_of(whole.jobs().begin(), whole.jobs().end(),
                     [&](const v1::JobStatus& job) { return job.run_id() == run_id; });
}

v1::GetStatusReply PageOf(const v1::GetStatusReply& whole, const v1::GetStatusRequest& request,
                          size_t page_bytes) {
  v1::GetStatusReply page;
  page.set_term(whole.term());
  page.set_release(whole.release());
  *page.mutable_jobs_ended() = whole.jobs_ended();
  size_t heads = 0;  // bytes of the jobs without their nodes
  size_t bytes = 0;  // of nodes
  for (const v1::JobStatus& job : whole.jobs()) {
    if (!request.run_id().empty() && job.run_id() != request.run_id()) continue;
    v1::JobStatus* listed = page.add_jobs();
    // All but the nodes.
    *listed->mutable_history() = job.history();
    *listed->mutable_ledger() = job.ledger();
    *listed->mutable_counted() = job.counted();
    *listed->mutable_drained() = job.drained();
    listed->set_run_id(job.run_id());
    listed->set_description(job.description());
    listed->set_phase(job.phase());
    listed->set_reason(job.reason());
    listed->set_generation(job.generation());
    listed->set_restart_count(job.restart_count());
    listed->set_max_restarts(job.max_restarts());
    listed->set_restarts_charged(job.restarts_charged());
    listed->set_age_ms(job.age_ms());
    listed->set_recoveries(job.recoveries());
    listed->set_record(job.record());
    listed->set_record_lost(job.record_lost());
    listed->set_nodes_total(static_cast<uint32_t>(job.nodes_size()));
    heads += listed->ByteSizeLong();
    if (heads > kHeadBytes && page.jobs_size() > 1) {
      page.mutable_jobs()->RemoveLast();
      break;
    }
    for (uint32_t i = request.first_node(); i < listed->nodes_total(); ++i) {
      const v1::NodeStatus& node = job.nodes(static_cast<int>(i));
      const size_t more = node.ByteSizeLong();
      if (bytes > 0 && bytes + more > page_bytes) break;
      bytes += more;
      *listed->add_nodes() = node;
    }
  }
  return page;
}

grpc::Status FetchWholeStatus(v1::Rendezvous::StubInterface& stub, const std::string& run_id,
                              const std::string& token, absl::Duration timeout,
                              v1::GetStatusReply* reply) {
  const gpr_timespec deadline =
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                   gpr_time_from_millis(absl::ToInt64Milliseconds(timeout), GPR_TIMESPAN));
  const auto ask = [&](const std::string& job, uint32_t first_node, v1::GetStatusReply* page) {
    grpc::ClientContext context;
    context.set_deadline(deadline);
    v1::GetStatusRequest request;
    request.set_run_id(job);
    request.set_first_node(first_node);
    request.set_token(token);
    return stub.GetStatus(&context, request, page);
  };
  if (grpc::Status status = ask(run_id, 0, reply); !status.ok()) return status;
  for (v1::JobStatus& job : *reply->mutable_jobs()) {
    while (job.nodes_size() < static_cast<int>(job.nodes_total())) {
      v1::GetStatusReply page;
      grpc::Status status = ask(job.run_id(), static_cast<uint32_t>(job.nodes_size()), &page);
      if (status.error_code() == grpc::StatusCode::NOT_FOUND) break;  // the job has ended meanwhile
      if (!status.ok()) return status;
      if (page.jobs_size() == 0 || page.jobs(0).nodes_size() == 0) break;  // they left meanwhile
      job.mutable_nodes()->MergeFrom(page.jobs(0).nodes());
    }
    NoteLag(&job);
  }
  return grpc::Status::OK;
}

}  // namespace ddprun::rendezvous
