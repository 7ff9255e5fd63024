// ddprun convert: lines of torchrun, batch scripts, accelerate's files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "launcher/options/shell_line.h"
#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Conversion Converted(const std::vector<std::string>& arguments, const FakeHost& host = {}) {
  std::vector<std::string> words = {"convert"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const CommandLine parsed = Parse(words, {}, host);
  const auto* conversion = std::get_if<Conversion>(&parsed.command);
  EXPECT_NE(conversion, nullptr) << ExitOf(parsed).text;
  return conversion == nullptr ? Conversion() : *conversion;
}

FakeHost HostWith(const std::string& name, const std::string& text) {
  FakeHost host;
  host.paths[name] = Host::PathKind::kFile;
  host.files[name] = text;
  return host;
}

std::vector<std::string> Raw(const std::string& line) {
  std::vector<std::string> raw;
  const auto tokens = SplitShellLine(line);
  EXPECT_TRUE(tokens.ok()) << line;
  if (tokens.ok()) {
    for (const ShellToken& token : *tokens) raw.push_back(token.raw);
  }
  return raw;
}

TEST(ShellLine, IsDividedAsBashDoes) {
  EXPECT_THAT(Raw("a  b\tc"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(Raw("--x=\"a b\" 'c d' e\\ f"), ElementsAre("--x=\"a b\"", "'c d'", "e\\ f"));
  EXPECT_THAT(Raw("n=$(f \"$(g)\" 1) b"), ElementsAre("n=$(f \"$(g)\" 1)", "b"));
  EXPECT_THAT(Raw("a `b c`d && e|f # g h"),
              ElementsAre("a", "`b c`d", "&&", "e", "|", "f", "# g h"));
  const auto tokens = SplitShellLine("\"a$N\" 'b$N' c\\$N ~/d");
  ASSERT_TRUE(tokens.ok());
  EXPECT_TRUE((*tokens)[0].expands);
  EXPECT_FALSE((*tokens)[1].expands);
  EXPECT_EQ((*tokens)[1].plain, "b$N");
  EXPECT_FALSE((*tokens)[2].expands);
  EXPECT_TRUE((*tokens)[3].expands);
  for (const char* line : {"'a", "\"a", "$(a", "`a", "\"$(a\""}) {
    EXPECT_FALSE(SplitShellLine(line).ok()) << line;
  }
}

TEST(ConvertLine, OneWordChanges) {
  EXPECT_EQ(Converted({"torchrun", "--nproc_per_node=4", "train.py", "--lr", "0.1"}).text,
            "ddprun --nproc_per_node=4 train.py --lr 0.1\n");
  const Conversion line =
      Converted({"python -u -m torch.distributed.run --nnodes 2 --node_rank $R train.py \"$A b\""});
  EXPECT_EQ(line.text, "ddprun --nnodes 2 --node_rank $R train.py \"$A b\"\n");
  EXPECT_THAT(line.told, IsEmpty());
  EXPECT_EQ(Converted({"NCCL_DEBUG=INFO /opt/bin/torchrun -m pkg.train"}).text,
            "NCCL_DEBUG=INFO ddprun -m pkg.train\n");
}

TEST(ConvertLine, AcceleratesLineIsNamed) {
  const ExitNow exit = ExitOf(Parse({"convert", "accelerate launch --num_processes 2 train.py"}));
  EXPECT_THAT(exit.text, HasSubstr("a line of accelerate launch isn't translated"));
  EXPECT_THAT(exit.text, HasSubstr("ddprun --config FILE SCRIPT"));
}

TEST(ConvertLine, AKubernetesManifestIsNamed) {
  const FakeHost host = HostWith("job.yaml", "apiVersion: batch/v1\nkind: Job\n");
  const ExitNow exit = ExitOf(Parse({"convert", "job.yaml"}, {}, host));
  EXPECT_EQ(exit.status, 1);
  EXPECT_THAT(exit.text, HasSubstr("job.yaml: is a manifest of Kubernetes"));
  EXPECT_THAT(exit.text, HasSubstr("only the word torchrun changes to ddprun"));
}

TEST(ConvertLine, WhatHasNoEffectIsTold) {
  const Conversion line = Converted({"torchrun", "--monitor-interval", "5", "train.py"});
  EXPECT_EQ(line.text, "ddprun train.py\n");
  EXPECT_THAT(line.told,
              ElementsAre("--monitor-interval 5 is left out: it has no effect in ddprun"));
}

TEST(ConvertLine, WhatIsUnknownIsRefused) {
  ExpectRefused({"convert torchrun --bogus=1 train.py", 2, "unknown option '--bogus'"});
  ExpectRefused({"convert torchrun --nnodes=0 train.py", 1, "at least 1 node"});
  ExpectRefused({"convert mpirun -np 4 train.py", 1, "no line with torchrun"});
  ExpectRefused({"convert torchrun", 2, "script"});
  ExpectRefused({"convert nofile", 1, "'nofile': there is no such file; give one"});
  ExpectRefused({"convert", 2, "there is nothing to convert"});
  EXPECT_THAT(ExitOf(Parse({"convert", "--help"})).text, HasSubstr("usage: ddprun convert"));
}

const char* const kBatch = R"(#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export NCCL_DEBUG=INFO
srun torchrun \
    --nnodes=$SLURM_NNODES --nproc_per_node=$SLURM_GPUS_PER_NODE \
    --rdzv_id $SLURM_JOB_ID --rdzv_backend c10d \
    --rdzv_endpoint "$head:29500" --max_restarts=3 \
    nowhere.py --config "c d.json"
echo done
)";

TEST(ConvertBatchScript, LosesWhatSlurmSays) {
  const Conversion script = Converted({"train.sh"}, HostWith("train.sh", kBatch));
  EXPECT_EQ(script.text, R"(#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export NCCL_DEBUG=INFO
srun ddprun --max_restarts=3 nowhere.py --config "c d.json"
echo done
)");
  EXPECT_THAT(script.told,
              Contains("--rdzv_endpoint \"$head:29500\" is left out: ddprun has it from Slurm"));
  EXPECT_THAT(script.told,
              Contains("--nnodes=$SLURM_NNODES is left out: ddprun has it from Slurm"));
}

TEST(ConvertBatchScript, KeepsSizesAndAddsSrun) {
  const Conversion script = Converted(
      {"t.sh"},
      HostWith("t.sh",
               "#!/bin/sh\n#SBATCH -N2\n  torchrun --nnodes 1:2 --nproc_per_node 4 t.py\n"));
  EXPECT_THAT(
      script.text,
      HasSubstr("\n  srun --ntasks-per-node=1 ddprun --nnodes 1:2 --nproc_per_node 4 t.py\n"));
  EXPECT_THAT(script.told, Contains(HasSubstr("srun is put before ddprun")));
  // Comments and other commands are nobody's.
  const Conversion other =
      Converted({"t.sh"}, HostWith("t.sh", "# torchrun it's\ntorchrun t.py\nuntouched 'x\n y'\n"));
  EXPECT_EQ(other.text, "# torchrun it's\nddprun t.py\nuntouched 'x\n y'\n");
}

TEST(ConvertAccelerate, BecomesAFileOfOurs) {
  const std::string yaml =
      "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: 2\n"
      "num_processes: 8\nmachine_rank: 1\nmain_process_ip: host0\nmain_process_port: 29500\n"
      "mixed_precision: bf16\n";
  const Conversion file = Converted({"acc.yaml"}, HostWith("acc.yaml", yaml));
  EXPECT_THAT(file.text, HasSubstr("\nnnodes: 2\n"));
  EXPECT_THAT(file.text, HasSubstr("\nnproc_per_node: 4\n"));
  EXPECT_THAT(file.text, HasSubstr("\nrdzv_endpoint: \"host0:29500\"\n"));
  EXPECT_THAT(file.told, Contains("before ddprun: export ACCELERATE_MIXED_PRECISION=bf16"));
  // --config reads the file.
  FakeHost host = HostWith("job.yaml", file.text);
  EXPECT_EQ(PlanOf("--config job.yaml train.py", {}, host).worker_count, 4);
  const FakeHost bad = HostWith("acc.yaml", yaml + "of_tomorrow: 1\n");
  ExpectRefused({"convert acc.yaml", 2, "of_tomorrow"}, {}, bad);
}

}  // namespace
}  // namespace ddprun::launcher
