#include "launcher/service/elected_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/address.h"

namespace ddprun::launcher {
namespace {

// Asked of etcd, which grants more where its own elections need it. A service that vanishes is
// replaced after that time.
constexpr absl::Duration kLease = absl::Seconds(2);

}  // namespace

absl::StatusOr<std::unique_ptr<ElectedService>> ElectedService::Create(
    EventLoop* loop, const rendezvous::EtcdSettings& etcd, rendezvous::ServeConfig config,
    std::string node_id, std::string node_address, Callbacks callbacks) {
  std::unique_ptr<ElectedService> service(
      new ElectedService(loop, std::move(config), std::move(callbacks)));
  ElectedService* const raw = service.get();
  rendezvous::EtcdSeatConfig& seat = raw->config_.etcd.emplace();
  seat.settings = etcd;
  seat.run_id = raw->config_.only_run_id;
  seat.node_id = node_id;
  seat.node_address = std::move(node_address);
  absl::StatusOr<std::unique_ptr<rendezvous::LeaderFinder>> finder =
      rendezvous::LeaderFinder::Create(
          loop, etcd, seat.run_id, std::move(node_id), kLease,
          {.on_elected =
               [raw](const rendezvous::LeaderFinder::Election& election) {
                 raw->OnElected(election);
               },
           .on_superseded =
               [raw] {
                 if (raw->process_ == nullptr) return;
                 raw->OnEnd({.how = "lost its lease", .orderly = false});
               }});
  if (!finder.ok()) return finder.status();
  raw->finder_ = *std::move(finder);
  return service;
}

void ElectedService::OnElected(const rendezvous::LeaderFinder::Election& election) {
  absl::StatusOr<std::unique_ptr<ServiceProcess>> process = ServiceProcess::Spawn();
  if (!process.ok()) return OnReady(process.status());
  process_ = *std::move(process);
  rendezvous::EtcdSeatConfig& seat = *config_.etcd;
  seat.settings.endpoints = election.endpoints;
  seat.lease = election.lease;
  seat.revision = election.revision;
  seat.asked_ns = absl::ToInt64Nanoseconds(election.asked - Instant());
  seat.ttl_s = absl::ToInt64Seconds(election.ttl);
  seat.vanished = election.vanished;
  if (!election.ended.empty()) callbacks_.on_begun_again(election.ended);
  process_->Serve(
      loop_, config_, [this](const absl::StatusOr<ServicePorts>& ports) { OnReady(ports); },
      [this](const ServiceProcess::End& end) { OnEnd(end); });
}

void ElectedService::OnReady(const absl::StatusOr<ServicePorts>& ports) {
  if (ports.ok()) return callbacks_.on_serving(ports->service, process_->pid());
  callbacks_.on_trouble(
      absl::StrCat("this node was chosen to serve the job, but can't: ", ports.status().message()));
  OnEnd({.how = "could not serve", .orderly = false});
}

void ElectedService::OnEnd(const ServiceProcess::End& end) {
  // The process may be the caller, so it goes later.
  loop_->Post([process = std::shared_ptr<ServiceProcess>(std::move(process_))] {});
  if (!end.orderly || ending_) finder_->Resign();
  if (!end.orderly) callbacks_.on_gone(end.how);
  if (on_ended_) std::exchange(on_ended_, nullptr)();
}

void ElectedService::End(bool job_over, std::function<void()> done) {
  ending_ = true;
  on_ended_ = std::move(done);
  if (process_ != nullptr) {
    if (!job_over) process_->Stop();
    return;
  }
  finder_->Leave([this] {
    if (on_ended_) std::exchange(on_ended_, nullptr)();
  });
}

}  // namespace ddprun::launcher
