#include "launcher/plan/launch_arguments.h"

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "launcher/options/endpoint_options.h"
#include "launcher/options/option_set.h"
#include "launcher/options/query_options.h"
#include "launcher/plan/guard_options.h"
#include "launcher/plan/plan_parts.h"
#include "launcher/plan/rendezvous_config.h"

namespace ddprun::launcher {
namespace {

void DefineSize(LaunchArguments* target, OptionSet* options) {
  options->Group("Job size");
  options->AddValue(&target->nnodes,
                    {.names = "--nnodes",
                     .placeholder = "N|MIN:MAX",
                     .help = "Number of nodes, or the range within which the job may shrink "
                             "and grow."});
  options->AddValue(&target->nproc_per_node,
                    {.names = "--nproc-per-node",
                     .placeholder = "N|cpu|gpu|auto",
                     .help = "Number of workers on this node. gpu: one for each CUDA "
                             "device; gpu:1,3,5-7: one for each of these; xpu, npu, hpu, mtia: one "
                             "for each that torch finds; cpu: one for each CPU that this process "
                             "may use, by its affinity and its cgroup; auto: the devices that "
                             "there are, else cpu."});
  options->AddValue(&target->node_rank,
                    {.names = "--node-rank",
                     .placeholder = "N",
                     .help = "This node's number, from 0. With the static rendezvous node 0 "
                             "hosts the rendezvous service; otherwise a number to ask for, "
                             "used if given.",
                     .default_text = "0 (static)"});
  options->AddFlag(&target->standalone,
                   {.names = "--standalone",
                    .help = "A job of this machine alone, under a fresh run id: several can run "
                            "side by side."});
  options->AddFlag(&target->no_slurm,
                   {.names = "--no-slurm",
                    .help = "Ignore Slurm. Under srun ddprun otherwise fills in the options you "
                            "omit from Slurm's variables: nodes and their numbers, the rendezvous "
                            "endpoint, the job's name, workers (one for each GPU or task), CPUs "
                            "and time (docs/SLURM.md)."});
  options->AddFlag(&target->no_kubernetes,
                   {.names = "--no-kubernetes",
                    .help = "Ignore Kubernetes. In a pod of an indexed Job, a JobSet or a "
                            "PyTorchJob ddprun otherwise takes the pod's number, the rendezvous "
                            "endpoint, the job's name and its GPUs from there "
                            "(docs/KUBERNETES.md)."});
  options->AddFlag(&target->preflight,
                   {.names = "--preflight",
                    .help = "Before the first start, test the network between the nodes for a few "
                            "seconds: a link that is cut ends the job before any worker begins, a "
                            "slow or lossy one is a warning. On all nodes or on none; see ddprun "
                            "test --help."});
}

// The options of the job's secret.
void DefineToken(LaunchArguments* target, OptionSet* options) {
  options->AddValue(&target->token,
                    {.names = "--token",
                     .placeholder = "SECRET",
                     .help = "Secret of the job, the same on every node; without one the "
                             "job can be stopped from the service's own machine only. "
                             "Visible in the list of processes, which --token_file and the "
                             "variable are not.",
                     .environment = "DDPRUN_TOKEN"});
  options->AddValue(&target->token_file,
                    {.names = "--token-file",
                     .placeholder = "FILE",
                     .help = "File that holds the secret (chmod 600); blanks don't count."});
  DefineTlsDir(&target->tls_dir, options);
}

void DefineRendezvous(LaunchArguments* target, OptionSet* options) {
  options->Group("Rendezvous");
  options->AddValue(&target->master_addr,
                    {.names = "--master-addr",
                     .placeholder = "HOST",
                     .help = "Host of node 0: the workers' MASTER_ADDR, and where the "
                             "static rendezvous is.",
                     .default_text = "127.0.0.1"});
  options->AddValue(&target->master_port,
                    {.names = "--master-port",
                     .placeholder = "PORT",
                     .help = "The workers' MASTER_PORT. With several nodes, the static "
                             "rendezvous service is at this port, too.",
                     .default_text = "a free port for each generation; 29500 for the static "
                                     "rendezvous of several nodes"});
  options->AddValue(
      &target->rdzv_backend,
      {.names = "--rdzv-backend",
       .placeholder = "static|c10d|etcd",
       .help = "static: nodes are numbered by --node_rank, node 0 hosts the "
               "service. c10d, also when only --rdzv_endpoint is given: nodes are "
               "numbered as they come, "
               "the node that owns the endpoint's address hosts it. etcd (or etcd-v2): "
               "any node hosts it, the job's record is in etcd, and when that node is "
               "lost another one goes on; --rdzv_endpoint names etcd's members, "
               "A:2379,B:2379,C:2379. All are served by ddprun's own service."});
  options->AddValue(
      &target->rdzv_endpoint,
      {.names = "--rdzv-endpoint",
       .placeholder = "HOST[:PORT]",
       .help = absl::StrCat("Where the rendezvous service is, the same on every node; the port is ",
                            kDefaultServicePort, " when none is given."),
       .default_text =
           absl::StrCat("see --master_port; with c10d localhost:", kDefaultServicePort)});
  options->AddValue(&target->rdzv_id, {.names = "--rdzv-id",
                                       .placeholder = "NAME",
                                       .help = "Name of the job, the same on every node."});
  DefineRendezvousConfig(&target->rdzv_conf, options);
  DefineServicePort(target, options);
  options->AddValue(&target->local_addr,
                    {.names = "--local-addr",
                     .placeholder = "HOST",
                     .help = "Address under which other nodes reach this one.",
                     .default_text = "the one from which this machine reaches the endpoint"});
  DefineToken(target, options);
}

void DefineWorkers(LaunchArguments* target, OptionSet* options) {
  options->Group("Workers");
  options->AddFlag(&target->module, {.names = "-m,--module",
                                     .help = "The script is a Python module, as in python3 -m."});
  options->AddFlag(&target->no_python,
                   {.names = "--no-python",
                    .help = "The script is a program that is run directly, not with Python. (The "
                            "interpreter is $PYTHON_EXEC, else that of the virtual environment "
                            "that has this ddprun (where that has no torch: of the active one, "
                            "$VIRTUAL_ENV or $CONDA_PREFIX), else python3, else python.)"});
  options->AddFlag(
      &target->run_path,
      {.names = "--run-path",
       .help = "Run the script within a process that records every exception of it, and "
               "that ends when those of the node's other workers do."});
  options->AddValue(&target->role,
                    {.names = "--role",
                     .placeholder = "NAME",
                     .help = "Role of this node's workers, shown in the prefix of their "
                             "output."});
  options->AddFlag(&target->virtual_local_rank,
                   {.names = "--virtual-local-rank",
                    .help = "Every worker has LOCAL_RANK 0 and sees one device, its own."});
  options->AddFlag(&target->debug,
                   {.names = "--debug",
                    .help = "NCCL and torch.distributed log what they do: NCCL_DEBUG=INFO and "
                            "TORCH_DISTRIBUTED_DEBUG=DETAIL for workers, unless they are set."});
  options->AddValue(&target->numa_binding,
                    {.names = "--numa-binding",
                     .placeholder = "node|socket|exclusive|core-complex",
                     .help = "Bind each worker to the CPUs near its GPU: those of its NUMA "
                             "node, of its socket, its share of the node's cores, or one "
                             "core complex.",
                     .environment = ""});
  options->AddValue(&target->cpu_binding,
                    {.names = "--cpu-binding",
                     .placeholder = "none|cores|numa",
                     .help = "The same without GPUs. cores: each worker has an even share "
                             "of the physical cores that ddprun may use; numa: of the NUMA "
                             "nodes."});
  options->AddFlag(&target->binding_fallback,
                   {.names = "--binding-fallback",
                    .help = "When workers can't be bound, say why and start them all the same."});
  options->AddValue(&target->omp_threads,
                    {.names = "--omp-threads",
                     .placeholder = "N|auto",
                     .help = "OMP_NUM_THREADS of each worker. auto: the CPUs that this "
                             "process may use, divided by the workers; for bound workers "
                             "the physical cores that each has.",
                     .default_text = "your own OMP_NUM_THREADS, else 1 when there is more than one "
                                     "worker"});
  options->AddValue(&target->start_method,
                    {.names = "--start-method",
                     .placeholder = "spawn|fork|forkserver",
                     .help = "Accepted for torchrun's sake; every worker is a new process."});
  options->Group("");  // not in the help: torch.distributed.launch's
  options->AddFlag(&target->use_env, {.names = "--use-env", .help = ""});
}

// Options for the workers' output.
void DefineStreams(LaunchArguments* target, OptionSet* options) {
  options->Group("Output");
  options->AddValue(&target->log_dir,
                    {.names = "--log-dir",
                     .placeholder = "DIR",
                     .help = "Where log and error files go; /dev/null: nowhere.",
                     .default_text = "a temporary directory when a file is needed"});
  options->AddValue(&target->redirects,
                    {.names = "-r,--redirects",
                     .placeholder = "STREAMS",
                     .help = "Streams that go to files: 0 none, 1 stdout, 2 stderr, 3 both; "
                             "for single workers LOCAL_RANK:DIGIT,… as in 0:3,1:2.",
                     .shape = ValueShape::kRanks});
  options->AddValue(&target->tee,
                    {.names = "-t,--tee",
                     .placeholder = "STREAMS",
                     .help = "Streams that go to files and, prefixed, to the console; "
                             "written as for --redirects.",
                     .shape = ValueShape::kRanks});
  options->AddFlag(&target->prefix_output,
                   {.names = "--prefix-output",
                    .help = "Prefix every line on the console with role and rank "
                            "([default0]:)."});
  options->AddValue(
      &target->prefix_template,
      {.names = "--prefix-template",
       .placeholder = "TEXT",
       .help = "What the prefix of --prefix_output and --tee is made of: "
               "${role_name}, ${local_rank}, ${rank} (of the whole job), "
               "${host}, ${hostname} (without its domain) and ${group_rank} "
               "(the node's number) are replaced.",
       .default_text = Quoted(OutputPlan().prefix_template),
       .environment = "PET_LOG_LINE_PREFIX_TEMPLATE,TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",
       .alias = "log-line-prefix-template"});
  options->AddFlag(&target->collapse_output,
                   {.names = "--collapse-output",
                    .help = "Merge identical lines of this node's workers on the console into one, "
                            "prefixed [default0-7]:; each line is held for up to 200 ms for that. "
                            "Implies --prefix_output; log files get every line."});
  options->AddValue(&target->local_ranks_filter,
                    {.names = "--local-ranks-filter",
                     .placeholder = "LOCAL_RANK,…",
                     .help = "Show the output of these workers alone on the console, as in "
                             "0,4-7; files get that of all.",
                     .default_text = "all",
                     .shape = ValueShape::kList});
  options->AddValue(&target->duplicate_stdout_filters,
                    {.names = "--duplicate-stdout-filters",
                     .placeholder = "TEXT,…",
                     .help = "Lines of stdout that hold one of these texts go to "
                             "filtered_stdout.log too, for streams of --tee; two commas "
                             "stand for one within a text.",
                     .shape = ValueShape::kTexts});
  options->AddValue(&target->duplicate_stderr_filters,
                    {.names = "--duplicate-stderr-filters",
                     .placeholder = "TEXT,…",
                     .help = "The same for stderr and filtered_stderr.log.",
                     .shape = ValueShape::kTexts});
}

// Options for ddprun's own files, in the same group of the help.
void DefineRecords(LaunchArguments* target, OptionSet* options) {
  options->AddValue(&target->logs_specs,
                    {.names = "--logs-specs",
                     .placeholder = "NAME",
                     .help = "torchrun's Python class for logs; default is the only one here.",
                     .environment = ""});
  options->AddValue(&target->report_file, {.names = "--report-file",
                                           .placeholder = "FILE",
                                           .help = "Write how the job ended to FILE, as JSON."});
  options->AddValue(&target->event_log_handler,
                    {.names = "--event-log-handler",
                     .placeholder = "null|console",
                     .help = "console: torchrun's events as JSON lines on stderr."});
  options->AddValue(&target->event_log,
                    {.names = "--event-log",
                     .placeholder = "FILE",
                     .help = "Append the timeline of this run to FILE, as JSON lines."});
  options->AddValue(&target->status_page,
                    {.names = "--status-page",
                     .placeholder = "[HOST:]PORT",
                     .help = "Where this node has the rendezvous service: show the job on a "
                             "page, and to Prometheus, over HTTP; read only, to any client "
                             "that reaches the address. Without HOST: this machine alone."});
  DefineStatusPageToken(&target->status_page_token_file, options);
}

void DefineRestarts(LaunchArguments* target, OptionSet* options) {
  options->Group("Restarts (times in seconds, or with a unit: 150ms, 2m)");
  options->AddValue(&target->max_restarts,
                    {.names = "--max-restarts",
                     .placeholder = "N",
                     .help = "How often failed workers may restart the job, counted once "
                             "for the whole job. A kill that other workers survive in their "
                             "processes isn't counted, and doesn't end the job unless 0 is "
                             "given."});
  options->AddValue(&target->restart_window,
                    {.names = "--restart-window",
                     .placeholder = "SECONDS",
                     .help = "Workers that ran this long, with progress, give all restarts "
                             "before them back; 0: none is given back."});
  options->AddValue(&target->restart_backoff,
                    {.names = "--restart-backoff",
                     .placeholder = "SECONDS",
                     .help = "Longest pause before a restart. The first one comes at once; "
                             "while workers fail within 10 s of their start the pauses "
                             "double from 0.5 s on. Lost nodes cause none. 0: no pauses."});
  options->AddValue(&target->crash_loop,
                    {.names = "--crash-loop",
                     .placeholder = "N",
                     .help = "End the job for good (exit status 93) when its workers fail "
                             "in the same way N times in a row within 10 s of their start, "
                             "even when restarts are left; 0: the number of restarts "
                             "alone counts, as with torchrun."});
  options->AddValue(&target->give_up_after,
                    {.names = "--give-up-after",
                     .placeholder = "N",
                     .help = "End the job for good (exit status 93) when its workers fail N "
                             "times in a row without progress between, even when restarts "
                             "are left; 0: never."});
  options->AddValue(&target->membership_changes,
                    {.names = "--membership-changes",
                     .placeholder = "N",
                     .help = "End the job when nodes were lost or left more than N times, "
                             "counted once for the whole job, until 60 s with progress give "
                             "all of them back.",
                     .default_text = "no limit"});
  options->AddValue(&target->quarantine_after,
                    {.names = "--quarantine-after",
                     .placeholder = "N",
                     .help = "Leave a node out when N failures of the job began there within "
                             "the quarantine time, as long as the job has enough nodes "
                             "without it; 0: never.",
                     .default_text = "3, and only for a spare that takes its place"});
  options->AddValue(&target->quarantine_time,
                    {.names = "--quarantine-time",
                     .placeholder = "SECONDS",
                     .help = "How long a failure counts against its node."});
}

void DefinePreemption(LaunchArguments* target, OptionSet* options) {
  options->AddValue(&target->preempt_signals,
                    {.names = "--preempt-signals",
                     .placeholder = "NAME,…",
                     .help = "Signals that say that this node is about to be taken away: "
                             "all workers of the job stop at one step and save, where they "
                             "ask for it (docs/PROGRESS.md), and the exit status is 75. "
                             "SIGTERM here never ends the run otherwise.",
                     .default_text = "SIGTERM, as long as all workers of this node ask; none: no "
                                     "signal",
                     .shape = ValueShape::kList});
  options->AddValue(&target->preempt_deadline,
                    {.names = "--preempt-deadline",
                     .placeholder = "SECONDS",
                     .help = "How long after such a signal the node is still there.",
                     .default_text = "that of --grace"});
  options->AddValue(&target->preempt_after,
                    {.names = "--preempt-after",
                     .placeholder = "SECONDS",
                     .help = "How long this node is there at all, from now on: as if such a "
                             "signal came --preempt-deadline before.",
                     .default_text = "for ever"});
}

void DefineRecovery(LaunchArguments* target, OptionSet* options) {
  options->Group("Recovery (times in seconds, or with a unit: 150ms, 2m)");
  options->AddValue(&target->grace,
                    {.names = "--grace",
                     .placeholder = "SECONDS",
                     .help = "Time that workers have between TERM and KILL, however the job "
                             "is stopped."});
  options->AddValue(&target->shutdown_timeout, {.names = "--shutdown-timeout",
                                                .placeholder = "SECONDS",
                                                .help = "torchrun's name of --grace.",
                                                .environment = "PET_SHUTDOWN_TIMEOUT,"
                                                               "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"});
  options->AddValue(&target->signals_to_handle,
                    {.names = "--signals-to-handle",
                     .placeholder = "NAME,…",
                     .help = "Signals that end the run; workers get the same one.",
                     .shape = ValueShape::kList});
  options->AddValue(&target->lease,
                    {.names = "--lease",
                     .placeholder = "SECONDS",
                     .help = "A node that is silent for so long is lost.",
                     .default_text = "5, after which the node is waited for as long as that costs "
                                     "less than a restart"});
  options->AddValue(&target->reconnect_grace,
                    {.names = "--reconnect-grace",
                     .placeholder = "SECONDS",
                     .help = "How long a closed connection may take to come back before its "
                             "node counts as lost."});
  options->AddValue(
      &target->service_loss_timeout,
      {.names = "--service-loss-timeout",
       .placeholder = "SECONDS",
       .help = "How long this node keeps its workers when the rendezvous service is lost. "
               "Without this option a node whose workers can't go on, because one has failed, "
               "waits 10 s at most, unless there is a --state_dir."});
  options->AddValue(&target->state_dir,
                    {.names = "--state-dir",
                     .placeholder = "DIR",
                     .help = "Where this node has the rendezvous service: keep what it knows of "
                             "the job in DIR, for the one that is started again when it dies.",
                     .default_text = "with the agent's own files, which go with it"});
  options->AddValue(&target->isolation_timeout,
                    {.names = "--isolation-timeout",
                     .placeholder = "SECONDS",
                     .help = "After this time without contact a node's workers are killed, "
                             "whatever else fails; longer than the lease."});
  DefineGuardOptions(target, options);
  DefineWarmOptions(target, options);
  options->AddValue(&target->exit_barrier_timeout,
                    {.names = "--exit-barrier-timeout",
                     .placeholder = "SECONDS",
                     .help = "How long a node whose workers all ended well waits for other "
                             "nodes that are at work; then it exits with 0. The node with "
                             "the rendezvous service and that of rank 0 stay.",
                     .default_text = "until all are done",
                     .environment = "TORCH_ELASTIC_EXIT_BARRIER_TIMEOUT"});
  options->AddValue(&target->exit_code,
                    {.names = "--exit-code",
                     .placeholder = "1|worker",
                     .help = "Exit status when the job failed, but not for good. worker: "
                             "that of the worker that failed first, or 128 + its signal."});
  options->AddValue(&target->monitor_interval,
                    {.names = "--monitor-interval",
                     .placeholder = "SECONDS",
                     .help = "Accepted for torchrun's sake; ddprun waits for events of the "
                             "kernel and has no interval."});
}

// Options of accelerate, DeepSpeed, mpirun and others, with the advice what to use instead.
void DefineForeign(OptionSet* options) {
  const std::string workers = "the workers of this node are --nproc_per_node N";
  for (const char* name : {"num-processes", "num-gpus", "gpus", "nprocs", "devices", "np", "n"}) {
    options->AddForeign(name, workers);
  }
  const std::string gpus = "these GPUs of this node are --nproc_per_node gpu:0,2";
  for (const char* name : {"gpu-ids", "include"}) options->AddForeign(name, gpus);
  for (const char* name : {"num-machines", "num-nodes", "nodes", "N"}) {
    options->AddForeign(name, "the number of nodes is --nnodes N");
  }
  options->AddForeign("machine-rank", "the number of this node is --node_rank N");
  for (const char* name : {"main-process-ip", "dist-url", "init-method"}) {
    options->AddForeign(name, "node 0's host is --master_addr HOST, or --rdzv_endpoint HOST");
  }
  options->AddForeign("main-process-port", "node 0's port is --master_port PORT");
  for (const char* name : {"hostfile", "host", "hosts", "H"}) {
    options->AddForeign(name,
                        "ddprun goes to no other host: start it on each one, with srun or ssh, "
                        "and --nnodes N --rdzv_endpoint HOST");
  }
  options->AddForeign("config-file", "a file of options is --config FILE");
  options->AddForeign("mixed-precision", "the script chooses its precision");
  for (const char* name : {"backend", "dist-backend"}) {
    options->AddForeign(name, "the script chooses its backend, in init_process_group");
  }
  for (const char* name : {"env", "export", "x"}) {
    options->AddForeign(name, "variables go in front, on every node: NAME=VALUE ddprun …");
  }
  for (const char* name : {"deepspeed", "fsdp"}) {
    options->AddForeign(name, "options of the script go behind it: ddprun train.py --deepspeed …");
  }
  options->AddForeign("rank", "workers get their ranks; the number of this node is --node_rank N");
  options->AddForeign("world-size", "it follows from --nnodes and --nproc_per_node");
  for (const char* name : {"dry-run", "print-config"}) {
    options->AddForeign(name,
                        "ddprun config --output -, with the same words, prints what they mean");
  }
  for (const char* name : {"verbose", "v"}) {
    options->AddForeign(name,
                        "--debug makes NCCL and torch.distributed log more; see --version, too");
  }
  options->AddForeign("V", "did you mean --version?");
  options->AddForeign("port", "node 0's port is --master_port PORT, or --rdzv_endpoint HOST:PORT");
}

}  // namespace

void DefineLaunchOptions(LaunchArguments* target, OptionSet* options) {
  DefineSize(target, options);
  DefineRendezvous(target, options);
  DefineWorkers(target, options);
  DefineStreams(target, options);
  DefineRecords(target, options);
  DefineRestarts(target, options);
  DefineRecovery(target, options);
  DefinePreemption(target, options);
  DefineHangOptions(target, options);
  options->Group("Help");
  options->AddFlag(&target->version, {.names = "--version",
                                      .help = "Print the version, its commit, the glibc that it "
                                              "needs and the torch it was tested with; exit.",
                                      .environment = ""});
  options->AddValue(&target->print_completion,
                    {.names = "--print-completion",
                     .placeholder = "bash|zsh",
                     .help = "Print the shell's completion script, which "
                             "is installed with ddprun, and exit.",
                     .environment = ""});
  DefineForeign(options);
}

}  // namespace ddprun::launcher
