// Enrolment as a person sees it: credentials and a first configuration in the member's data folder.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "core/config/reader.h"
#include "core/telemetry/log.h"
#include "core/tree/enrol_client.h"

namespace fluvial::cli {

struct EnrollRequest {
  std::string token;         // its text
  std::optional<Role> role;  // what the token must be for; none: any member
  std::string coordinator;   // host:port of the enrolment port; empty: the token's
  std::string data_dir;
  std::string identity;   // of an operator's token, instead of data_dir: where key and certificate go; empty: a folder
                          // of the operator's name in the person's own configuration
  std::string advertise;  // an aggregator's host:port for its children; empty: this machine's name and its port
  std::string listen;     // an aggregator's; empty: every address, on advertise's port
  std::string proxy;      // as the setting of that name, and what no_proxy says
  std::string no_proxy;
  Duration wait{0};  // how long it tries again while the coordinator does not answer
  std::function<void(const std::string& line)> progress;  // hears why each try failed, and how long it goes on
};

struct Enrolled {
  identity::Member member;
  std::string region;       // unknown when it was enrolled already
  std::string coordinator;  // likewise
  std::string config;  // the file for `fluvial edge --config` or `fluvial aggregator --config`; an operator's folder
  bool config_kept = false;  // it was there and was not touched
  bool already = false;      // nothing was done
  bool again = false;        // the folder was a member's before: a process that runs with it has the old certificate
};

// The member whose credentials the folder holds; none: it is not enrolled. kFailedPrecondition for a coordinator's.
Result<std::optional<Enrolled>> enrolled_before(const std::string& data_dir);

// An operator's identity. A folder that holds one gets the certificate of another token for the same name: for more
// access, or after the old one has ended.
Result<Enrolled> enroll_operator(const EnrollRequest& request, const identity::EnrolmentToken& token,
                                 const config::Environment& environment);

// Does nothing for a member that the folder holds already, unless the token is another one than it was enrolled with:
// then the member gets the certificate of that one, for its key. May be ended at any moment and called again with the
// same token: the key is durable before the token leaves, and the credentials are the last thing written.
// kInvalidArgument for a token or address that cannot be right, kAlreadyExists when the folder is another member's.
Result<Enrolled> enroll(const EnrollRequest& request);

// `fluvial edge --enroll` and `fluvial aggregator --enroll`: one entry point for the first start and every other.
struct EnrollFirst {
  bool wanted = false;
  std::string token_file;
  std::string wait = "10m";
};
void add_enroll_first_options(CLI::App& app, EnrollFirst& options);
// The configuration file that enrolment wrote, now or before. `given` is what flags and environment say of a setting.
Result<std::string> enroll_first(const EnrollFirst& options, Role role, const config::Environment& environment,
                                 const std::function<std::string(const std::string& key)>& given,
                                 const telemetry::Logger& log);

}  // namespace fluvial::cli
