// Enrolment as a person sees it: credentials and a first configuration in the member's data folder.
#pragma once

#include <string>

#include "core/tree/enrol_client.h"

namespace fluvial::cli {

struct EnrollRequest {
  std::string token;        // its text
  std::string coordinator;  // host:port of the enrolment port; empty: the token's
  std::string data_dir;
  std::string advertise;  // an aggregator's host:port for its children; empty: this machine's name and the listen port
  std::string listen = "0.0.0.0:7410";  // an aggregator's
};

struct Enrolled {
  identity::Member member;
  std::string region;
  std::string coordinator;
  std::string config;        // the file for `fluvial edge --config` or `fluvial aggregator --config`
  bool config_kept = false;  // it was there and was not touched
};

// kInvalidArgument for a token or address that cannot be right, kAlreadyExists when the folder holds credentials.
Result<Enrolled> enroll(const EnrollRequest& request);

}  // namespace fluvial::cli
