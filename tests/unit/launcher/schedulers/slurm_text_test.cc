// Slurm's lists and times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/schedulers/slurm_step.h"

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> HostsOf(const std::string& text) {
  const auto hosts = ExpandHostList(text, 100);
  EXPECT_TRUE(hosts.ok()) << text << ": " << hosts.status();
  return hosts.ok() ? *hosts : std::vector<std::string>();
}

TEST(SlurmHostList, NamesRangesAndZeros) {
  EXPECT_THAT(HostsOf("n1"), ElementsAre("n1"));
  EXPECT_THAT(HostsOf("n1,gpu-a"), ElementsAre("n1", "gpu-a"));
  EXPECT_THAT(HostsOf("node[01-03,7],other"),
              ElementsAre("node01", "node02", "node03", "node7", "other"));
  EXPECT_THAT(HostsOf("n[9-11]"), ElementsAre("n9", "n10", "n11"));
  EXPECT_THAT(HostsOf("n[098-101]"), ElementsAre("n098", "n099", "n100", "n101"));
  EXPECT_THAT(HostsOf("n[5]"), ElementsAre("n5"));
  EXPECT_THAT(HostsOf("a[1-2]-ib0.site"), ElementsAre("a1-ib0.site", "a2-ib0.site"));
}

// As scontrol show hostnames writes them.
TEST(SlurmHostList, SeveralBracketsAreEveryCombination) {
  EXPECT_THAT(HostsOf("rack[0-1]n[1-2],x"),
              ElementsAre("rack0n1", "rack0n2", "rack1n1", "rack1n2", "x"));
}

TEST(SlurmHostList, WhatIsNoListIsRefused) {
  for (const char* text : {"",
                           ",",
                           "a,",
                           ",a",
                           "n[",
                           "n]",
                           "n[]",
                           "n[a]",
                           "n[1-]",
                           "n[-1]",
                           "n[2-1]",
                           "n[1-[2-3]]",
                           "n[1,]",
                           "n[1]]",
                           "a b",
                           "n[1 ]",
                           "a\n",
                           "n[1-2-3]",
                           "n[9999999999]",
                           "\xff"}) {
    const auto hosts = ExpandHostList(text, 100);
    EXPECT_EQ(hosts.status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(SlurmHostList, SizesAreBounded) {
  EXPECT_EQ(HostsOf("n[1-100]").size(), 100);
  for (const char* text : {"n[1-101]", "n[0-999999999]", "n[1-99],a,b", "a[1-11]b[1-11]",
                           "a[1-50]b[1-50]c[1-50]d[1-50]", "a[1-50,51-101]"}) {
    EXPECT_EQ(ExpandHostList(text, 100).status().code(), absl::StatusCode::kResourceExhausted)
        << text;
  }
  const auto bytes = ExpandHostList(absl::StrCat(std::string(300, 'n'), "[1-2]"), 100);
  EXPECT_THAT(bytes.status().message(), HasSubstr("too long"));
}

TEST(SlurmCounts, RepeatedOnes) {
  EXPECT_THAT(*ExpandCounts("2(x3),1", 10), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(*ExpandCounts("4", 10), ElementsAre(4));
  for (const char* text : {"", "a", "2(x", "2(x0)", "2(3)", "2(x1", "1,", "2(x1)3"}) {
    EXPECT_EQ(ExpandCounts(text, 10).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(ExpandCounts("1(x11)", 10).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ExpandCounts("1(x9),1,1", 10).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(SlurmTime, AsSqueueShowsIt) {
  EXPECT_EQ(ReadSlurmTime("5:00\n"), absl::Minutes(5));
  EXPECT_EQ(ReadSlurmTime("02:00:30"), absl::Hours(2) + absl::Seconds(30));
  EXPECT_EQ(ReadSlurmTime("3-12:00:00"), absl::Hours(84));
  EXPECT_EQ(ReadSlurmTime("59"), absl::Seconds(59));
  for (const char* text :
       {"", "UNLIMITED", "NOT_SET", "INVALID", "1:2:3:4", "1-2", "-1:00", "a:1"}) {
    EXPECT_FALSE(ReadSlurmTime(text).has_value()) << text;
  }
}

TEST(ScontrolField, IsFoundByItsWholeName) {
  const char* text = "NodeName=n1 Arch=x86_64\n   NodeAddr=10.0.0.1 NodeHostName=h1 Port=6818\n";
  EXPECT_EQ(ReadScontrolField(text, "NodeAddr"), "10.0.0.1");
  EXPECT_EQ(ReadScontrolField(text, "Port"), "6818");
  EXPECT_EQ(ReadScontrolField(text, "Addr"), "");
  EXPECT_EQ(ReadScontrolField(text, "Node"), "");
  EXPECT_EQ(ReadScontrolField("", "NodeAddr"), "");
}

}  // namespace
}  // namespace ddprun::launcher
