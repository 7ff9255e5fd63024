#include "launcher/service/endpoint_finder.h"

#include <uv.h>

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "base/address.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "launcher/machine/host_probe.h"

namespace ddprun::launcher {
namespace {

constexpr absl::Duration kRetryAfter = absl::Seconds(1);

}  // namespace

absl::StatusOr<FoundEndpoint> FindEndpoint(const EndpointPlan& endpoint,
                                           const std::string& local_addr,
                                           const std::string& master_addr) {
  FoundEndpoint found;
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<std::string> addresses, ResolveHost(endpoint.host));
  DDPRUN_ASSIGN_OR_RETURN(found.is_local, IsLocalHost(endpoint.host));
  if (addresses.empty()) return absl::UnavailableError("'" + endpoint.host + "' has no address");
  found.literal = addresses.front();
  found.loopback = IsLoopback(found.literal);
  if (!local_addr.empty()) {
    found.node_address = local_addr;
  } else if (found.is_local && endpoint.hosting != EndpointPlan::Hosting::kNever) {
    found.node_address = endpoint.host;  // as the user typed it: they know what others can resolve
  } else {
    DDPRUN_ASSIGN_OR_RETURN(found.node_address, LocalAddressToward(endpoint.host, endpoint.port));
  }
  // As torchrun: what the user typed on node 0 is what its workers get, even if that address is
  // translated on the way here and no interface has it.
  const bool as_typed = endpoint.hosting == EndpointPlan::Hosting::kAlways && !master_addr.empty();
  found.master_addr = as_typed ? master_addr : found.node_address;
  return found;
}

// Outlives the finder when that goes away while the resolver is busy.
struct EndpointFinder::Work {
  uv_work_t request{};
  EndpointPlan endpoint;
  std::string local_addr;
  std::string master_addr;
  std::optional<absl::StatusOr<FoundEndpoint>> result;
  EndpointFinder* owner = nullptr;
};

std::unique_ptr<EndpointFinder> EndpointFinder::Start(EventLoop* loop, const LaunchPlan& plan,
                                                      std::function<void(absl::Status)> on_error,
                                                      std::function<void(FoundEndpoint)> on_found) {
  std::unique_ptr<EndpointFinder> finder(new EndpointFinder());
  finder->loop_ = loop;
  finder->endpoint_ = plan.endpoint;
  finder->local_addr_ = plan.local_addr;
  finder->master_addr_ = plan.master_addr;
  finder->on_error_ = std::move(on_error);
  finder->on_found_ = std::move(on_found);
  finder->retry_ = std::make_unique<Timer>(loop, [raw = finder.get()] { raw->Try(); });
  finder->Try();
  return finder;
}

EndpointFinder::~EndpointFinder() {
  if (work_ != nullptr) work_->owner = nullptr;
}

void EndpointFinder::Try() {
  work_ = new Work{.request = {},
                   .endpoint = endpoint_,
                   .local_addr = local_addr_,
                   .master_addr = master_addr_,
                   .result = std::nullopt,
                   .owner = this};
  work_->request.data = work_;
  const int error = uv_queue_work(
      loop_->uv(), &work_->request,
      [](uv_work_t* request) {
        auto* work = static_cast<Work*>(request->data);
        work->result = FindEndpoint(work->endpoint, work->local_addr, work->master_addr);
      },
      [](uv_work_t* request, int /*status*/) {
        const std::unique_ptr<Work> work(static_cast<Work*>(request->data));
        if (work->owner == nullptr || !work->result.has_value()) return;
        work->owner->work_ = nullptr;
        work->owner->OnDone(*std::move(work->result));
      });
  DDPRUN_CHECK(error == 0, uv_strerror(error));
}

void EndpointFinder::OnDone(absl::StatusOr<FoundEndpoint> result) {
  if (result.ok()) {
    const auto on_found = on_found_;
    return on_found(*std::move(result));
  }
  retry_->Arm(loop_->Now() + kRetryAfter);
  on_error_(result.status());
}

}  // namespace ddprun::launcher
