#ifndef DDPRUN_LAUNCHER_CORE_LAUNCH_PLAN_H_
#define DDPRUN_LAUNCHER_CORE_LAUNCH_PLAN_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/tls_files.h"
#include "launcher/core/agent_settings.h"
#include "launcher/core/cpu_binding.h"
#include "launcher/core/hang_settings.h"
#include "launcher/core/signal_policy.h"
#include "launcher/core/worker_plans.h"
#include "rendezvous/core/job_spec.h"
#include "rendezvous/etcd/core/etcd_settings.h"

namespace ddprun::launcher {

// Where the rendezvous service of a job is, and whether this node starts it.
struct EndpointPlan {
  // kUnix: a job of one node without an endpoint: the service listens on a unix socket.
  // kTcp: host and port below.
  enum class Kind { kUnix, kTcp };
  enum class Hosting { kAuto, kAlways, kNever };

  Kind kind = Kind::kUnix;
  std::string host;   // as the user typed it, without brackets
  uint16_t port = 0;  // 0 = any free port (one node only)
  // The port is --master_port's, or its default; else --rdzv_endpoint's.
  bool follows_master_port = false;
  // This node hosts, and the port is the workers' MASTER_PORT, too (docs/PROTOCOL.md, R11).
  bool has_store = false;
  // kAuto: host when the endpoint's address is one of this machine's.
  Hosting hosting = Hosting::kAuto;
  // Advice if no other node joins, for a launch that may have only this node; "" = none.
  std::string alone_hint;
  // For a host name that the user didn't give: where it comes from, and advice if it doesn't
  // resolve; "" = the user gave the name.
  std::string name_hint;
};

// Where the two output streams of a worker go.
enum class StreamSink {
  kInherit,   // the agent's own descriptor
  kFile,      // --redirects
  kTee,       // --tee: file and prefixed console
  kPrefixed,  // prefixed console only (--prefix_output)
  kDiscard,   // nowhere (--local_ranks_filter)
};

struct OutputPlan {
  std::string log_dir;  // "" = none was given: a temporary one is made when a file needs it
  // Per local rank; ranks that are absent inherit.
  std::map<uint32_t, StreamSink> stdout_sinks;
  std::map<uint32_t, StreamSink> stderr_sinks;
  // Template of the console prefix; ${role_name}, ${rank}, ${local_rank} are replaced.
  std::string prefix_template = "[${role_name}${local_rank}]:";
  // --collapse_output: equal lines of several workers are shown once on the console.
  bool collapse = false;
  // --local_ranks_filter: only these workers' output is shown on the console; empty = all.
  // Inherited streams of other workers are dropped, and teed ones go only to their files.
  std::set<uint32_t> local_ranks_filter;
  // --duplicate_stdout_filters, …: lines of teed streams that hold one of these texts go to
  // filtered_stdout.log (filtered_stderr.log) of the attempt too. "" is in every line.
  std::vector<std::string> duplicate_stdout_filters;
  std::vector<std::string> duplicate_stderr_filters;
};

// The signals that mean something to the agent.
struct SignalPlan {
  SignalPolicy policy;  // no signal both ends and preempts
  PreemptionSettings preemption;
  // What workers see in TORCHELASTIC_SIGNALS_TO_HANDLE: --signals_to_handle as given.
  std::string text = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
};

// Whether argv begins with this program, which tests the network before the first start.
enum class Preflight {
  kNone,
  kBeforeRun,  // --preflight
  kTest,       // ddprun test: nothing else is run
};

// What the end of a run means for a job of Slurm (docs/SLURM.md).
struct RequeuePlan {
  std::string job;  // Slurm's number of the job that this agent counts runs of; "" = none
  uint32_t give_up_after = 0;  // runs in a row without progress
  std::string status_file;     // where the batch script finds this agent's exit status; "" = none
};

// Everything that one `ddprun` run was asked to do, checked and complete: the result of the command
// line and the environment. Made by launcher/plan, carried out by launcher/agent.
struct LaunchPlan {
  rendezvous::JobSpec job;
  std::string token;      // job token; "" = none
  TlsFiles tls;           // none = without TLS
  EndpointPlan endpoint;  // with etcd its first member, for routing
  // The job's record is in etcd, and any node can run the service; nullopt = the endpoint's node
  // runs it.
  std::optional<rendezvous::EtcdSettings> etcd;
  // With etcd: the port of the service on the node that runs it; 0 = any free port.
  uint16_t service_port = 0;
  // torchrun's name of the requested rendezvous: "static", "c10d", "etcd" or "etcd-v2".
  std::string rdzv_backend = "c10d";

  std::optional<uint32_t> node_rank;  // explicit claim
  // torchrun ignores --node_rank here: a node whose claim another one holds joins without it.
  bool node_rank_is_wish = false;
  uint32_t worker_count = 1;
  std::string role = "default";
  // --rdzv_id and --role byte for byte, as workers get them; job.run_id and `role` are the same
  // unless messages can't hold that. "" = the same.
  std::string given_run_id;
  std::string given_role;
  std::string note_at_start;  // for people, once the first workers have started; "" = none
  std::string local_addr;     // --local_addr; "" = found out
  std::string
      master_addr;  // static: the workers' MASTER_ADDR, without brackets; "" = the node's own
  // static, on other nodes than 0: the name that this node has for node 0. "" = rank 0's node
  // names itself.
  std::string first_node;
  std::optional<uint16_t> master_port;  // --master_port, only when given
  // torchrun ignores --master_port here: if the port is taken, workers get a free one.
  bool master_port_is_wish = false;
  // The agent of rank 0's node serves the store at the master port; else worker rank 0 does.
  bool agent_store = true;

  // The worker's command before ${local_rank} macros: {python, "-u", "train.py", …}.
  std::vector<std::string> argv;
  Preflight preflight = Preflight::kNone;
  // Path of a file that is empty as long as workers may begin. Else the file has what prevents the
  // run, and a worker that ends has failed for that reason. "" = none.
  std::string preflight_result;
  // argv begins with a Python interpreter, which ddprun has chosen for a script or module.
  bool runs_python = false;
  bool is_module = false;  // python3 -m; entry_point is the module's name
  WarmPlan warm;
  // How reports name it: the script, module or program as given.
  std::string entry_point;
  // --run_path: argv is {python, "-u", script, …}, and the script is run in a process that Python's
  // runpy has prepared, with every exception recorded.
  bool run_path = false;
  // Variables of the file of --config, for workers: only where neither the user's environment nor
  // the contract has the name.
  std::vector<std::pair<std::string, std::string>> extra_environment;
  // The script's options ask for DeepSpeed: workers get the variables of its launcher, too.
  bool deepspeed = false;
  DevicePlan devices;
  // --omp_threads; nullopt = torchrun's rule for OMP_NUM_THREADS.
  std::optional<uint32_t> omp_threads;
  NumaBinding numa_binding = NumaBinding::kNone;
  CpuBinding cpu_binding = CpuBinding::kNone;  // at most one of the two bindings is given
  // The resulting binding, by local rank: the CPUs of each worker, and with --omp_threads auto its
  // OMP_NUM_THREADS in place of omp_threads. Empty = workers run where the agent may.
  std::vector<CpuSet> worker_cpus;
  std::vector<uint32_t> worker_omp_threads;
  SignalPlan signals;
  // Abstract unix socket that this agent holds while it lives, for the other tasks of its node in a
  // Slurm step (slurm_run.h); "" = none.
  std::string node_socket;
  // The Slurm job to requeue when the node of the service and the batch script is lost; "" = none.
  std::string requeue_job;
  RequeuePlan requeues;

  OutputPlan output;
  std::string event_log;  // path of the JSON-lines timeline; "" = none
  // "host:port" of the service's pages, if this agent runs the service; "" = none.
  std::string status_page;
  std::string status_page_token;  // that readers of the pages must show; "" = none
  // --state_dir: where the service keeps its state if this agent runs it; "" = among the agent's
  // own files, which are removed with it.
  std::string state_dir;
  std::string report_file;  // --report_file: path of the failure report as JSON; "" = none
  // --event_log_handler console: torchrun's events as JSON lines on stderr.
  bool events_on_console = false;
  ServiceTimeouts service;
  absl::Duration isolation_timeout = absl::Seconds(120);
  // How long a restart waits for the GPUs' memory; zero = not at all.
  absl::Duration gpu_memory_wait = absl::Seconds(3);
  LeftoverPlan leftovers;
  MemoryCheckpointPlan memory_checkpoints;
  // --cgroup on: workers get a cgroup of their own if one can be made.
  bool use_cgroup = true;
  ExitBarrierSettings exit_barrier;
  // --mark auto: workers in Python have the steps of their optimizers marked.
  bool count_steps = true;
  bool in_process_restart = false;  // of Hugging Face's Trainer (docs/ELASTIC.md)
  HangSettings hangs;
  OnHang on_hang = OnHang::kRestart;
  // --on_stopped restart: a worker that a signal stops counts as failed at once.
  bool restart_stopped = false;
  EndingSettings ending;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_LAUNCH_PLAN_H_
