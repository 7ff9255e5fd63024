#include "ddprun/context.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "worker/client/agent_client.h"
#include "worker/env/parked_program.h"
#include "worker/torch/collectives/checked_group.h"
#include "worker/torch/collectives/collectives.h"
#include "worker/torch/collectives/counted_collectives.h"
#include "worker/torch/collectives/nccl_plugin.h"
#include "worker/torch/collectives/process_group.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/errors/failure_notice.h"
#include "worker/torch/store/agent_store.h"
#include "worker/torch/store/collective_check.h"
#include "worker/torch/store/meeting.h"

namespace ddprun {
namespace {

using worker::AgentClient;
using worker::BackendKind;
using worker::CatchExceptions;
using worker::WorkerAssignment;
using worker::WorkerEnvironment;

// The agent knew the assignment before it started this process.
constexpr absl::Duration kAssignmentTimeout = absl::Seconds(10);
// How long after a broken collective its generation ends at most: agents notice a death within
// milliseconds, a lost node within a lease.
constexpr absl::Duration kEndTimeout = absl::Seconds(10);
// A job may wait long for a node to join.
constexpr absl::Duration kNextAssignmentTimeout = absl::Hours(24 * 30);
// The store's timeout if there is only a problem to report.
constexpr absl::Duration kNotifyTimeout = absl::Seconds(1);

using StorePointer = c10::intrusive_ptr<c10d::Store>;

absl::Status CheckStillCurrent(const WorkerEnvironment& environment,
                               const WorkerAssignment& assignment) {
  if (assignment.generation != environment.generation) {
    return absl::AbortedError(absl::StrCat(
        worker::kPeerErrorPrefix, "this worker belongs to generation ", environment.generation,
        ", the current one is ", assignment.generation, "; its agent starts a new worker"));
  }
  if (assignment.rank != environment.rank || assignment.world_size != environment.world_size) {
    return absl::InternalError(absl::StrCat(
        "the agent assigns rank ", assignment.rank, " of ", assignment.world_size,
        " in generation ", assignment.generation, ", the environment says ", environment.rank,
        " of ", environment.world_size, "; keep RANK and WORLD_SIZE as the agent set them"));
  }
  return absl::OkStatus();
}

bool CanRejoin(const Context::Implementation& context) {
  return context.rejoins && context.agent != nullptr;
}

// Takes the store of the generation in `context.environment`.
void TakeStore(Context::Implementation& context, const WorkerAssignment& assignment) {
  context.node_address = assignment.node_address;
  context.store =
      c10::make_intrusive<worker::AgentStore>(context.agent->Store(assignment.generation));
  if (!CanRejoin(context)) return;
  context.plan.abort = std::make_shared<worker::GroupAbort>();
  context.end = std::make_unique<worker::GenerationEnd>(*context.agent, assignment.local_rank,
                                                        assignment.generation, context.plan.abort);
}

// Takes the live assignment, and its store, from the own agent.
absl::Status JoinThroughAgent(Context::Implementation& context) {
  WorkerEnvironment& environment = context.environment;
  context.agent =
      AgentClient::Create(environment.agent_socket, environment.run_id, worker::CanPark());
  DDPRUN_ASSIGN_OR_RETURN(
      const WorkerAssignment assignment,
      context.agent->GetAssignment(environment.local_rank, environment.generation - 1,
                                   kAssignmentTimeout));
  DDPRUN_RETURN_IF_ERROR(CheckStillCurrent(environment, assignment));
  TakeStore(context, assignment);
  return absl::OkStatus();
}

// A second context would meet the first one's keys in the generation's store, and wait for ranks
// that don't come.
absl::Status CheckIsFirst(const WorkerEnvironment& environment) {
  static std::atomic<bool> has_met = false;
  if (environment.world_size == 1 || !has_met.exchange(true)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "this process has made a Context already, and its ranks meet once: make one in main() and "
      "pass it on; Group::Create connects its ranks once more, and RunSessions trains several "
      "times");
}

// True if neither ddprun nor the launcher serves a store.
bool RankZeroHostsStore(const WorkerEnvironment& environment) {
  return !environment.started_by_ddprun() && environment.master_port != 0 &&
         !environment.launcher_serves_store;
}

// Under torchrun: what Python's env:// does. On one node the restart count keeps the keys of
// earlier attempts apart, which torchrun's shared store still holds; over several nodes the counts
// differ.
absl::Status JoinThroughMaster(Context::Implementation& context, absl::Duration timeout) {
  const WorkerEnvironment& environment = context.environment;
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(environment.master_port);
  options.isServer = environment.rank == 0 && RankZeroHostsStore(environment);
  options.waitWorkers = false;
  options.timeout = absl::ToChronoMilliseconds(timeout);
  context.store = c10::make_intrusive<c10d::TCPStore>(environment.master_addr, options);
  if (environment.local_world_size == environment.world_size) {
    context.store = c10::make_intrusive<c10d::PrefixStore>(
        absl::StrCat("attempt_", environment.restart_count), context.store);
  }
  return absl::OkStatus();
}

// A launcher that starts a program several times, and gives its processes no ranks that a Context
// reads: srun, mpirun of Open MPI, of MPICH or Intel.
struct OtherLauncher {
  const char* size;  // variables: how many processes, and which one this is
  const char* rank;
  const char* name;
};
constexpr std::array<OtherLauncher, 3> kOtherLaunchers = {
    {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "mpirun"},
     {"PMI_SIZE", "PMI_RANK", "mpirun"},
     {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun"}}};  // SLURM_NTASKS is a batch script's, too

uint32_t NumberIn(const char* variable) {
  const char* text = std::getenv(variable);
  uint32_t number = 0;
  return text != nullptr && absl::SimpleAtoi(text, &number) ? number : 0;
}

// Four processes of `srun -n 4 ./train` would each train alone, on all samples, and write the same
// files. Only the first one says so.
void SayThatOthersTrainAlone() {
  for (const OtherLauncher& one : kOtherLaunchers) {
    const uint32_t size = NumberIn(one.size);
    if (size < 2) continue;
    if (NumberIn(one.rank) > 0) return;
    return Notify(absl::StrCat(one.size, " is ", size,
                               ", and this process trains alone: ", one.name,
                               " doesn't connect its processes; let it start one `ddprun` on each "
                               "node, which starts the workers"));
  }
}

absl::Status Join(Context::Implementation& context, absl::Duration timeout) {
  if (context.environment.started_by_ddprun()) return JoinThroughAgent(context);
  if (context.environment.master_port != 0) return JoinThroughMaster(context, timeout);
  SayThatOthersTrainAlone();
  context.store = c10::make_intrusive<c10d::HashStore>();
  context.node_address = "127.0.0.1";
  return absl::OkStatus();
}

// The program's backend, or, for "auto", the one that DDPRUN_BACKEND names.
std::string WantedBackend(const ContextOptions& options) {
  const char* named = std::getenv("DDPRUN_BACKEND");
  if (options.backend != "auto" || named == nullptr || *named == '\0') return options.backend;
  return named;
}

// "auto" takes NCCL only if it can be used; for "nccl" the reason why not is an error.
absl::StatusOr<BackendKind> ChooseBackend(const std::string& wanted,
                                          const WorkerEnvironment& environment) {
  if (wanted == "gloo") return BackendKind::kGloo;
  if (wanted == "nccl") return BackendKind::kNccl;
  if (wanted == "shm") return BackendKind::kShm;
  if (wanted == "hierarchical") return BackendKind::kHierarchical;
  if (wanted != "auto") {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown backend '", wanted, "'; use auto, shm, hierarchical, gloo or nccl"));
  }
  if (!worker::MachineHasGpus()) return BackendKind::kAuto;
  const absl::StatusOr<worker::NcclPlugin> plugin = worker::LoadNcclPlugin();
  if (!plugin.ok()) {
    if (environment.local_rank == 0) {
      Log(LogLevel::kWarning, absl::StrCat("training on the CPU: ", plugin.status().message()));
    }
    return BackendKind::kAuto;
  }
  const bool enough = plugin->device_count() >= static_cast<int>(environment.local_world_size);
  return enough ? BackendKind::kNccl : BackendKind::kAuto;
}

// The GPU of a worker: its local rank, unless the launcher gave each worker a GPU of its own.
absl::StatusOr<int> ChooseGpu(uint32_t local_rank) {
  DDPRUN_ASSIGN_OR_RETURN(const worker::NcclPlugin plugin, worker::LoadNcclPlugin());
  const int count = plugin.device_count();
  if (count == 0) {
    return absl::FailedPreconditionError(
        "the backend 'nccl' needs a GPU, and CUDA sees none; use the backend 'gloo'");
  }
  if (count == 1) return 0;
  if (static_cast<int>(local_rank) >= count) {
    return absl::FailedPreconditionError(absl::StrCat("local rank ", local_rank,
                                                      " has no GPU: CUDA sees ", count,
                                                      "; start at most one worker a GPU"));
  }
  return static_cast<int>(local_rank);
}

// Fills the parts of the plan that this rank decides alone.
absl::Status Plan(Context::Implementation& context, const ContextOptions& options) {
  worker::ProcessGroupPlan& plan = context.plan;
  DDPRUN_ASSIGN_OR_RETURN(const BackendKind backend,
                          ChooseBackend(WantedBackend(options), context.environment));
  plan.backend = backend;
  context.rejoins = options.in_process_restart ||
                    (options.in_process_restart_on_cpu && backend != BackendKind::kNccl);
  plan.rank = context.environment.rank;
  plan.world_size = context.environment.world_size;
  plan.host = context.environment.group_rank;
  plan.start_timeout = options.start_timeout;
  plan.collective_timeout = options.collective_timeout;
  if (backend == BackendKind::kNccl) {
    DDPRUN_ASSIGN_OR_RETURN(plan.device_index, ChooseGpu(context.environment.local_rank));
    context.device = torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(plan.device_index));
    if (context.rejoins) worker::LeaveNcclErrorsAlone();
  }
  return absl::OkStatus();
}

worker::FailureNotice NoticeOf(const Context::Implementation& context) {
  return {.store = context.store,
          .rank = context.environment.rank,
          .world_size = context.environment.world_size,
          .rank_zero_hosts = RankZeroHostsStore(context.environment)};
}

// Reports to the others, which would wait for this rank, why it can't take part.
absl::Status Refuse(Context::Implementation& context, const absl::Status& problem) {
  CatchExceptions([&]() -> absl::Status {
    if (!Join(context, kNotifyTimeout).ok()) return absl::OkStatus();
    worker::AddFailureNotice(NoticeOf(context));
    worker::NotifyProblem(*context.store, context.environment.rank, std::string(problem.message()));
    return absl::OkStatus();
  }).IgnoreError();  // the problem comes first
  return problem;
}

// For the detection of hangs: the counts show which rank the others wait for. NCCL doesn't count.
void CountCollectives(Context::Implementation& context) {
  auto* counted =
      dynamic_cast<worker::CountedCollectives*>(context.group->getDefaultBackend().get());
  if (counted == nullptr) return;
  context.progress.CountCollectives(1);
  counted->set_on_begin(
      [&progress = context.progress](uint64_t begun) { progress.CountCollectives(begun + 1); });
}

absl::Status Connect(Context::Implementation& context, const ContextOptions& options) {
  worker::ProcessGroupPlan& plan = context.plan;
  plan.bind_address = context.node_address;
  std::string reason;
  DDPRUN_ASSIGN_OR_RETURN(context.group, worker::CreateProcessGroup(context.store, plan, &reason));
  CountCollectives(context);
  context.backend = context.group->getDefaultBackend()->getBackendName();
  if (context.backend == "ordered gloo") context.backend = "gloo";
  if (WantedBackend(options) == "auto" && plan.rank == 0) {
    Notify(absl::StrCat("backend ", reason));
  }
  DDPRUN_ASSIGN_OR_RETURN(context.group, worker::DebugGroup(context.store, context.group, plan));
  const char* check = std::getenv("DDPRUN_CHECK_COLLECTIVES");
  if (options.check_collectives || (check != nullptr && absl::string_view(check) == "1")) {
    context.check = std::make_shared<worker::CollectiveCheck>(
        context.store, plan.rank, plan.world_size, plan.collective_timeout);
    context.group = worker::CheckedGroup(context.store, context.group, context.check);
  }
  return absl::OkStatus();
}

// Prints the variables that change how the workers communicate, once for the job.
void ShowVariables(const Context::Implementation& context) {
  const std::string variables = worker::CommunicationVariables();
  if (variables.empty() || context.environment.rank != 0) return;
  Notify(absl::StrCat("rank 0 communicates over ", context.backend, " with ", variables));
}

// Warns of an option that has no effect under this launcher.
void SayWhatHasNoEffect(const Context::Implementation& context) {
  if (!context.options.in_process_restart || context.agent != nullptr) return;
  if (context.environment.rank != 0) return;
  Log(LogLevel::kWarning,
      "in_process_restart has no effect: workers live on when another one fails only where ddprun "
      "has started them");
}

// Without a page the program runs without marks.
void OpenProgress(Context::Implementation& context) {
  if (context.environment.progress_page.empty()) return;
  absl::StatusOr<worker::ProgressPage> page =
      worker::ProgressPage::Open(context.environment.progress_page);
  if (!page.ok()) {
    return Log(LogLevel::kWarning,
               absl::StrCat("hangs of this worker go unnoticed: ", page.status().message()));
  }
  context.progress = *std::move(page);
  context.progress.Mark(ProgressPhase::kStart, 0);
}

// Sets what the environment would have if this process had been started for this assignment.
void TakePlace(Context::Implementation& context, const WorkerAssignment& assignment) {
  WorkerEnvironment& environment = context.environment;
  environment.generation = assignment.generation;
  environment.rank = assignment.rank;
  environment.world_size = assignment.world_size;
  environment.local_world_size = assignment.local_world_size;
  environment.group_rank = assignment.group_rank;
  environment.restart_count = assignment.restart_count;
  environment.master_addr = assignment.master_addr;
  environment.master_port = assignment.master_port;
  context.groups_created = 0;
  context.subgroups_created.clear();
  context.models_created = 0;
  context.alone = context.counts_no_samples = false;
  context.starts = 0;
}

// Closes all connections to the other workers.
void LetGo(Context::Implementation& context) {
  worker::RemoveFailureNotice(context.store.get());
  context.progress.CountCollectives(0);
  if (context.plan.abort != nullptr) context.plan.abort->Abort();
  context.end.reset();
  context.check.reset();
  c10::intrusive_ptr<c10d::Backend> backend;
  if (context.group && context.plan.backend == BackendKind::kNccl) {
    backend = context.group->getDefaultBackend();
  }
  context.group.reset();
  if (backend) worker::GroupAbort::DestroyBeside(std::move(backend));
  context.plan.abort.reset();
  context.store.reset();
}

absl::Status MeetOthers(Context::Implementation& context) {
  worker::AddFailureNotice(NoticeOf(context));
  DDPRUN_RETURN_IF_ERROR(Connect(context, context.options));
  worker::NotifyJoined(NoticeOf(context));
  return absl::OkStatus();
}

// Rejoins while generations break before all ranks have met. Otherwise this process would have to
// be started again because another one couldn't be started.
absl::Status RejoinWhile(Context& context, absl::Status met) {
  while (!met.ok() && context.CanRejoin() &&
         absl::StartsWith(met.message(), worker::kPeerErrorPrefix)) {
    met = context.Rejoin();
  }
  return met;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Context>> Context::Create(const ContextOptions& options) {
  return CatchExceptions([&]() -> absl::StatusOr<std::unique_ptr<Context>> {
    auto implementation = std::make_unique<Implementation>();
    DDPRUN_ASSIGN_OR_RETURN(implementation->environment, worker::ReadWorkerEnvironment());
    implementation->options = options;
    DDPRUN_RETURN_IF_ERROR(CheckIsFirst(implementation->environment));
    OpenProgress(*implementation);
    const absl::Status planned = Plan(*implementation, options);
    if (!planned.ok()) return Refuse(*implementation, planned);
    DDPRUN_RETURN_IF_ERROR(Join(*implementation, options.start_timeout));
    const absl::Status met = CatchExceptions([&] { return MeetOthers(*implementation); });
    std::unique_ptr<Context> context(new Context(std::move(implementation)));
    DDPRUN_RETURN_IF_ERROR(RejoinWhile(*context, met));
    ShowVariables(context->implementation());
    SayWhatHasNoEffect(context->implementation());
    return context;
  });
}

absl::StatusOr<std::unique_ptr<Context>> Context::Alone(const Context& like) {
  return CatchExceptions([&]() -> absl::StatusOr<std::unique_ptr<Context>> {
    auto implementation = std::make_unique<Implementation>();
    const Implementation& other = *like.implementation_;
    implementation->options = other.options;
    implementation->device = other.device;
    implementation->environment.run_id = other.environment.run_id;
    worker::ProcessGroupPlan& plan = implementation->plan;
    plan.backend = other.backend == "nccl" ? BackendKind::kNccl : BackendKind::kGloo;
    plan.device_index = other.plan.device_index;
    plan.bind_address = "127.0.0.1";
    plan.start_timeout = other.plan.start_timeout;
    plan.collective_timeout = other.plan.collective_timeout;
    implementation->store = c10::make_intrusive<c10d::HashStore>();
    DDPRUN_ASSIGN_OR_RETURN(implementation->group,
                            worker::CreateProcessGroup(implementation->store, plan));
    implementation->backend = implementation->group->getDefaultBackend()->getBackendName();
    return std::unique_ptr<Context>(new Context(std::move(implementation)));
  });
}

Context::Context(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}

Context::~Context() {
  worker::GroupAbort::JoinAbandoned();
  // From here on the program works without the others, and isn't watched for hangs.
  implementation_->progress.Mark(ProgressPhase::kDone,
                                 ProgressStepOf(implementation_->progress.word()));
  if (implementation_->check != nullptr) {
    // So that others that still wait for this rank learn that it won't come.
    worker::CatchExceptions([this]() -> absl::Status {
      implementation_->check->AnnounceEnd();
      return absl::OkStatus();
    }).IgnoreError();
    worker::CompareAtEnd(implementation_->check);
  }
  // While an error travels up, a peer may be gone for good: NCCL's destructor would wait for it.
  // There is no group if that error came between two generations.
  if (std::uncaught_exceptions() > 0 && implementation_->backend == "nccl" &&
      implementation_->group) {
    implementation_->group->getDefaultBackend()->abort();
  }
}

uint32_t Context::rank() const { return implementation_->environment.rank; }
uint32_t Context::local_rank() const { return implementation_->environment.local_rank; }
uint32_t Context::world_size() const { return implementation_->environment.world_size; }
uint32_t Context::local_world_size() const { return implementation_->environment.local_world_size; }
uint32_t Context::node_rank() const { return implementation_->environment.group_rank; }
uint64_t Context::generation() const { return implementation_->environment.generation; }
uint32_t Context::restart_count() const { return implementation_->environment.restart_count; }
const std::string& Context::run_id() const { return implementation_->environment.run_id; }
torch::Device Context::device() const { return implementation_->device; }
const std::string& Context::backend() const { return implementation_->backend; }

void Context::Mark(ProgressPhase phase, int64_t step) {
  const int64_t marked = implementation_->steps_before + std::max<int64_t>(step, 0);
  implementation_->progress.Mark(phase, static_cast<uint64_t>(marked));
}

bool Context::StopAt(int64_t step) {
  const int64_t asked = implementation_->steps_before + std::max<int64_t>(step, 0);
  return implementation_->progress.StopAt(static_cast<uint64_t>(asked));
}

bool Context::CanRejoin() const { return implementation_->end != nullptr; }

bool Context::GenerationIsOver() const {
  return implementation_->end != nullptr && implementation_->end->is_over();
}

absl::Status Context::Rejoin() {
  Implementation& self = *implementation_;
  if (!CanRejoin()) {
    return absl::FailedPreconditionError(
        "this worker can't go on in another generation: that takes in_process_restart, and ddprun "
        "as the launcher");
  }
  return CatchExceptions([&]() -> absl::Status {
    const absl::StatusOr<std::string> why = self.end->Await(kEndTimeout);
    DDPRUN_RETURN_IF_ERROR(why.status());
    Log(LogLevel::kInfo,
        absl::StrCat("rank ", rank(), " leaves generation ", generation(), ": ", *why));
    LetGo(self);
    DDPRUN_ASSIGN_OR_RETURN(
        const WorkerAssignment assignment,
        self.agent->GetAssignment(local_rank(), generation(), kNextAssignmentTimeout));
    TakePlace(self, assignment);
    self.progress.Mark(ProgressPhase::kStart, 0);
    DDPRUN_RETURN_IF_ERROR(Plan(self, self.options));
    TakeStore(self, assignment);
    return MeetOthers(self);
  });
}

void Context::AddDataWait(absl::Duration waited) { implementation_->progress.AddDataWait(waited); }

absl::Status Context::AllReduceSum(torch::Tensor& tensor) {
  return worker::AllReduceSum(*implementation_->group, tensor);
}

absl::Status Context::Broadcast(torch::Tensor& tensor, uint32_t source) {
  return worker::Broadcast(*implementation_->group, tensor, source);
}

absl::StatusOr<std::vector<torch::Tensor>> Context::AllGather(const torch::Tensor& tensor) {
  return worker::AllGather(*implementation_->group, tensor);
}

absl::Status Context::Barrier() {
  return worker::Barrier(*implementation_->group, implementation_->device);
}

absl::Status Context::AwaitResults() {
  return worker::AwaitResults(*implementation_->group, implementation_->device);
}

}  // namespace ddprun
