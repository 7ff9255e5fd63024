// ddprun env, doctor.
#include "tools/doctor/env_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;

template <typename Options>
Options MachineOptionsOf(const std::string& line, const Variables& variables = {}) {
  const CommandLine parsed = Parse(Words(line), variables);
  const auto* options = std::get_if<Options>(&parsed.command);
  if (options == nullptr) ADD_FAILURE() << line << ": " << ExitOf(parsed).text;
  return options == nullptr ? Options() : *options;
}

TEST(EnvCommand, Options) {
  const auto plain = MachineOptionsOf<EnvOptions>("env");
  EXPECT_FALSE(plain.json);
  EXPECT_EQ(plain.limit, absl::Seconds(20));
  EXPECT_EQ(plain.python, "/usr/bin/python3");
  EXPECT_EQ(plain.question.samples, std::nullopt);
  EXPECT_EQ(plain.question.batch, std::nullopt);
  EXPECT_TRUE(plain.environment.empty());
  const auto full =
      MachineOptionsOf<EnvOptions>("env --json --samples 29500 --batch 4 --timeout 500ms");
  EXPECT_TRUE(full.json);
  EXPECT_EQ(full.limit, absl::Milliseconds(500));
  EXPECT_EQ(full.question.samples, 29'500U);
  EXPECT_EQ(full.question.batch, 4U);
}

TEST(EnvCommand, TakesVariablesThatMatterAndNoOthers) {
  const auto options = MachineOptionsOf<EnvOptions>("env", {{"NCCL_DEBUG", "INFO"},
                                                            {"CUDA_VISIBLE_DEVICES", ""},
                                                            {"SECRET", "s3cret"},
                                                            {"PET_BATCH", "7"},
                                                            {"PYTHON_EXEC", "python"}});
  EXPECT_EQ(options.environment, (std::map<std::string, std::string>{{"CUDA_VISIBLE_DEVICES", ""},
                                                                     {"NCCL_DEBUG", "INFO"}}));
  EXPECT_EQ(options.question.batch, std::nullopt);
  EXPECT_EQ(options.python, "/usr/bin/python");
  EXPECT_EQ(MachineOptionsOf<EnvOptions>("env", {{"PYTHON_EXEC", "no-such"}}).python, "");
}

TEST(DoctorCommand, Options) {
  EXPECT_FALSE(MachineOptionsOf<DoctorOptions>("doctor").strict);
  const auto full = MachineOptionsOf<DoctorOptions>("doctor --strict --json --timeout 1");
  EXPECT_TRUE(full.strict);
  EXPECT_TRUE(full.json);
  EXPECT_EQ(full.limit, absl::Seconds(1));
}

TEST(MachineCommands, RefuseOthers) {
  for (const auto& [line, status, text] :
       {std::make_tuple("env train.py", 2, "unexpected word 'train.py'"),
        std::make_tuple("env --samples many", 2, "--samples"),
        std::make_tuple("env --samples 0", 1, "--samples"),
        std::make_tuple("env --batch -1", 1, "--batch"),
        std::make_tuple("doctor --samples 5", 2, "--samples"),
        std::make_tuple("doctor --timeout 0", 1, "--timeout")}) {
    const ExitNow exit = ExitOf(Parse(Words(line)));
    EXPECT_EQ(exit.status, status) << line;
    EXPECT_THAT(exit.text, HasSubstr(text));
  }
}

}  // namespace
}  // namespace ddprun::launcher
