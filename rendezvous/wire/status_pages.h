#ifndef DDPRUN_RENDEZVOUS_WIRE_STATUS_PAGES_H_
#define DDPRUN_RENDEZVOUS_WIRE_STATUS_PAGES_H_

#include <cstddef>
#include <string>

#include "absl/time/time.h"
#include "ddprun/rendezvous/v1/rendezvous.grpc.pb.h"
#include "rendezvous/core/bounds.h"

// A status of thousands of nodes is longer than a message may be: it goes over the wire in pages.
namespace ddprun::rendezvous {

// Bytes of nodes in one page; the rest of a message is for what else is said of the jobs.
inline constexpr size_t kPageBytes = kMessageBytesMax / 2;
inline constexpr size_t kHeadBytes = kMessageBytesMax / 4;

// Whether the job is in it; true for "", which is all jobs. Pure.
bool HasJob(const v1::GetStatusReply& whole, const std::string& run_id);

// Of `whole`, the jobs that the request asks for, each with the nodes from its first_node on, as
// many as there is room for. At least one node comes where one is left, of the first such job. Jobs
// beyond kHeadBytes are left out: they can be asked for by name. Pure.
v1::GetStatusReply PageOf(const v1::GetStatusReply& whole, const v1::GetStatusRequest& request,
                          size_t page_bytes = kPageBytes);

// Asks for all pages, puts them together, and notes who lags (lag.h): `run_id` "" = all jobs;
// `token` "" = none. `timeout`: of all calls; a node that comes or goes meanwhile may be missing or
// be there twice. Blocking: not for a loop.
grpc::Status FetchWholeStatus(v1::Rendezvous::StubInterface& stub, const std::string& run_id,
                              const std::string& token, absl::Duration timeout,
                              v1::GetStatusReply* reply);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_STATUS_PAGES_H_
