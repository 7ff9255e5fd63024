#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

FakeHost WithGpus(uint32_t gpus) {
  FakeHost host;
  host.gpus = gpus;
  return host;
}

TEST(Binding, ModesOfNuma) {  // 13
  EXPECT_EQ(PlanOf("train.py").numa_binding, NumaBinding::kNone);
  EXPECT_THAT(PlanOf("train.py").worker_cpus, IsEmpty());
  const FakeHost host = WithGpus(2);
  const auto binding = [&host](const std::string& line) {
    return PlanOf(line, {}, host).numa_binding;
  };
  EXPECT_EQ(binding("--numa-binding node train.py"), NumaBinding::kNode);
  EXPECT_EQ(binding("--numa-binding socket train.py"), NumaBinding::kSocket);
  EXPECT_EQ(binding("--numa_binding exclusive train.py"), NumaBinding::kExclusive);
  EXPECT_EQ(binding("--numa=node train.py"), NumaBinding::kNode);  // torchrun's abbreviation
  EXPECT_EQ(binding("--nproc_per_node 2 --numa_binding=core-complex train.py"),
            NumaBinding::kCoreComplex);
}

TEST(Binding, WorkersAreNearTheirGpus) {
  EXPECT_THAT(
      PlanOf("--nproc_per_node 2 --numa_binding node train.py", {}, WithGpus(2)).worker_cpus,
      ElementsAre(CpuSet{0, 2, 4}, CpuSet{1, 3, 5}));
}

TEST(Binding, ChosenDevicesCount) {
  const FakeHost host = WithGpus(4);
  const auto cpus = [&host](const std::string& line, const Variables& variables = {}) {
    return PlanOf(line, variables, host).worker_cpus;
  };
  EXPECT_THAT(cpus("--nproc_per_node gpu:3,0 --numa_binding node train.py"),
              ElementsAre(CpuSet{1, 3, 5}, CpuSet{0, 2, 4}));
  const Variables variable = {{"CUDA_VISIBLE_DEVICES", "1, 3"}};
  EXPECT_THAT(cpus("--nproc_per_node 2 --numa_binding node train.py", variable),
              ElementsAre(CpuSet{1, 3, 5}, CpuSet{1, 3, 5}));
  EXPECT_THAT(
      cpus("--nproc_per_node 2 --virtual_local_rank --numa_binding exclusive train.py", variable),
      ElementsAre(CpuSet{1, 3}, CpuSet{5}));
  ExpectRefused({"--nproc_per_node 3 --numa_binding node train.py", 1, "2 GPUs for 3 workers"},
                variable, host);
  ExpectRefused({"--numa_binding node train.py", 1, "0 GPUs for 1 worker"},
                {{"CUDA_VISIBLE_DEVICES", ""}}, host);
}

TEST(Binding, DifferentModelsAreSaid) {
  FakeHost host = WithGpus(2);
  const std::vector<std::string> line = Words("--numa_binding node train.py");
  EXPECT_THAT(Parse(line, {}, host).warnings, IsEmpty());
  host.gpu_models = {"H100", "T4"};
  EXPECT_THAT(Parse(line, {}, host).warnings, ElementsAre(HasSubstr("CUDA_DEVICE_ORDER=PCI")));
  EXPECT_THAT(Parse(line, {{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}}, host).warnings, IsEmpty());
}

TEST(Binding, WithoutGpus) {
  EXPECT_THAT(PlanOf("--nproc_per_node 2 --cpu-binding cores --omp_threads 1 train.py").worker_cpus,
              ElementsAre(CpuSet{0, 2, 4}, CpuSet{1, 3, 5}));
  EXPECT_THAT(PlanOf("--nproc_per_node 3 --cpu_binding numa --omp_threads 1 train.py").worker_cpus,
              ElementsAre(CpuSet{0, 2, 4}, CpuSet{0, 2, 4}, CpuSet{1, 3, 5}));
  EXPECT_THAT(PlanOf("train.py", {{"PET_CPU_BINDING", "cores"}}).worker_cpus,
              ElementsAre(CpuSet{0, 1, 2, 3, 4, 5}));
  EXPECT_THAT(PlanOf("--cpu_binding none train.py").worker_cpus, IsEmpty());
  EXPECT_THAT(PlanOf("train.py", {{"PET_CPU_BINDING", ""}}).worker_cpus, IsEmpty());
}

TEST(Binding, Mistakes) {
  const Refused kCases[] = {
      {"--cpu_binding socket train.py", 2, "--cpu_binding 'socket': give cores, numa or none"},
      {"--numa-binding=foo train.py", 2, "--numa-binding 'foo': give node, socket"},
      {"--cpu_binding cores --numa_binding node train.py", 1,
       "--cpu_binding 'cores': --numa_binding binds the workers already; give one of them"},
      {"--numa_binding node train.py", 1, "there are 0 GPUs for 1 worker; leave it out, or use"},
      {"--nproc_per_node 7 --cpu_binding cores train.py", 1,
       "--cpu_binding 'cores': needs a physical core for each of the 7 workers, but this process"},
  };
  for (const Refused& c : kCases) ExpectRefused(c);
  FakeHost host;
  host.topology_error = absl::InternalError("no /sys");
  ExpectRefused({"--cpu_binding cores train.py", 1, "--cpu_binding 'cores': no /sys"}, {}, host);
  // Nothing is asked without a binding.
  EXPECT_THAT(PlanOf("train.py", {}, host).worker_cpus, IsEmpty());
}

TEST(Binding, FallsBackWhenAsked) {
  const CommandLine parsed = Parse(Words("--binding_fallback --numa_binding node train.py"));
  EXPECT_THAT(PlanOf(parsed).worker_cpus, IsEmpty());
  EXPECT_THAT(parsed.warnings, ElementsAre(testing::AllOf(HasSubstr("0 GPUs for 1 worker"),
                                                          HasSubstr("workers are not bound"))));
  // Mistakes in words are none of its business.
  ExpectRefused({"--binding_fallback --cpu_binding x train.py", 2, "give cores"});
}

TEST(Binding, ThreadsOfBoundWorkers) {
  const auto threads = [](const std::string& line, const FakeHost& host = {}) {
    return PlanOf(line, {}, host).worker_omp_threads;
  };
  EXPECT_THAT(threads("--nproc_per_node 4 --cpu_binding cores --omp_threads auto train.py"),
              ElementsAre(2, 2, 1, 1));
  // Two share one node of 3 cores, one has the other for itself.
  EXPECT_THAT(threads("--nproc_per_node 3 --cpu_binding numa --omp_threads auto train.py"),
              ElementsAre(1, 1, 3));
  EXPECT_THAT(threads("--cpu_binding cores --omp_threads 2 train.py"), IsEmpty());
  EXPECT_THAT(threads("--cpu_binding cores train.py"), IsEmpty());
  EXPECT_THAT(threads("--omp_threads auto train.py"), IsEmpty());
  // A cgroup that has 2 CPUs' worth of time is not given more threads than that.
  FakeHost small;
  small.cpus = 2;
  EXPECT_THAT(threads("--cpu_binding cores --omp_threads auto train.py", small), ElementsAre(2));
  EXPECT_THAT(threads("--nproc_per_node 3 --cpu_binding cores --omp_threads auto train.py", small),
              ElementsAre(1, 1, 1));
}

TEST(Binding, AFileForAnotherMachineIsOnlyChecked) {
  FakeHost host;
  host.topology_error = absl::InternalError("not asked");
  for (const char* line : {"config --output - --numa_binding node train.py",
                           "config --output - --nproc_per_node 9 --cpu_binding cores train.py"}) {
    const CommandLine parsed = Parse(Words(line), {}, host);
    EXPECT_NE(std::get_if<ConfigOptions>(&parsed.command), nullptr) << ExitOf(parsed).text;
  }
  ExpectRefused({"config --output - --cpu_binding x train.py", 2, "give cores, numa or none"});
}

}  // namespace
}  // namespace ddprun::launcher
