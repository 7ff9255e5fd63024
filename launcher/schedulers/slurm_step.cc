#include "launcher/schedulers/slurm_step.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/errors.h"
#include "launcher/options/values.h"
#include "launcher/schedulers/slurm_text.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kIdDigitsMax = 20;
constexpr uint32_t kComponentsMax = 128;  // of a heterogeneous job: MAX_HET_JOB_COMPS of Slurm

absl::Status BadVariable(const std::string& name, const std::optional<std::string>& value,
                         absl::string_view what) {
  return PlanError(absl::StrCat(name, value.has_value() ? absl::StrCat(" ", Quoted(*value)) : "",
                                ": ", what, "; --no_slurm makes ddprun ignore Slurm's variables"));
}

// The variables of one process.
class SlurmVariables {
 public:
  explicit SlurmVariables(const EnvironmentLookup& environment) : environment_(environment) {}

  std::optional<std::string> Text(const std::string& name) const {
    std::optional<std::string> value = environment_(name);
    if (value.has_value() && value->empty()) return std::nullopt;
    return value;
  }

  // nullopt: it isn't set. Errors: plan — no number, or one above `most`.
  absl::StatusOr<std::optional<uint32_t>> Number(const std::string& name, uint32_t most) const {
    const std::optional<std::string> text = Text(name);
    if (!text.has_value()) return std::nullopt;
    uint32_t value = 0;
    if (!absl::SimpleAtoi(*text, &value) || value > most) {
      return BadVariable(name, text, absl::StrCat("is no number up to ", most));
    }
    return value;
  }

  absl::StatusOr<uint32_t> NumberOr(const std::string& name, uint32_t most,
                                    uint32_t fallback) const {
    DDPRUN_ASSIGN_OR_RETURN(const std::optional<uint32_t> value, Number(name, most));
    return value.value_or(fallback);
  }

  // The id of a job or a step. Errors: plan — it isn't digits alone.
  absl::StatusOr<std::string> Id(const std::string& name) const {
    const std::optional<std::string> text = Text(name);
    const bool good = text.has_value() && text->size() <= kIdDigitsMax &&
                      std::all_of(text->begin(), text->end(), [](char c) {
                        return absl::ascii_isdigit(static_cast<unsigned char>(c));
                      });
    if (!good) return BadVariable(name, text, "is no number");
    return *text;
  }

  // The hosts of a list variable. Errors: plan — it is missing, or can't be read.
  absl::StatusOr<std::vector<std::string>> Hosts(const std::string& name) const {
    const std::optional<std::string> text = Text(name);
    if (!text.has_value()) return BadVariable(name, text, "is not set");
    absl::StatusOr<std::vector<std::string>> hosts =
        ExpandHostList(*text, size_t{rendezvous::kNodesMax});
    if (!hosts.ok()) return BadVariable(name, text, hosts.status().message());
    return hosts;
  }

 private:
  const EnvironmentLookup& environment_;
};

// Slurm gives the step's list over all components; where it names one component's alone, the lists
// of all of them are put together.
absl::StatusOr<std::vector<std::string>> StepNodes(const SlurmVariables& variables) {
  DDPRUN_ASSIGN_OR_RETURN(std::vector<std::string> nodes, variables.Hosts("SLURM_STEP_NODELIST"));
  DDPRUN_ASSIGN_OR_RETURN(const uint32_t count,
                          variables.NumberOr("SLURM_STEP_NUM_NODES", rendezvous::kNodesMax,
                                             static_cast<uint32_t>(nodes.size())));
  if (count == nodes.size()) return nodes;
  DDPRUN_ASSIGN_OR_RETURN(const uint32_t components,
                          variables.NumberOr("SLURM_HET_SIZE", kComponentsMax, 0));
  std::vector<std::string> all;
  for (uint32_t i = 0; i < components; ++i) {
    DDPRUN_ASSIGN_OR_RETURN(const std::vector<std::string> part,
                            variables.Hosts(absl::StrCat("SLURM_JOB_NODELIST_HET_GROUP_", i)));
    all.insert(all.end(), part.begin(), part.end());
  }
  if (all.size() == count) return all;
  return BadVariable("SLURM_STEP_NODELIST", variables.Text("SLURM_STEP_NODELIST"),
                     absl::StrCat("names ", CountText(nodes.size(), "node"),
                                  ", but SLURM_STEP_NUM_NODES is ", count));
}

absl::Status ReadTasks(const SlurmVariables& variables, SlurmStep* step) {
  constexpr uint32_t kMost = std::numeric_limits<int32_t>::max();
  DDPRUN_ASSIGN_OR_RETURN(step->node,
                          variables.NumberOr("SLURM_NODEID", rendezvous::kNodesMax - 1, 0));
  if (step->node >= step->nodes.size()) {
    return BadVariable("SLURM_NODEID", variables.Text("SLURM_NODEID"),
                       absl::StrCat("the step has ", CountText(step->nodes.size(), "node")));
  }
  DDPRUN_ASSIGN_OR_RETURN(step->task, variables.NumberOr("SLURM_PROCID", kMost, 0));
  DDPRUN_ASSIGN_OR_RETURN(step->local_task, variables.NumberOr("SLURM_LOCALID", kMost, 0));
  DDPRUN_ASSIGN_OR_RETURN(step->tasks, variables.NumberOr("SLURM_STEP_NUM_TASKS", kMost, 1));
  const std::optional<std::string> layout = variables.Text("SLURM_STEP_TASKS_PER_NODE");
  if (!layout.has_value()) return absl::OkStatus();
  const absl::StatusOr<std::vector<uint32_t>> counts =
      ExpandCounts(*layout, size_t{rendezvous::kNodesMax});
  if (!counts.ok()) {
    return BadVariable("SLURM_STEP_TASKS_PER_NODE", layout, counts.status().message());
  }
  if (counts->size() == step->nodes.size()) step->local_tasks = std::max(1U, (*counts)[step->node]);
  return absl::OkStatus();
}

absl::Status ReadResources(const SlurmVariables& variables, SlurmStep* step) {
  constexpr uint32_t kMost = std::numeric_limits<int32_t>::max();
  DDPRUN_ASSIGN_OR_RETURN(step->gpus, variables.Number("SLURM_GPUS_ON_NODE", kMost));
  DDPRUN_ASSIGN_OR_RETURN(step->cpus, variables.Number("SLURM_CPUS_ON_NODE", kMost));
  DDPRUN_ASSIGN_OR_RETURN(step->cpus_per_task, variables.Number("SLURM_CPUS_PER_TASK", kMost));
  DDPRUN_ASSIGN_OR_RETURN(step->restart_count, variables.NumberOr("SLURM_RESTART_COUNT", kMost, 0));
  // The list of the GPUs that this task may use.
  if (const std::optional<std::string> mine = variables.Text("SLURM_STEP_GPUS"); mine.has_value()) {
    const auto count = static_cast<uint32_t>(std::count(mine->begin(), mine->end(), ',') + 1);
    step->own_gpus = step->local_tasks > 1 && count < step->gpus.value_or(count);
    if (step->local_tasks == 1) step->gpus = count;
  }
  if (const std::optional<std::string> end = variables.Text("SLURM_JOB_END_TIME");
      end.has_value()) {
    int64_t seconds = 0;
    if (absl::SimpleAtoi(*end, &seconds) && seconds > 0) step->end_time = seconds;
  }
  return absl::OkStatus();
}

}  // namespace

std::string SlurmStep::RunId() const {
  return absl::StrCat(job_id, step_id.empty() ? "" : absl::StrCat(".", step_id),
                      restart_count == 0 ? "" : absl::StrCat("-restart", restart_count));
}

absl::StatusOr<std::optional<SlurmStep>> ReadSlurmStep(const EnvironmentLookup& environment) {
  const SlurmVariables variables(environment);
  if (!variables.Text("SLURM_JOB_ID").has_value()) return std::nullopt;
  const bool in_step = variables.Text("SLURM_STEP_ID").has_value();
  // salloc's shell may run anywhere; SLURMD_NODENAME is set by the node's own slurmd.
  const std::optional<std::string> here = variables.Text("SLURMD_NODENAME");
  const bool in_script = !in_step && here.has_value() && !IsBatchScriptOfManyNodes(environment);
  if (!in_step && !in_script) return std::nullopt;
  SlurmStep step;
  DDPRUN_ASSIGN_OR_RETURN(step.job_id, variables.Id("SLURM_JOB_ID"));
  if (in_step) {
    DDPRUN_ASSIGN_OR_RETURN(step.step_id, variables.Id("SLURM_STEP_ID"));
    DDPRUN_ASSIGN_OR_RETURN(step.nodes, StepNodes(variables));
    DDPRUN_RETURN_IF_ERROR(ReadTasks(variables, &step));
  } else {
    step.nodes = {*here};
  }
  DDPRUN_RETURN_IF_ERROR(ReadResources(variables, &step));
  return std::optional<SlurmStep>(std::move(step));
}

bool IsBatchScriptOfManyNodes(const EnvironmentLookup& environment) {
  const SlurmVariables variables(environment);
  if (variables.Text("SLURM_STEP_ID").has_value()) return false;
  if (!variables.Text("SLURMD_NODENAME").has_value()) return false;
  const std::optional<std::string> nodes = variables.Text("SLURM_JOB_NUM_NODES");
  return nodes.has_value() && *nodes != "1";
}

uint32_t NodesOfStep(const EnvironmentLookup& environment) {
  const SlurmVariables variables(environment);
  if (variables.Text("SLURM_PTY_PORT").has_value()) return 1;
  const std::optional<std::string> ignored = variables.Text("PET_NO_SLURM");
  if (ignored.has_value() && ReadBoolean(*ignored).value_or(true)) return 1;
  const absl::StatusOr<std::optional<SlurmStep>> step = ReadSlurmStep(environment);
  if (!step.ok() || !step->has_value() || (*step)->tasks < (*step)->nodes.size()) return 1;
  return static_cast<uint32_t>((*step)->nodes.size());
}

}  // namespace ddprun::launcher
