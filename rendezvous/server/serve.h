#ifndef DDPRUN_RENDEZVOUS_SERVER_SERVE_H_
#define DDPRUN_RENDEZVOUS_SERVER_SERVE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "base/tls_files.h"
#include "rendezvous/server/etcd_seat.h"

namespace ddprun::rendezvous {

// How a process serves; see ServerOptions for the first five.
struct ServeConfig {
  std::string listen;
  std::string socket;
  std::string token;
  TlsFiles tls;
  std::string only_run_id;
  std::string event_log;          // path; "" = none
  std::string status_page;        // "host:port" of the pages for people and monitors; "" = none
  std::string status_page_token;  // what who reads them must bring; "" = nothing
  // Folder of what must outlive this process; "" = nothing does.
  std::string state_dir;
  // It is one that the user chose, and may be there after the machine's end; else it goes with the
  // agent that made it.
  bool state_outlives_machine = false;
  // The node was elected to serve a job whose record is in etcd, in place of state_dir.
  std::optional<EtcdSeatConfig> etcd;
  // The incarnation of the agent whose child this is: one that the kept record calls the service's
  // host, and that isn't this one, went with the former service. 0 = a service of its own.
  uint64_t host = 0;
  // A former process has served from here, and its job goes on: what it has left is needed.
  bool again = false;
  // Gets one line when it is known whether it serves: "ok <port> <port of the status page, or
  // 0>\n", "taken <text>\n" (another service may have the address or the journal), or "error
  // <text>\n"; and after that, before it tells what its journal can't keep, "stale <text>\n": no
  // other process may serve from there. -1 = none: the result is told to the user on stderr.
  int ready_fd = -1;
  // The port is the workers' MASTER_PORT, too: a ConnectionSender passes the connections of clients
  // of their store on here, to the agent. -1 = there is no such store.
  int store_fd = -1;
  // Its end of file ends the service: the agent is gone. -1 = none: SIGINT and SIGTERM end it.
  int life_fd = -1;
};

// Runs a rendezvous service in this process until it is no longer wanted: the body of `ddprun
// rendezvous`, and of the child that an agent forks. Initializes gRPC; makes its own loop.
// Returns the exit status: 0; 1 when it could not serve; kLeadershipLost when another service may
// have the job by now.
inline constexpr int kLeadershipLost = 3;
int ServeMain(const ServeConfig& config);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_SERVE_H_
