#ifndef DDPRUN_RENDEZVOUS_WIRE_STATUS_PAGES_H_
#define DDPRUN_RENDEZVOUS_WIRE_STATUS_PAGES_H_

#include <cstddef>
#include <string>

#include "absl/time/time.h"
#include "ddprun/rendezvous/v1/rendezvous.grpc.pb.h"
#include "ddprun/rendezvous/v1/status.pb.h"
#include "rendezvous/core/bounds.h"

// A status of thousands of nodes is longer than a message may be, so it goes over the wire in
// pages.
namespace ddprun::rendezvous {

// Bytes of nodes in one page; the rest of a message is for the jobs' other fields.
inline constexpr size_t kPageBytes = kMessageBytesMax / 2;
inline constexpr size_t kHeadBytes = kMessageBytesMax / 4;

// Whether the status has the job; true for "", which means all jobs. Pure.
bool HasJob(const v1::GetStatusReply& whole, const std::string& run_id);

// Returns the requested jobs of `whole`, each with its nodes from first_node on, as many as there
// is room for: at least one node of the first job that has one left. Jobs beyond kHeadBytes are
// left out; they can be asked for by name. Pure.
v1::GetStatusReply PageOf(const v1::GetStatusReply& whole, const v1::GetStatusRequest& request,
                          size_t page_bytes = kPageBytes);

// Asks for all pages, puts them together, and applies NoteLag() (training.h). Params: run_id: "" =
// all jobs; token: "" = none; timeout: of all calls together. A node that comes or goes meanwhile
// may be missing or occur twice. Blocking: not for a loop.
grpc::Status FetchWholeStatus(v1::Rendezvous::StubInterface& stub, const std::string& run_id,
                              const std::string& token, absl::Duration timeout,
                              v1::GetStatusReply* reply);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_STATUS_PAGES_H_
