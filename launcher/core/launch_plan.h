#ifndef DDPRUN_LAUNCHER_CORE_LAUNCH_PLAN_H_
#define DDPRUN_LAUNCHER_CORE_LAUNCH_PLAN_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {

// Where the rendezvous service of a job is, and who starts it.
struct EndpointPlan {
  // kUnix: a job of one node without an endpoint: the service listens on a unix socket.
  // kTcp: host and port below.
  enum class Kind { kUnix, kTcp };
  enum class Hosting { kAuto, kAlways, kNever };

  Kind kind = Kind::kUnix;
  std::string host;   // as the user typed it, without brackets
  uint16_t port = 0;  // 0 = any free port (one node only)
  // kAuto: host when the endpoint's address is one of this machine's.
  Hosting hosting = Hosting::kAuto;
};

// Where the two output streams of a worker go.
enum class StreamSink {
  kInherit,   // the agent's own descriptor
  kFile,      // --redirects
  kTee,       // --tee: file and prefixed console
  kPrefixed,  // prefixed console only (--prefix_output)
};

struct OutputPlan {
  std::string log_dir;  // "" = none was given: a temporary one is made when a file needs it
  // Per local rank; ranks that are absent inherit.
  std::map<uint32_t, StreamSink> stdout_sinks;
  std::map<uint32_t, StreamSink> stderr_sinks;
  // Template of the console prefix; ${role_name}, ${rank}, ${local_rank} are replaced.
  std::string prefix_template = "[${role_name}${local_rank}]:";
};

// Everything that one `ddprun` run was asked to do, checked and complete: what the command line and
// the environment come to. Made by launcher/cli, carried out by launcher/agent.
struct LaunchPlan {
  rendezvous::JobSpec job;
  std::string token;  // job token; "" = none
  EndpointPlan endpoint;

  std::optional<uint32_t> node_rank;  // explicit claim
  uint32_t worker_count = 1;
  std::string role = "default";
  std::string local_addr;               // --local_addr; "" = found out
  std::string master_addr;              // --master_addr without brackets; "" = the node's own
  std::optional<uint16_t> master_port;  // --master_port, only when given

  // The worker's command before ${local_rank} macros: {python, "-u", "train.py", …}.
  std::vector<std::string> argv;
  // How reports name it: the script, module or program as given.
  std::string entry_point;

  OutputPlan output;
  std::string event_log;  // path of the JSON-lines timeline; "" = none
  // How long an agent without its service keeps its workers.
  absl::Duration service_loss_timeout = absl::Seconds(10);
  absl::Duration isolation_timeout = absl::Seconds(120);
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_LAUNCH_PLAN_H_
