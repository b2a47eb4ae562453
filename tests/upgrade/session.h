// The recorder's session between a child and its parent.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/wire/frame.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"
#include "tests/upgrade/recording.h"

namespace fluvial::upgrade {

class Session {
 public:
  void child(const v1::Envelope& header, std::string payload = {}) { add("child", header, std::move(payload)); }
  void parent(const v1::Envelope& header, std::string payload = {}) { add("parent", header, std::move(payload)); }
  std::vector<SessionFrame> take() { return std::move(frames_); }

 private:
  void add(const char* sender, const v1::Envelope& header, std::string payload) {
    const Result<Buffer> head = wire::encode_head(header, payload.size(), {});
    FLUVIAL_CHECK(head.ok(), "a frame is within its limits");
    frames_.push_back({sender, std::string(as_text(head->span())), header, std::move(payload)});
  }
  std::vector<SessionFrame> frames_;
};

// What is said by whom whose certificates do not renew themselves, and whom an aggregator refuses.
struct BeforeRenewals {
  v1::Envelope hello, welcome, lease_request, lease_grant;
  v1::Denials denials;
};
void renewals(Session& session, const BeforeRenewals& before);

// A round as it is with one pass; this is of its second one.
struct BeforePasses {
  wire::Opening opening;
  round::ModelRef base;
  v1::Envelope update;
  round::Contribution contribution;
  v1::Envelope partial;
};
void second_pass(Session& session, const BeforePasses& before);

}  // namespace fluvial::upgrade
