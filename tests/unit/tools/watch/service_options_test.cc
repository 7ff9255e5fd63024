// ddprun rendezvous, status, stop.
#include "tools/watch/service_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;

template <typename Options>
Options OptionsOf(const std::string& line, const Variables& variables = {}) {
  const CommandLine parsed = Parse(Words(line), variables);
  const auto* options = std::get_if<Options>(&parsed.command);
  if (options == nullptr) ADD_FAILURE() << line << ": " << ExitOf(parsed).text;
  return options == nullptr ? Options() : *options;
}

TEST(Rendezvous, Options) {
  const auto plain = OptionsOf<ServiceOptions>("rendezvous");
  EXPECT_EQ(plain.listen_host, "0.0.0.0");
  EXPECT_EQ(plain.listen_port, 29400);
  EXPECT_EQ(plain.token, "");
  EXPECT_EQ(plain.state_dir, "");
  const auto full = OptionsOf<ServiceOptions>(
      "rendezvous --listen [::]:0 --token_file token --event_log e.jsonl --state_dir kept");
  EXPECT_EQ(full.state_dir, "kept");
  EXPECT_EQ(full.listen_host, "::");
  EXPECT_EQ(full.listen_port, 0);
  EXPECT_EQ(full.token, "s3cret");
  EXPECT_EQ(full.event_log, "e.jsonl");
  EXPECT_EQ(OptionsOf<ServiceOptions>("rendezvous", {{"DDPRUN_TOKEN", "t"}}).token, "t");
}

TEST(Status, Options) {
  const auto plain = OptionsOf<StatusOptions>("status");
  EXPECT_EQ(plain.host, "localhost");
  EXPECT_EQ(plain.port, 29400);
  EXPECT_EQ(plain.run_id, "");
  EXPECT_EQ(plain.form, OutputForm::kText);
  EXPECT_EQ(plain.timeout, absl::Seconds(5));
  const auto full =
      OptionsOf<StatusOptions>("status --rdzv-endpoint host0:7 --rdzv_id j --json --timeout 1");
  EXPECT_EQ(full.host, "host0");
  EXPECT_EQ(full.port, 7);
  EXPECT_EQ(full.run_id, "j");
  EXPECT_EQ(full.form, OutputForm::kJson);
  EXPECT_EQ(full.timeout, absl::Seconds(1));
  EXPECT_EQ(OptionsOf<StatusOptions>("status", {{"PET_RDZV_ENDPOINT", "h:9"}}).port, 9);
  EXPECT_TRUE(OptionsOf<StatusOptions>("status", {{"PET_RDZV_ENDPOINT", "h:9"}}).endpoint_given);
  EXPECT_EQ(OptionsOf<StatusOptions>("status --rdzv_endpoint unix:/tmp/s").socket, "unix:/tmp/s");
}

TEST(Status, OfJobsThatAreOver) {
  EXPECT_FALSE(OptionsOf<StatusOptions>("status").ended);
  EXPECT_TRUE(OptionsOf<StatusOptions>("status --ended --rdzv_id j").ended);
  for (const char* option : {"--watch 1", "--status_page 8080"}) {
    EXPECT_THAT(ExitOf(Parse(Words(absl::StrCat("status --ended ", option)), {})).text,
                HasSubstr("--ended looks once"));
  }
}

TEST(Status, OfAJobInEtcd) {
  const auto options = OptionsOf<StatusOptions>(
      "status --rdzv_backend etcd --rdzv_endpoint a:1,b --rdzv_id j "
      "--rdzv_conf join_timeout=9,protocol=https,ca_cert=/ca,etcd_user=u",
      {{"DDPRUN_ETCD_PASSWORD", "p"}});
  ASSERT_TRUE(options.etcd.has_value());
  EXPECT_THAT(options.etcd->endpoints, testing::ElementsAre("a:1", "b:2379"));
  EXPECT_TRUE(options.etcd->tls);
  EXPECT_EQ(options.etcd->ca_file, "/ca");
  EXPECT_EQ(options.etcd->password, "p");
  EXPECT_EQ(OptionsOf<StatusOptions>("status --rdzv_backend etcd --rdzv_id j").etcd->endpoints,
            std::vector<std::string>{"localhost:2379"});
  EXPECT_EQ(OptionsOf<StatusOptions>("status --rdzv_backend etcd").run_id, "");
  EXPECT_FALSE(OptionsOf<StatusOptions>("status --rdzv_backend c10d").etcd.has_value());
}

TEST(Stop, Options) {
  const auto plain = OptionsOf<StopOptions>("stop");
  EXPECT_EQ(plain.run_id, "");
  EXPECT_FALSE(plain.endpoint_given);
  EXPECT_EQ(plain.reason, "stopped by ddprun stop");
  const auto full = OptionsOf<StopOptions>("stop --rdzv_id j --token t --reason enough");
  EXPECT_EQ(full.run_id, "j");
  EXPECT_EQ(full.token, "t");
  EXPECT_EQ(full.reason, "enough");
}

TEST(Commands, Errors) {
  EXPECT_EQ(ExitOf(Parse(Words("rendezvous --listen host:x"))).status, 1);
  EXPECT_EQ(ExitOf(Parse(Words("rendezvous --nnodes 2"))).status, 2);
  EXPECT_EQ(ExitOf(Parse(Words("status extra"))).status, 2);
  EXPECT_THAT(ExitOf(Parse(Words("status extra"))).text, HasSubstr("unexpected word 'extra'"));
  EXPECT_EQ(ExitOf(Parse(Words("status --rdzv_endpoint h:0"))).status, 1);
  EXPECT_EQ(ExitOf(Parse(Words("status --rdzv_backend zeus"))).status, 1);
  EXPECT_EQ(ExitOf(Parse(Words("status --timeout x"))).status, 2);
  EXPECT_EQ(ExitOf(Parse(Words("stop --rdzv_id="))).status, 1);
}

TEST(Commands, OnlyAsTheFirstWord) {
  FakeHost host;
  host.paths["status"] = Host::PathKind::kFile;
  host.paths["./status"] = Host::PathKind::kFile;
  EXPECT_EQ(PlanOf("./status --json", {}, host).entry_point, "./status");
  EXPECT_EQ(PlanOf("--nnodes 1 status", {}, host).entry_point, "status");
  EXPECT_EQ(PlanOf("-- status", {}, host).entry_point, "status");
}

}  // namespace
}  // namespace ddprun::launcher
