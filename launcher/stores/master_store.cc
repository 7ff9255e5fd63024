#include "launcher/stores/master_store.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/address.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace ddprun::launcher {
namespace {

// Longer than the retransmission of a lost packet takes, but short for a person that waits.
constexpr absl::Duration kReachBound = absl::Milliseconds(1500);

}  // namespace

bool IsRankZero(const LaunchPlan& plan) { return plan.job.nodes_max == 1 || plan.node_rank == 0U; }

std::vector<uint16_t> GivenPorts(const LaunchPlan& plan) {
  return {plan.endpoint.port, plan.master_port.value_or(plan.endpoint.port), plan.service_port};
}

// If the agent serves the store, it listens from the start, so that no other process gets the port.
// If several agents of one machine have the same port from the user, only the one that surely gets
// rank 0 listens at once; another one listens when it gets rank 0.
absl::Status MasterStore::TakePort() {
  if (plan_->endpoint.has_store) {
    DDPRUN_ASSIGN_OR_RETURN(FdPair pair, MakeMessagePair());
    to_store_ = std::move(pair.second);
    port_ = {.socket = std::move(pair.first), .port = plan_->endpoint.port};
    return absl::OkStatus();
  }
  DDPRUN_ASSIGN_OR_RETURN(ReservedPort port,
                          ReservePort(plan_->master_port.value_or(0), GivenPorts(*plan_)));
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

absl::Status MasterStore::Begin(EventLoop* loop, const rendezvous::Assignment& assignment,
                                std::function<void()> on_ready) {
  End();
  if (plan_->agent_store && assignment.group_rank == 0) {
    DDPRUN_RETURN_IF_ERROR(Serve(loop, assignment));
    ProbeOwn(loop, assignment, std::move(on_ready));
    return absl::OkStatus();
  }
  if (plan_->agent_store) ProbeOther(loop, assignment);
  on_ready();
  return absl::OkStatus();
}

// The store listens on all addresses, because scripts may replace the name that workers were given
// for this machine by another one. If that name is a loopback address in a job of one node, only
// clients of this machine are answered.
absl::Status MasterStore::Serve(EventLoop* loop, const rendezvous::Assignment& assignment) {
  if (!port_.socket.valid() || assignment.master_port != port_.port) {
    return absl::UnavailableError(absl::StrCat(
        "no port for the workers' store: the job's is ", assignment.master_port,
        ", this node holds ", port_.port, "; is --master_port used by another program?"));
  }
  Fd listener(fcntl(port_.socket.get(), F_DUPFD_CLOEXEC, 0));
  if (!listener.valid()) return ErrnoStatus(errno, "duplicate the master port's socket");
  TcpStoreServer::Options options;
  options.listener_passes_on = to_store_.valid();
  options.this_machine_only = plan_->job.nodes_max == 1 && IsLoopback(assignment.master_addr);
  options.on_client = on_client_;
  DDPRUN_ASSIGN_OR_RETURN(server_, TcpStoreServer::Start(loop, std::move(listener), options));
  return absl::OkStatus();
}

// A failure is no proof that workers will fail: a router that translates addresses may carry
// connections from elsewhere alone. So they start in any case.
void MasterStore::ProbeOwn(EventLoop* loop, const rendezvous::Assignment& assignment,
                           std::function<void()> on_ready) {
  const std::string place =
      HostPort(assignment.master_addr, static_cast<int>(assignment.master_port));
  probe_ = std::make_unique<StoreProbe>(
      loop, assignment.master_addr, static_cast<uint16_t>(assignment.master_port), kReachBound,
      StoreProbe::Until::kAnswered,
      [place, on_ready = std::move(on_ready)](const std::string& why) {
        if (!why.empty()) {
          Notify(absl::StrCat(
              "warning: this node serves the workers' store, but can't reach it at ", place,
              " (MASTER_ADDR and MASTER_PORT): ", why,
              "; workers that can't either will wait for it in init_process_group. Give an address "
              "that leads to this node, with --local_addr here or where the job's address is given "
              "(--master_addr, --rdzv_endpoint)"));
        }
        on_ready();
      });
}

void MasterStore::ProbeOther(EventLoop* loop, const rendezvous::Assignment& assignment) {
  const std::string host = assignment.master_addr;
  const uint32_t port = assignment.master_port;
  probe_ = std::make_unique<StoreProbe>(
      loop, host, static_cast<uint16_t>(port), kReachBound, StoreProbe::Until::kConnected,
      [host, port](const std::string& why) {
        if (why.empty()) return;
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
