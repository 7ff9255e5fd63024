// What --rdzv_conf says, as torchrun reads it, and the settings for etcd.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;

TEST(Refusals, Etcd) {
  const Refused kCases[] = {
      {"--rdzv-backend=etcd --rdzv-endpoint=a:1,b:x train.py", 1, "'x' is no port"},
      {"--rdzv-backend=etcd --rdzv-endpoint=a:0 train.py", 1, "port 0 is no port of etcd"},
      {"--rdzv-backend=etcd --rdzv-conf=protocol=ftp train.py", 1, "give http or https"},
      {"--service-port=7 train.py", 2, "--service-port is for --rdzv_backend etcd"},
      {"--rdzv-backend=etcd --service-port=65536 train.py", 1, "65535"},
      {"--rdzv-backend=etcd --rdzv-conf=cert=/c train.py", 1, "cert and key belong together"},
      {"--rdzv-backend=etcd --rdzv-conf=etcd_user=u train.py", 1, "DDPRUN_ETCD_PASSWORD belong"},
  };
  for (const Refused& refused : kCases) ExpectRefused(refused);
}

TEST(RendezvousConfig, Times) {
  const LaunchPlan plan =
      PlanOf("--rdzv_conf timeout=7,join_timeout=3,last_call_timeout=0.5,lease=2 train.py");
  EXPECT_EQ(plan.job.join_timeout, absl::Seconds(3));
  EXPECT_EQ(plan.job.last_call_timeout, absl::Milliseconds(500));
  EXPECT_EQ(plan.job.lease, absl::Seconds(2));
  EXPECT_EQ(PlanOf("--rdzv_conf join_timeout=3,timeout=7 train.py").job.join_timeout,
            absl::Seconds(3));
  EXPECT_EQ(PlanOf("--rdzv_conf timeout=7 train.py").job.join_timeout, absl::Seconds(7));
  // As long as torchrun waits: its static rendezvous takes 900 s.
  EXPECT_EQ(PlanOf("--nnodes 2 --rdzv_endpoint h:1 --rdzv_backend c10d train.py").job.join_timeout,
            absl::Seconds(600));
  const char kStatic[] = "--nnodes 2 --node_rank 1 --master_addr h train.py";
  EXPECT_EQ(PlanOf(kStatic).job.join_timeout, absl::Seconds(900));
  EXPECT_EQ(PlanOf(absl::StrCat("--rdzv_conf timeout=7 ", kStatic)).job.join_timeout,
            absl::Seconds(7));
  EXPECT_EQ(PlanOf("--rdzv_conf timeout=7,timeout=8 train.py").job.join_timeout, absl::Seconds(8));
  EXPECT_EQ(PlanOf("--rdzv_conf read_timeout=5 train.py").service.reach, absl::Seconds(5));
  for (const char* timeout : {"0", "-1"}) {
    const CommandLine ignored =
        Parse({"--rdzv_conf", absl::StrCat("timeout=", timeout), "train.py"});
    EXPECT_EQ(PlanOf(ignored).job.join_timeout, absl::Seconds(600));
    EXPECT_THAT(
        ignored.warnings,
        testing::ElementsAre(HasSubstr(absl::StrCat("timeout '", timeout, "' is ignored"))));
  }
  EXPECT_EQ(plan.service.reach, absl::InfiniteDuration());
  EXPECT_EQ(PlanOf("--lease 3 --rdzv_conf lease=2 train.py").job.lease, absl::Seconds(3));
}

TEST(RendezvousConfig, Etcd) {
  const LaunchPlan plan = PlanOf(
      "--rdzv-backend etcd-v2 --rdzv-endpoint a:1,b,[::1]:3 --nnodes 2 --rdzv-conf "
      "etcd_prefix=/x/,ssl_cert=/c,ssl_cert_key=/k,ca_cert=/ca train.py");
  ASSERT_TRUE(plan.etcd.has_value());
  EXPECT_THAT(plan.etcd->endpoints, testing::ElementsAre("a:1", "b:2379", "[::1]:3"));
  EXPECT_EQ(plan.etcd->prefix, "/x");
  EXPECT_TRUE(plan.etcd->tls);
  EXPECT_EQ(plan.etcd->ca_file, "/ca");
  EXPECT_EQ(plan.etcd->cert_file, "/c");
  EXPECT_EQ(plan.etcd->key_file, "/k");
  EXPECT_EQ(plan.rdzv_backend, "etcd-v2");
  EXPECT_EQ(plan.endpoint.hosting, EndpointPlan::Hosting::kNever);
  EXPECT_EQ(plan.service.loss_without_workers, plan.service.loss) << "another node takes over";
  EXPECT_FALSE(PlanOf("--rdzv-backend etcd train.py").etcd->tls);
  EXPECT_TRUE(PlanOf("--rdzv-backend etcd --rdzv-conf protocol=https train.py").etcd->tls);
  EXPECT_FALSE(PlanOf("train.py").etcd.has_value());
  EXPECT_EQ(plan.service_port, 0);
  EXPECT_EQ(PlanOf("--rdzv-backend etcd --service-port 7 train.py").service_port, 7);
}

TEST(RendezvousConfig, StrangeKeysWarn) {
  const CommandLine parsed = Parse(
      {"--rdzv_conf",
       " close_timeout = 60 , etcd_prefix=/x,colour=red,store_type=tcp,cas_backoff_max_seconds=1",
       "train.py"});
  PlanOf(parsed);
  EXPECT_THAT(parsed.warnings,
              testing::UnorderedElementsAre(
                  HasSubstr("--rdzv_conf close_timeout is ignored: it has no meaning"),
                  HasSubstr("--rdzv_conf etcd_prefix is ignored: it has no meaning"),
                  HasSubstr("--rdzv_conf cas_backoff_max_seconds is ignored: it has no meaning"),
                  HasSubstr("--rdzv_conf colour is ignored: unknown key")));
}

// No other node can know a free port, whatever the host is, and one node is enough.
TEST(RendezvousConfig, AFreePortOfAnElasticJobIsOneNodes) {
  for (const absl::string_view host : {"localhost", "host9", "10.1.2.3"}) {
    const LaunchPlan plan = PlanOf(
        absl::StrCat("--nnodes 1:2 --rdzv_backend c10d --rdzv_endpoint ", host, ":0 train.py"));
    EXPECT_EQ(plan.endpoint.port, 0) << host;
    EXPECT_EQ(plan.job.nodes_max, 1U) << host;
  }
}

}  // namespace
}  // namespace ddprun::launcher
