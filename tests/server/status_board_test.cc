#include "rendezvous/server/service.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "rendezvous/wire/status_pages.h"

namespace ddprun::rendezvous {
namespace {

constexpr Instant kStart = Instant::FromNanoseconds(1'000'000'000);

TEST(StatusBoard, WhatWasDearIsNewForLonger) {
  StatusBoard board;
  EXPECT_EQ(board.Fresh(kStart), nullptr);
  const auto snapshot = std::make_shared<v1::GetStatusReply>();
  board.Put(snapshot, kStart, absl::Milliseconds(2));
  EXPECT_EQ(board.Fresh(kStart + absl::Milliseconds(99)), snapshot);
  EXPECT_EQ(board.Fresh(kStart + absl::Milliseconds(100)), nullptr);
  board.Put(snapshot, kStart, absl::Seconds(1));
  EXPECT_EQ(board.Fresh(kStart + absl::Milliseconds(499)), snapshot);
  EXPECT_EQ(board.Fresh(kStart + absl::Milliseconds(500)), nullptr);
}

TEST(StatusBoard, ASmallJobIsShownAsItIs) {
  StatusBoard board;
  board.Put(std::make_shared<v1::GetStatusReply>(), kStart, absl::Microseconds(999));
  EXPECT_EQ(board.Fresh(kStart), nullptr);
}

v1::GetStatusReply Whole(int nodes, size_t bytes_each) {
  v1::GetStatusReply whole;
  for (const char* name : {"job7", "job8"}) {
    v1::JobStatus* job = whole.add_jobs();
    job->set_run_id(name);
    job->set_phase("running");
    job->add_history()->set_generation(3);
    for (int i = 0; i < nodes; ++i) {
      job->add_nodes()->set_node_id(absl::StrCat(i, std::string(bytes_each, 'x')));
    }
  }
  return whole;
}

TEST(StatusPages, AllNodesComeOnceAndNoPageIsTooLong) {
  constexpr size_t kRoom = 1000;
  const v1::GetStatusReply whole = Whole(100, 50);
  v1::GetStatusRequest request;
  request.set_run_id("job8");
  v1::JobStatus all;
  int pages = 0;
  while (all.nodes_size() < 100) {
    request.set_first_node(static_cast<uint32_t>(all.nodes_size()));
    const v1::GetStatusReply page = PageOf(whole, request, kRoom);
    ASSERT_EQ(page.jobs_size(), 1);
    EXPECT_EQ(page.jobs(0).run_id(), "job8");
    EXPECT_EQ(page.jobs(0).nodes_total(), 100U);
    ASSERT_GT(page.jobs(0).nodes_size(), 0);
    EXPECT_LE(page.ByteSizeLong(), kRoom + 300);
    all.mutable_nodes()->MergeFrom(page.jobs(0).nodes());
    ++pages;
  }
  EXPECT_GT(pages, 5);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(all.nodes(i).node_id(), whole.jobs(1).nodes(i).node_id());
}

TEST(StatusPages, AFirstPageNamesAllJobsAndHowManyNodesTheyHave) {
  const v1::GetStatusReply page = PageOf(Whole(100, 50), v1::GetStatusRequest(), 1000);
  ASSERT_EQ(page.jobs_size(), 2);
  EXPECT_GT(page.jobs(0).nodes_size(), 0);
  EXPECT_EQ(page.jobs(1).nodes_total(), 100U);
  EXPECT_EQ(page.jobs(1).phase(), "running");
  EXPECT_EQ(page.jobs(1).history_size(), 1);
}

TEST(StatusPages, JobsWithoutEndMakeNoMessageTooLong) {
  v1::GetStatusReply whole;
  for (size_t i = 0; i < kJobsMax; ++i) {
    v1::JobStatus* job = whole.add_jobs();
    job->set_run_id(absl::StrCat("job", i));
    job->set_description(std::string(kTextBytesMax, 'd'));
    job->add_nodes()->set_node_id("n");
  }
  const v1::GetStatusReply page = PageOf(whole, v1::GetStatusRequest());
  EXPECT_LT(page.ByteSizeLong(), kMessageBytesMax);
  EXPECT_GT(page.jobs_size(), 200);
  v1::GetStatusRequest last;
  last.set_run_id(absl::StrCat("job", kJobsMax - 1));
  EXPECT_EQ(PageOf(whole, last).jobs_size(), 1);
}

TEST(StatusPages, ANodeThatIsLongerThanAPageIsShownAlone) {
  v1::GetStatusRequest request;
  request.set_run_id("job7");
  const v1::GetStatusReply page = PageOf(Whole(3, 5000), request, 1000);
  EXPECT_EQ(page.jobs(0).nodes_size(), 1);
}

// PageOf copies every field that ToProto may set: a new field of the proto must be copied, too.
TEST(StatusPages, NothingButTheNodesIsLeftOut) {
  v1::GetStatusReply whole;
  whole.set_term(7);
  whole.set_release("1.2.3");
  v1::JobStatus* job = whole.add_jobs();
  const google::protobuf::Descriptor* fields = v1::JobStatus::descriptor();
  const google::protobuf::Reflection* set = v1::JobStatus::GetReflection();
  for (int i = 0; i < fields->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* field = fields->field(i);
    if (field->is_repeated()) {
      set->AddMessage(job, field);
    } else if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_STRING) {
      set->SetString(job, field, "text");
    } else if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_UINT64) {
      set->SetUInt64(job, field, 1);
    } else {
      set->SetUInt32(job, field, 1);
    }
  }
  EXPECT_EQ(PageOf(whole, v1::GetStatusRequest()).SerializeAsString(), whole.SerializeAsString());
}

}  // namespace
}  // namespace ddprun::rendezvous
