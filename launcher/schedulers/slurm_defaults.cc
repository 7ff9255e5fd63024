#include "launcher/schedulers/slurm_defaults.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/address.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/argument.h"
#include "launcher/options/values.h"
#include "launcher/schedulers/slurm_step.h"
#include "rendezvous/core/timing.h"

namespace ddprun::launcher {
namespace {

// Where the service of a step listens: below 29400, which users name, and below what the kernel
// gives to connections (ip(7), ip_local_port_range).
constexpr uint32_t kPortFirst = 15000;
constexpr uint32_t kPortCount = 14000;
constexpr size_t kNodesTold = 4;
constexpr char kRequeueVariable[] = "DDPRUN_SLURM_REQUEUE";
// How long the resolver may say that the step's first node has no such name. Elsewhere ddprun waits
// for a name until the join timeout: pods of Kubernetes have none before they run, and a user may
// start a node before its host is in DNS. torchrun asks again for 60 s, then it ends with an error.
// A node of a Slurm step is up before the step begins, so its name has nothing to wait for but
// copies of DNS, and Slurm's own address for it has been tried as well. Only the resolver's
// definite answer counts, each second anew (EAI_NONAME, EAI_NODATA of getaddrinfo(3)): where it
// can't say (EAI_AGAIN, a name server that is away), ddprun goes on waiting.
constexpr absl::Duration kUnknownNameBound = absl::Seconds(10);
// A longer time limit counts as none.
constexpr absl::Duration kTimeLeftMost = absl::Hours(24 * 300);

// The same on every node, and another one for each job, step and requeue.
uint32_t PortOf(const std::string& run_id) {
  uint32_t hash = 2166136261U;  // FNV-1a
  for (const char c : run_id) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return kPortFirst + hash % kPortCount;
}

void FillIn(Argument* argument, const std::string& text, const std::string& source) {
  if (!argument->given()) *argument = {.text = text, .source = source};
}

// Fills in one launch.
class SlurmFiller {
 public:
  SlurmFiller(const SlurmStep& step, const Host& host, LaunchArguments* arguments,
              std::vector<std::string>* warnings)
      : step_(step), host_(host), arguments_(*arguments), warnings_(warnings) {}

  absl::StatusOr<SlurmShare> Fill(const EnvironmentLookup& environment) {
    first_launches_ = FirstLaunches();
    SlurmShare share;
    share.found = true;
    if (first_launches_ && step_.local_tasks > 1) {
      DDPRUN_RETURN_IF_ERROR(CheckDevices());
      // Nodes may share a machine, as in tests of Slurm's own.
      share.node_socket = absl::StrCat("ddprun-slurm-", step_.RunId(), "-", step_.node);
      share.waits = step_.local_task > 0;
    }
    FillWorkers(environment);
    FillRendezvous();
    // A name that the user gave may be shared by agents of other steps.
    const bool own_name = !arguments_.rdzv_id.given();
    FillIn(&arguments_.rdzv_id, step_.RunId(), "SLURM_JOB_ID");
    FillTime();
    // The first node has the batch script, which would do it.
    if (Index() != 0 && environment(kRequeueVariable).value_or("") == "1") {
      share.requeue_job = step_.job_id;
    }
    if (Index() == 0 && !share.waits) share.told = Told();
    uint32_t give_up_after = 0;
    if (Index() == 0 &&
        absl::SimpleAtoi(environment(kGiveUpVariable).value_or(""), &give_up_after) &&
        give_up_after > 0) {
      share.requeues = {.job = step_.job_id, .give_up_after = give_up_after};
    }
    if (Index() == 0) share.requeues.status_file = environment(kStatusFileVariable).value_or("");
    if (waits_for_step_ && own_name) share.agents_started = Agents();
    if (waits_for_step_) {
      share.alone_hint = absl::StrCat(
          "Slurm: job ", step_.RunId(), " has ", step_.nodes.size(),
          " nodes, but ddprun may have "
          "been started on one of them alone, as in the shell of srun --pty: start it on all with "
          "srun --overlap --ntasks-per-node=1 ddprun …, or on this one alone with --no_slurm");
      share.unknown_name = kUnknownNameBound;
      share.name_hint = absl::StrCat(
          "The name is from SLURM_STEP_NODELIST, and scontrol show node ", step_.nodes.front(),
          " gives no address that resolves either: add it to DNS or /etc/hosts, set NodeAddr in "
          "slurm.conf, or give --rdzv_endpoint ADDRESS:PORT on all nodes");
    }
    return share;
  }

 private:
  // Whether a node's tasks are one agent: there are more tasks than nodes, and the job's nodes are
  // those of the step. The same answer on every node, also where one has a single task.
  bool FirstLaunches() const {
    if (step_.tasks <= step_.nodes.size()) return false;
    if (arguments_.standalone || arguments_.node_rank.given()) return false;
    const absl::StatusOr<NodeRange> nodes = ParseNodeRange(arguments_.nnodes);
    return !arguments_.nnodes.given() || (nodes.ok() && nodes->max <= step_.nodes.size());
  }

  // This agent's number, and how many there are.
  uint32_t Index() const { return first_launches_ ? step_.node : step_.task; }
  uint32_t Agents() const {
    return first_launches_ ? static_cast<uint32_t>(step_.nodes.size()) : step_.tasks;
  }

  // A task that may use its own GPU alone can't give workers the others'.
  absl::Status CheckDevices() const {
    if (!step_.own_gpus) return absl::OkStatus();
    return PlanError(absl::StrCat(
        "SLURM_STEP_GPUS: each of the ", step_.local_tasks,
        " tasks on this node may use its own GPU alone, but ddprun starts all workers of a node "
        "itself; run it as: srun --ntasks-per-node=1 --gpus-per-node=",
        step_.gpus.value_or(step_.local_tasks), " ddprun …, or give --no_slurm"));
  }

  void FillWorkers(const EnvironmentLookup& environment) {
    Argument& workers = arguments_.nproc_per_node;
    if (first_launches_) {
      FillIn(&workers, absl::StrCat(step_.local_tasks), "SLURM_STEP_TASKS_PER_NODE");
    } else if (step_.local_tasks == 1 && step_.gpus.value_or(0) > 0) {
      FillIn(&workers, absl::StrCat(*step_.gpus), "SLURM_GPUS_ON_NODE");
    }
    if (step_.cpus.value_or(0) == 0) return;
    arguments_.cpus_max = step_.cpus;
    const uint32_t wanted = step_.cpus_per_task.value_or(0);
    if (step_.local_tasks == 1 && wanted > *step_.cpus && !step_.step_id.empty()) {
      warnings_->push_back(absl::StrCat(
          "this step has ", CountText(*step_.cpus, "CPU"), " on a node, the job asked for ", wanted,
          ": srun takes --cpus-per-task over no more; export SRUN_CPUS_PER_TASK=", wanted,
          " in the batch script"));
    }
    const auto& extra = arguments_.worker_environment;
    const bool named = environment("OMP_NUM_THREADS").has_value() ||
                       std::any_of(extra.begin(), extra.end(), [](const auto& variable) {
                         return variable.first == "OMP_NUM_THREADS";
                       });
    if (!named) FillIn(&arguments_.omp_threads, "auto", "SLURM_CPUS_ON_NODE");
  }

  void FillRendezvous() {
    if (arguments_.standalone) return;
    FillIn(&arguments_.nnodes, absl::StrCat(Agents()), "SLURM_STEP_NUM_NODES");
    const absl::StatusOr<NodeRange> nodes = ParseNodeRange(arguments_.nnodes);
    // An invalid --nnodes is reported later, with all other options.
    if (!nodes.ok() || nodes->max < 2 || Agents() < 2) return;
    const bool is_static =
        arguments_.master_addr.filled() ||
        (arguments_.rdzv_backend.given() && arguments_.rdzv_backend.text == "static");
    const bool place_named = arguments_.rdzv_endpoint.filled() || arguments_.master_addr.filled();
    if (!place_named) {
      const std::string address = host_.SlurmNodeAddress(step_.nodes.front());
      FillIn(&arguments_.rdzv_endpoint, HostPort(address, static_cast<int>(PortOf(step_.RunId()))),
             "SLURM_STEP_NODELIST");
      arguments_.hosts_service = Index() == 0;
      waits_for_step_ = true;
    }
    // A number of its own says static; the nodes of a step may be spares, which static has not.
    if (!arguments_.master_addr.filled() && !arguments_.node_rank.given()) {
      FillIn(&arguments_.rdzv_backend, "c10d", "SLURM_STEP_NODELIST");
    }
    if (is_static || Index() < nodes->max) {
      FillIn(&arguments_.node_rank, absl::StrCat(Index()), "SLURM_NODEID");
    }
  }

  // The end of the job's time, queried once a job: on the node with the service. A user that names
  // a signal gets that from Slurm at the end, and preempting by time as well would cut its time
  // short.
  void FillTime() {
    if (arguments_.preempt_after.given() || arguments_.preempt_signals.given() || Index() != 0 ||
        step_.local_task != 0)
      return;
    const std::optional<absl::Duration> left =
        host_.SlurmTimeLeft(step_.job_id, step_.end_time.value_or(0));
    if (!left.has_value() || *left > kTimeLeftMost || *left < absl::Seconds(1)) return;
    time_left_ = left;
    FillIn(&arguments_.preempt_after, absl::StrCat(absl::ToInt64Seconds(*left)),
           "SLURM_JOB_END_TIME");
  }

  std::string Told() const {
    std::vector<std::string> names(
        step_.nodes.begin(),
        step_.nodes.begin() + static_cast<ptrdiff_t>(std::min(step_.nodes.size(), kNodesTold)));
    if (names.size() < step_.nodes.size()) names.emplace_back("…");
    std::string text =
        absl::StrCat("Slurm: job ", step_.RunId(), ", ", CountText(arguments_.nnodes.text, "node"),
                     " of ", absl::StrJoin(names, ","), ", ",
                     CountText(arguments_.nproc_per_node.text, "worker"), " on each");
    if (step_.cpus.has_value()) {
      absl::StrAppend(&text, " with ", CountText(*step_.cpus, "CPU"));
    }
    if (arguments_.rdzv_endpoint.filled() && !arguments_.standalone) {
      absl::StrAppend(&text, ", rendezvous at ", arguments_.rdzv_endpoint.text);
    }
    if (time_left_.has_value()) {
      absl::StrAppend(&text, ", ", absl::FormatDuration(absl::Trunc(*time_left_, absl::Seconds(1))),
                      " left");
    }
    return absl::StrCat(text, " (--no_slurm: none of this)");
  }

  const SlurmStep& step_;
  const Host& host_;
  LaunchArguments& arguments_;
  std::vector<std::string>* warnings_;
  bool first_launches_ = false;
  bool waits_for_step_ = false;  // the job's other nodes are the step's, as far as is known
  std::optional<absl::Duration> time_left_;
};

}  // namespace

absl::StatusOr<SlurmShare> ApplySlurm(const EnvironmentLookup& environment, const Host& host,
                                      LaunchArguments* arguments,
                                      std::vector<std::string>* warnings) {
  if (arguments->no_slurm) return SlurmShare();
  DDPRUN_ASSIGN_OR_RETURN(const std::optional<SlurmStep> step, ReadSlurmStep(environment));
  if (step.has_value()) return SlurmFiller(*step, host, arguments, warnings).Fill(environment);
  if (IsBatchScriptOfManyNodes(environment) && !arguments->nnodes.given() &&
      !arguments->standalone) {
    warnings->push_back(
        "this Slurm job has several nodes, but nothing started ddprun on all of them: write srun "
        "before it (--ntasks-per-node=1); this is a job of one node");
  }
  return SlurmShare();
}

void FinishSlurm(const SlurmShare& share, LaunchPlan* plan) {
  plan->node_socket = share.node_socket;
  plan->requeue_job = share.requeue_job;
  plan->requeues = share.requeues;
  plan->endpoint.alone_hint = share.alone_hint;
  plan->endpoint.name_hint = share.name_hint;
  plan->service.unknown_name = share.unknown_name;
  plan->job.agents_started = share.agents_started;
  if (share.agents_started > 0) plan->ending.late_agents = rendezvous::kAgentsStart;
}

}  // namespace ddprun::launcher
