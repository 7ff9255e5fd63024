#include "launcher/stores/master_store.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace ddprun::launcher {
namespace {

// Longer than a lost packet takes to be sent again, and still soon for who watches the start.
constexpr absl::Duration kReachBound = absl::Milliseconds(1500);

}  // namespace

bool IsRankZero(const LaunchPlan& plan) { return plan.job.nodes_max == 1 || plan.node_rank == 0U; }

// Where the agent serves the store it listens from the start, so that the port is nobody else's. Of
// a port that the user gave and that several agents of one machine may name, only the one that is
// sure of rank 0 does so; others listen when they get it.
absl::Status MasterStore::TakePort() {
  // torch's own store, of a worker, listens on all addresses, whoever uses it.
  const bool only_here = plan_->agent_store && plan_->job.nodes_max == 1 &&
                         (plan_->master_addr.empty() || IsLoopback(plan_->master_addr));
  DDPRUN_ASSIGN_OR_RETURN(ReservedPort port,
                          ReservePort(plan_->master_port.value_or(0),
                                      only_here ? PortScope::kLoopback : PortScope::kAllAddresses));
  if (plan_->agent_store && (!plan_->master_port.has_value() || IsRankZero(*plan_))) {
    DDPRUN_RETURN_IF_ERROR(ListenOn(port));
  }
  port_ = std::move(port);  // only now does the old one go, so that the two differ
  return absl::OkStatus();
}

void MasterStore::RenewPort() {
  if (plan_->master_port.has_value() && port_.socket.valid()) return;
  if (absl::Status status = TakePort(); !status.ok()) {
    Log(LogLevel::kWarning, absl::StrCat("no new master port: ", status.message()));
  }
}

absl::Status MasterStore::Begin(EventLoop* loop, const rendezvous::Assignment& assignment) {
  End();
  if (!plan_->agent_store) return absl::OkStatus();
  if (assignment.group_rank != 0) {
    Probe(loop, assignment);
    return absl::OkStatus();
  }
  if (!port_.socket.valid() || assignment.master_port != port_.port) {
    return absl::UnavailableError(absl::StrCat(
        "no port for the workers' store: the job's is ", assignment.master_port,
        ", this node holds ", port_.port, "; is --master_port used by another program?"));
  }
  Fd listener(fcntl(port_.socket.get(), F_DUPFD_CLOEXEC, 0));
  if (!listener.valid()) return ErrnoStatus(errno, "duplicate the master port's socket");
  DDPRUN_ASSIGN_OR_RETURN(server_, TcpStoreServer::Start(loop, std::move(listener)));
  return absl::OkStatus();
}

void MasterStore::Probe(EventLoop* loop, const rendezvous::Assignment& assignment) {
  const std::string host = assignment.master_addr;
  const uint32_t port = assignment.master_port;
  probe_ = std::make_unique<StoreProbe>(
      loop, host, static_cast<uint16_t>(port), kReachBound, [host, port](const std::string& why) {
        Notify(absl::StrCat("warning: this node can't reach ", host, " at port ", port,
                            " (MASTER_ADDR and MASTER_PORT, where the workers meet): ", why,
                            ". Does a firewall drop packets between the nodes? Give a port that is "
                            "open with --master_port, an address with --local_addr on that node"));
      });
}

void MasterStore::End() {
  server_.reset();
  probe_.reset();
}

}  // namespace ddprun::launcher
