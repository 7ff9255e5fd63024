#ifndef DDPRUN_LAUNCHER_CORE_ENVIRONMENT_H_
#define DDPRUN_LAUNCHER_CORE_ENVIRONMENT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ddprun::rendezvous {
struct Assignment;
}

namespace ddprun::launcher {

struct LaunchPlan;

// The value of an environment variable of this process, or nullopt when it is not set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

// This user's folder of one kind of file, by the XDG Base Directory Specification: the value of the
// variable, or `below_home` (".cache") in $HOME. "" = neither names a folder.
std::string UserFolder(const EnvironmentLookup& environment, const char* variable,
                       const char* below_home);

// Paths that belong to one worker of one generation.
struct WorkerPaths {
  std::string agent_socket;   // unix socket of the agent's service: DDPRUN_AGENT
  std::string error_file;     // where the worker writes its error; "" = nowhere
  std::string timer_file;     // the watchdog's FIFO; "" = there is none
  std::string progress_page;  // docs/PROGRESS.md: DDPRUN_PROGRESS; "" = there is none
  // Where workers of --run_path wait for each other at their end: DDPRUN_FINISH_BARRIER, which the
  // program in front of the script takes away; "" = they don't.
  std::string finish_barrier;
};

// The variables that one worker gets on top of the agent's own environment: torchrun's contract for
// torch 2.11 and DDPRUN_GENERATION, DDPRUN_AGENT, DDPRUN_PROGRESS. All others are inherited.
// Params: local_rank — below plan.worker_count. inherited — the agent's own environment, for
// variables that a user's value overrides.
// Returns: "NAME=value" in a fixed order, each name once. Threads: any.
std::vector<std::string> WorkerEnvironment(const LaunchPlan& plan,
                                           const rendezvous::Assignment& assignment,
                                           uint32_t local_rank, const EnvironmentLookup& inherited,
                                           const WorkerPaths& paths);

// The names of WorkerEnvironment() whose values differ between workers or generations.
std::vector<std::string> VaryingVariables(const LaunchPlan& plan);

// The variables of WorkerEnvironment() that are the same for all workers of all generations.
std::vector<std::string> CommonEnvironment(const LaunchPlan& plan,
                                           const EnvironmentLookup& inherited);

// True when WorkerEnvironment() sets OMP_NUM_THREADS=1 by default (torchrun's rule: more than one
// worker on the node, and the user has set neither the variable nor --omp_threads). The user is
// notified of that.
bool DefaultsOmpThreads(const LaunchPlan& plan, const EnvironmentLookup& inherited);

// plan.argv for one worker: in every argument after the program, $local_rank and ${local_rank} are
// replaced, "$$" becomes "$", and other macros stay.
std::vector<std::string> WorkerArguments(const LaunchPlan& plan, uint32_t local_rank);

// The prefix of a console line of these workers (local ranks, ascending): "[default0]:",
// "[default0-3,7]:". Besides torchrun's macros (role_name, rank, local_rank) the template may use
// group_rank and host, this node's number and name; other macros aren't replaced.
std::string ConsolePrefix(const LaunchPlan& plan, const std::string& host,
                          const rendezvous::Assignment& assignment,
                          const std::vector<uint32_t>& local_ranks);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_ENVIRONMENT_H_
