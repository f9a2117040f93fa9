#include "server/request_owner.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

HttpRequest with_key(const std::string& key) {
  HttpRequest head;
  if (!key.empty()) head.headers = {{"Authorization", "Bearer " + key}};
  return head;
}

GenerationRequest from(const std::string& user, std::optional<int32_t> priority = std::nullopt) {
  GenerationRequest request;
  request.user = user;
  request.priority = priority;
  return request;
}

TEST(RequestOwner, WithoutKeysItIsTheUserField) {
  GenerationRequest anna = from("anna"), anonymous = from("", -7);
  EXPECT_FALSE(settle_owner({}, with_key("whatever"), &anna));
  EXPECT_FALSE(settle_owner({}, with_key(""), &anonymous));
  EXPECT_EQ(anna.owner, "user anna");
  EXPECT_EQ(anna.priority, 0);
  EXPECT_EQ(anonymous.owner, "");
  EXPECT_EQ(anonymous.priority, -7);
  EXPECT_EQ(anonymous.weight, 1);
}

TEST(RequestOwner, WithKeysItIsTheKeyAndNamesGainNothing) {
  AccessPolicy access;
  access.api_keys = {"first", "second"};
  GenerationRequest anna = from("anna"), ben = from("ben"), other = from("anna");
  EXPECT_FALSE(settle_owner(access, with_key("second"), &anna));
  EXPECT_FALSE(settle_owner(access, with_key("second"), &ben));
  EXPECT_FALSE(settle_owner(access, with_key("first"), &other));
  EXPECT_EQ(anna.owner, ben.owner);
  EXPECT_NE(anna.owner, other.owner);
  EXPECT_EQ(anna.owner.find("second"), std::string::npos) << "secrets stay where they are";
}

TEST(RequestOwner, AKeysTermsAreItsWeightAndItsBestPriority) {
  AccessPolicy access;
  access.api_keys = {"batch", "free"};
  access.terms["batch"] = {.weight = 0.5, .best_priority = 10};
  GenerationRequest silent = from(""), modest = from("", 11), bold = from("", 9), free = from("", -9);
  EXPECT_FALSE(settle_owner(access, with_key("batch"), &silent));
  EXPECT_EQ(silent.priority, 10);
  EXPECT_EQ(silent.weight, 0.5);
  EXPECT_FALSE(settle_owner(access, with_key("batch"), &modest));
  EXPECT_EQ(modest.priority, 11);
  const Problem problem = settle_owner(access, with_key("batch"), &bold);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->status, 400);
  EXPECT_EQ(problem->param, "priority");
  EXPECT_EQ(problem->message, "'priority' is 9; this API key may ask for 10 and above");
  EXPECT_FALSE(settle_owner(access, with_key("free"), &free));
  EXPECT_EQ(free.priority, -9);
}

}  // namespace
}  // namespace kvasir
