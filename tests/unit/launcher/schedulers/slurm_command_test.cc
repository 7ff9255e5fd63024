// ddprun slurm: the batch script.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string ScriptOf(const std::string& line) {
  const CommandLine parsed = Parse(Words(line));
  const auto* job = std::get_if<SlurmJob>(&parsed.command);
  EXPECT_NE(job, nullptr) << line << ": " << ExitOf(parsed).text;
  return job == nullptr ? "" : job->script;
}

TEST(SlurmCommand, WritesTheWholeScript) {
  EXPECT_EQ(ScriptOf("slurm --nodes=2 --time 2:00:00 -- train.py --lr 0.1"),
            R"(#!/bin/bash
# Written by ddprun slurm; docs/SLURM.md says what the lines are for.
#SBATCH --nodes=2
#SBATCH --time 2:00:00
#SBATCH --job-name=train
#SBATCH --ntasks-per-node=1
#SBATCH --requeue
#SBATCH --open-mode=append

# After so many runs in a row without progress the job isn't requeued any more.
export DDPRUN_SLURM_GIVE_UP_AFTER=5

# srun takes over no --cpus-per-task by itself.
if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then
  export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"
fi

srun ddprun train.py --lr 0.1
status=$?
# 75: preempted, or the time is over. The next run goes on from what was saved.
if [ "$status" -eq 75 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
)");
}

TEST(SlurmCommand, NamesTheJobAfterTheScript) {
  EXPECT_THAT(ScriptOf("slurm -- /opt/app/train.py"), HasSubstr("#SBATCH --job-name=train\n"));
  EXPECT_THAT(ScriptOf("slurm -- --no_python echo"), HasSubstr("#SBATCH --job-name=echo\n"));
  EXPECT_THAT(ScriptOf("slurm -- -m pkg.main"), HasSubstr("#SBATCH --job-name=pkg.main\n"));
  for (const char* given : {"--job-name=mine", "-Jmine", "-J mine", "--job-name mine"}) {
    EXPECT_THAT(ScriptOf(absl::StrCat("slurm ", given, " -- train.py")),
                Not(HasSubstr("job-name=train")));
  }
}

TEST(SlurmCommand, AJobThatMayShrinkIsNotKilled) {
  const std::string script = ScriptOf("slurm -N4 -- --nnodes 2:4 train.py");
  EXPECT_THAT(script, HasSubstr("#SBATCH --no-kill\n"));
  EXPECT_THAT(script, HasSubstr("\nexport DDPRUN_SLURM_REQUEUE=1\n"));
  EXPECT_THAT(script, HasSubstr(R"(
DDPRUN_SLURM_STATUS_FILE=$(mktemp)
export DDPRUN_SLURM_STATUS_FILE
)"));
  EXPECT_THAT(script, HasSubstr(R"sh(
srun --no-kill ddprun --nnodes 2:4 train.py
status=$?
if [ "$status" -eq 1 ] && [ "$(cat "$DDPRUN_SLURM_STATUS_FILE")" = 0 ]; then
  status=0
fi
rm -f "$DDPRUN_SLURM_STATUS_FILE"
)sh"));
}

TEST(SlurmCommand, WhatIsGivenStands) {
  const std::string script =
      ScriptOf("slurm -n8 --no-requeue --open-mode=truncate -- --nnodes 1:2 train.py");
  EXPECT_THAT(script, Not(HasSubstr("--ntasks-per-node")));
  EXPECT_THAT(script, Not(HasSubstr("#SBATCH --requeue")));
  EXPECT_THAT(script, Not(HasSubstr("append")));
  EXPECT_THAT(ScriptOf("slurm --ntasks-per-node 4 -- train.py"),
              Not(HasSubstr("--ntasks-per-node=1")));
  EXPECT_THAT(ScriptOf("slurm --nodes 2 -- train.py"), HasSubstr("--ntasks-per-node=1"));
}

TEST(SlurmCommand, TellsDdprunOfItsSignal) {
  EXPECT_THAT(ScriptOf("slurm --signal=USR1@120 -- train.py"),
              HasSubstr("srun ddprun --preempt_signals SIGUSR1 --preempt_deadline 120s train.py"));
  EXPECT_THAT(ScriptOf("slurm --signal R:10 -- train.py"),
              HasSubstr("--preempt_signals SIGUSR1 --preempt_deadline 60s"));
  EXPECT_THAT(ScriptOf("slurm --signal=B:USR1@120 -- train.py"), HasSubstr("srun ddprun train.py"));
  ExpectRefused({"slurm --signal=NO@1 -- train.py", 2, "--signal 'NO@1'"});
  ExpectRefused({"slurm --signal=USR1@x -- train.py", 2, "as in USR1@120"});
}

TEST(SlurmCommand, WordsOfAnyKindReachTheProgram) {
  const CommandLine parsed =
      Parse({"slurm", "--comment=a b", "--", "train.py", "it's", "$HOME", "", "a b"});
  const auto* job = std::get_if<SlurmJob>(&parsed.command);
  ASSERT_NE(job, nullptr);
  EXPECT_THAT(job->script, HasSubstr("#SBATCH \"--comment=a b\"\n"));
  EXPECT_THAT(job->script, HasSubstr("srun ddprun train.py 'it'\\''s' '$HOME' '' 'a b'\n"));
  EXPECT_FALSE(job->submit);
  const CommandLine submitted = Parse(Words("slurm --submit -- train.py"));
  EXPECT_TRUE(std::get<SlurmJob>(submitted.command).submit);
}

TEST(SlurmCommand, MistakesAreFoundBeforeTheJobWaitsInAQueue) {
  ExpectRefused({"slurm --nodes=2", 2, "there is nothing to run"});
  ExpectRefused({"slurm --nodes=2 --", 2, "there is nothing to run"});
  ExpectRefused({"slurm train.py", 2, "comes after --"});
  ExpectRefused({"slurm -- --nnodez 2 train.py", 2, "did you mean --nnodes?"});
  ExpectRefused({"slurm -- nosuch.py", 1, "nosuch.py"});
  EXPECT_THAT(ExitOf(Parse(Words("slurm --help"))).text, HasSubstr("usage: ddprun slurm"));
}

}  // namespace
}  // namespace ddprun::launcher
