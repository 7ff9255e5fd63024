#ifndef DDPRUN_RENDEZVOUS_SERVER_SERVE_H_
#define DDPRUN_RENDEZVOUS_SERVER_SERVE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/tls_files.h"
#include "rendezvous/server/etcd_seat.h"

namespace ddprun::rendezvous {

// How a process serves; ServerOptions documents the first five.
struct ServeConfig {
  std::string listen;
  std::string socket;
  std::string token;
  TlsFiles tls;
  std::string only_run_id;
  std::string event_log;          // path; "" = none
  std::string status_page;        // "host:port" of the pages for people and monitors; "" = none
  std::string status_page_token;  // password of the pages; "" = none
  // Folder of the journal; "" = no journal.
  std::string state_dir;
  // The user chose state_dir, and it may outlive the machine; false: it is removed with the agent
  // that made it.
  bool state_outlives_machine = false;
  // Set if this node was elected to serve a job with its record in etcd, in place of state_dir.
  std::optional<EtcdSeatConfig> etcd;
  // The incarnation of the agent whose child this is. A node that the record calls the service's
  // host and that isn't this one went with the former service. 0 = a service without an agent.
  uint64_t host = 0;
  // A former process has served from here, and its job is resumed: its record is required.
  bool again = false;
  // Gets one line when it is known whether the process serves: "ok <port> <port of the status page,
  // or 0>\n", "taken <text>\n" (another service may have the address or the journal), or "error
  // <text>\n". Later, before a message is sent that the journal can't keep, it gets "stale
  // <text>\n": no other process may serve from the journal. -1 = none: the result is printed to
  // stderr.
  int ready_fd = -1;
  // If the port is also the workers' MASTER_PORT: a ConnectionSender passes connections of clients
  // of their store to the agent on this descriptor. -1 = there is no such store.
  int store_fd = -1;
  // End of file on this descriptor ends the service, because the agent is gone. -1 = none: SIGINT
  // and SIGTERM end the service.
  int life_fd = -1;
};

// Runs a rendezvous service in this process until it is no longer wanted: the body of `ddprun
// rendezvous`, and of the child that an agent forks. Initializes gRPC and makes a loop of its own.
// Returns the exit status: 0; 1 if it couldn't serve; kLeadershipLost if another service may have
// the job now.
inline constexpr int kLeadershipLost = 3;
int ServeMain(const ServeConfig& config);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_SERVE_H_
