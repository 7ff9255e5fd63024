#include "rendezvous/web/status_json.h"

#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "ddprun/rendezvous/v1/status.pb.h"

namespace ddprun::rendezvous {
namespace {

using Json = nlohmann::json;

const absl::Time kNow = absl::FromUnixMillis(1'767'355'445'123);  // 2026-01-02 12:04:05.123 UTC

v1::GetStatusReply TimedSample() {
  v1::GetStatusReply reply;
  reply.set_term(UINT64_MAX);
  auto* job = reply.add_jobs();
  job->set_run_id("job7\x1b");
  job->set_age_ms(3'605'000);
  auto* done = job->add_history();
  done->set_began_ms_ago(5000);
  done->set_ended_ms_ago(123);
  job->add_history()->set_began_ms_ago(1);
  return reply;
}

TEST(StatusJson, NumbersAreNumbersButForTheTerm) {
  const Json json = Json::parse(StatusJson(TimedSample(), kNow));
  EXPECT_EQ(json["term"], "18446744073709551615");
  EXPECT_EQ(json["jobs"][0]["age_ms"], 3'605'000);
  EXPECT_EQ(json["jobs"][0]["restart_count"], 0);
  EXPECT_EQ(json["jobs"][0]["nodes"], Json::array());
  EXPECT_EQ(json["jobs"][0]["run_id"], "job7\x1b");
}

TEST(StatusJson, AgesHaveTimesOfTheWallClockBesideThem) {
  const Json job = Json::parse(StatusJson(TimedSample(), kNow))["jobs"][0];
  EXPECT_EQ(job["began_at"], "2026-01-02T11:04:00.123Z");
  EXPECT_EQ(job["history"][0]["began_at"], "2026-01-02T12:04:00.123Z");
  EXPECT_EQ(job["history"][0]["ended_at"], "2026-01-02T12:04:05.000Z");
  EXPECT_FALSE(job["history"][1].contains("ended_at"));
  EXPECT_FALSE(job["history"][1].contains("ended_ms_ago"));
}

TEST(StatusJson, FiguresOfTheTraining) {
  auto reply = TimedSample();
  auto* node = reply.mutable_jobs(0)->add_nodes();
  EXPECT_FALSE(Json::parse(StatusJson(reply, kNow))["jobs"][0]["nodes"][0].contains("training"));
  node->mutable_training()->set_loss(0.25);
  node->mutable_training()->set_samples_per_second(4000);
  const Json training = Json::parse(StatusJson(reply, kNow))["jobs"][0]["nodes"][0]["training"];
  EXPECT_EQ(training["loss"], 0.25);
  EXPECT_EQ(training["samples_per_second"], 4000);
  node->mutable_training()->set_loss(std::nan(""));
  EXPECT_TRUE(
      Json::parse(StatusJson(reply, kNow))["jobs"][0]["nodes"][0]["training"]["loss"].is_null());
}

// Every message has one of each that it can have.
void AddMessages(google::protobuf::Message* message) {
  const auto* reflection = message->GetReflection();
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const auto* field = message->GetDescriptor()->field(i);
    if (field->message_type() == nullptr) continue;
    AddMessages(field->is_repeated() ? reflection->AddMessage(message, field)
                                     : reflection->MutableMessage(message, field));
  }
}

// Expects an object's names: those of a message's fields, unless they are optional and absent.
// Returns how many there are, also in its parts.
int ExpectFields(const google::protobuf::Message& message, const Json& json) {
  const auto* reflection = message.GetReflection();
  int count = 0;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const auto* field = message.GetDescriptor()->field(i);
    const bool is_there = !field->has_presence() || reflection->HasField(message, field);
    EXPECT_EQ(json.contains(field->name()), is_there) << field->full_name();
    if (json.contains(field->name())) ++count;
    if (!is_there || field->message_type() == nullptr) continue;
    count += field->is_repeated()
                 ? ExpectFields(reflection->GetRepeatedMessage(message, field, 0),
                                json[field->name()][0])
                 : ExpectFields(reflection->GetMessage(message, field), json[field->name()]);
  }
  return count;
}

TEST(StatusJson, AllFieldsAreThere) {
  v1::GetStatusReply reply;
  AddMessages(&reply);
  EXPECT_GT(ExpectFields(reply, Json::parse(StatusJson(reply, kNow))), 70);
}

TEST(StatusJson, OneLineOrIndented) {
  EXPECT_EQ(StatusJson(TimedSample(), kNow).find('\n'), std::string::npos);
  const std::string indented = StatusJson(TimedSample(), kNow, JsonLayout::kIndented);
  EXPECT_NE(indented.find("\n      \"run_id\": \"job7\\u001b\",\n"), std::string::npos) << indented;
}

}  // namespace
}  // namespace ddprun::rendezvous
