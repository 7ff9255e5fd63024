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
#include "rendezvous/core/types.h"
#include "rendezvous/etcd/core/etcd_settings.h"

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
  // The port is --master_port's, or its default; else --rdzv_endpoint's.
  bool follows_master_port = false;
  // This node hosts, and the port is the workers' MASTER_PORT, too (docs/PROTOCOL.md, R11).
  bool has_store = false;
  // kAuto: host when the endpoint's address is one of this machine's.
  Hosting hosting = Hosting::kAuto;
  // What to do if no other node joins, for a launch that may be of this node alone; "" = nothing is
  // known.
  std::string alone_hint;
  // Where the host's name is from and what to do if it doesn't resolve, for a name that the user
  // didn't give; "" = the user gave it.
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
  // --collapse_output: lines that several workers say alike are shown once on the console.
  bool collapse = false;
  // --local_ranks_filter: only these workers' output is shown on the console; empty = all. Of the
  // others inherited streams are dropped, teed ones go to their files alone.
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

// What CUDA_VISIBLE_DEVICES and LOCAL_RANK say to the workers.
struct DevicePlan {
  // --virtual_local_rank: each worker sees its own device only, as number 0.
  bool virtual_local_rank = false;
  // The list of this node's devices (numbers, or UUIDs as the user's variable has them): at least
  // one for each worker with virtual_local_rank. Empty: CUDA_VISIBLE_DEVICES is inherited, or with
  // virtual_local_rank the local rank.
  std::vector<std::string> visible;
};

// --on_hang: what becomes of a worker that was found to hang.
enum class OnHang {
  kRestart,  // it counts as failed
  kReport,   // the user is told, no more
};

// --leftovers: what becomes of processes that workers leave behind.
struct LeftoverPlan {
  enum class Mode {
    kKill,   // they are killed with their worker
    kWait,   // they have time to end, then they are killed
    kSpare,  // as kWait, but after success they stay
  };
  Mode mode = Mode::kWait;
  // After success the agent waits so long for them; after anything else kTimeAfterFailure, during
  // which the next generation may run.
  absl::Duration after_success = absl::Minutes(10);
  static constexpr absl::Duration kTimeAfterFailure = absl::Seconds(10);
};

// Whether argv begins with this program, which tests the network before the first start.
enum class Preflight {
  kNone,
  kBeforeRun,  // --preflight
  kTest,       // ddprun test: nothing else is run
};

// How workers start (docs/WARM.md).
struct WarmPlan {
  bool on = false;  // --warm on; of programs in Python that may be restarted by default
  // Nobody has asked for it, by --warm, --preload, --warm_memory or a daemon: no start is later for
  // it than without it, and nothing is said to the user.
  bool unasked = false;
  // Workers have all of the processors: imports ahead have only what they leave.
  bool crowded = false;
  // No --warm is given, and the workers' program isn't Python: on from when a worker says that it
  // goes on in its process when another one fails. Then the start of the missing one is nearly all
  // that the others wait for.
  bool for_survivors = false;
  // Not --warm off: a daemon of the user's is asked for an interpreter; where one runs, it is on.
  bool asks_daemon = false;
  std::vector<std::string> preload;  // --preload: modules that are imported ahead in any case
  // --warm_memory: what the parked interpreter may hold. Neither: no bound, but none is parked
  // where less than a quarter of the machine's memory is free.
  std::optional<uint64_t> memory_bytes;
  std::optional<double> memory_percent;  // of the machine's memory
  std::string kept;  // path of what jobs before this one have learned; "" = nothing is kept
};

// When a job of Slurm isn't requeued any more (docs/SLURM.md).
struct RequeuePlan {
  std::string job;             // whose runs this agent counts; "" = none
  uint32_t give_up_after = 0;  // runs in a row without progress
};

// Everything that one `ddprun` run was asked to do, checked and complete: what the command line and
// the environment come to. Made by launcher/plan, carried out by launcher/agent.
struct LaunchPlan {
  rendezvous::JobSpec job;
  std::string token;      // job token; "" = none
  TlsFiles tls;           // none = without TLS
  EndpointPlan endpoint;  // with etcd its first member, for the way there
  // The job's record is in etcd, and any node can have its service; nullopt = the endpoint has it.
  std::optional<rendezvous::EtcdSettings> etcd;
  // Where the service listens on the node that has it, with etcd; 0 = at any free port.
  uint16_t service_port = 0;
  // torchrun's name of what this run asked for: "static", "c10d", "etcd" or "etcd-v2".
  std::string rdzv_backend = "c10d";

  std::optional<uint32_t> node_rank;  // explicit claim
  uint32_t worker_count = 1;
  std::string role = "default";
  std::string note_at_start;  // for people, once the first workers have started; "" = none
  std::string local_addr;     // --local_addr; "" = found out
  std::string
      master_addr;  // static: the workers' MASTER_ADDR, without brackets; "" = the node's own
  std::optional<uint16_t> master_port;  // --master_port, only when given
  // The agent of rank 0's node serves the store at the master port; else worker rank 0 does.
  bool agent_store = true;

  // The worker's command before ${local_rank} macros: {python, "-u", "train.py", …}.
  std::vector<std::string> argv;
  Preflight preflight = Preflight::kNone;
  // Path of a file that is empty as long as workers may begin; else it says what prevents the run,
  // and a worker that ends has failed for that. "" = none.
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
  // The script is told to use DeepSpeed: workers get the variables of its launcher, too.
  bool deepspeed = false;
  DevicePlan devices;
  // --omp_threads; nullopt = torchrun's rule for OMP_NUM_THREADS.
  std::optional<uint32_t> omp_threads;
  NumaBinding numa_binding = NumaBinding::kNone;
  CpuBinding cpu_binding = CpuBinding::kNone;  // at most one of them is given
  // What the binding comes to here, by local rank: the CPUs of each worker, and with --omp_threads
  // auto its OMP_NUM_THREADS in place of omp_threads. Empty = workers run where the agent may.
  std::vector<CpuSet> worker_cpus;
  std::vector<uint32_t> worker_omp_threads;
  SignalPlan signals;
  // Abstract unix socket that this agent holds while it lives, for the other tasks of its node in a
  // Slurm step (node_socket.h); "" = none.
  std::string node_socket;
  // The job of Slurm that this agent requeues when it loses the service, whose node has the batch
  // script too; "" = none.
  std::string requeue_job;
  RequeuePlan requeues;

  OutputPlan output;
  std::string event_log;  // path of the JSON-lines timeline; "" = none
  std::string
      status_page;  // "host:port" of the service's pages, where this agent has it; "" = none
  std::string status_page_token;  // of who reads them; "" = none
  // --state_dir: where the service keeps what must outlive it, where this agent has it; "" = with
  // the agent's own files, which go with it.
  std::string state_dir;
  std::string report_file;  // --report_file: path of the failure report as JSON; "" = none
  // --event_log_handler console: torchrun's events as JSON lines on stderr.
  bool events_on_console = false;
  ServiceTimeouts service;
  absl::Duration isolation_timeout = absl::Seconds(120);
  // How long a restart waits for the GPUs' memory; zero = not at all.
  absl::Duration gpu_memory_wait = absl::Seconds(3);
  LeftoverPlan leftovers;
  // --cgroup on: workers get a cgroup of their own where one can be had.
  bool use_cgroup = true;
  ExitBarrierSettings exit_barrier;
  // --mark auto: workers in Python have the steps of their optimizers marked.
  bool count_steps = true;
  HangSettings hangs;
  OnHang on_hang = OnHang::kRestart;
  // --on_stopped restart: a worker that a signal stops counts as failed at once.
  bool restart_stopped = false;
  EndingSettings ending;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_LAUNCH_PLAN_H_
