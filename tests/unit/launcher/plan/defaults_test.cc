#include <gtest/gtest.h>

#include <tuple>

#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

// The texts that the help says and the fields that hold without options are the same.
TEST(Plan, WithoutOptionsEachFieldHasItsOwnDefault) {
  const LaunchPlan plan = PlanOf("train.py");
  const LaunchPlan fresh;
  const auto numbers = [](const LaunchPlan& of) {
    return std::tuple(of.job.nodes_min, of.job.nodes_max, of.job.max_restarts, of.job.join_timeout,
                      of.job.last_call_timeout, of.job.lease, of.job.reconnect_grace,
                      of.job.stop_grace, of.worker_count, of.service.reach, of.service.loss,
                      of.service.loss_without_workers, of.isolation_timeout, of.gpu_memory_wait,
                      of.leftovers.after_success, of.exit_barrier.timeout,
                      of.hangs.first_step_timeout, of.hangs.hang_timeout,
                      of.signals.preemption.deadline, of.signals.preemption.after);
  };
  const auto words = [](const LaunchPlan& of) {
    return std::tuple(of.role, of.rdzv_backend, of.signals.text, of.signals.policy.ending,
                      of.output.prefix_template, of.use_cgroup, of.leftovers.mode,
                      of.hangs.watch_marks, of.on_hang, of.restart_stopped,
                      of.ending.with_first_cause, of.events_on_console, of.output.collapse,
                      of.run_path, of.preflight, of.numa_binding, of.cpu_binding);
  };
  EXPECT_EQ(numbers(plan), numbers(fresh));
  EXPECT_EQ(words(plan), words(fresh));
}

// A lease is proof only where the user chose it (R4).
TEST(Plan, ALeaseThatWasGivenIsProof) {
  EXPECT_FALSE(PlanOf("train.py").job.lease_is_proof);
  EXPECT_TRUE(PlanOf("--lease 5 train.py").job.lease_is_proof);
  EXPECT_TRUE(PlanOf("--rdzv_conf lease=5 train.py").job.lease_is_proof);
}

}  // namespace
}  // namespace ddprun::launcher
