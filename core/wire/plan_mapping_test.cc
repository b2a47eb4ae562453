#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "core/round/plan_test_support.h"
#include "core/wire/mapping.h"

namespace fluvial::wire {
namespace {

std::string hex_of(const round::Plan& plan) {
  std::string text;
  for (const unsigned char byte : to_proto(plan).SerializeAsString()) {
    for (const int digit : {byte >> 4, byte & 15}) text += "0123456789abcdef"[digit];
  }
  return text;
}

TEST(Plans, BytesAreFixed) {
  round::Plan plan;
  EXPECT_EQ(hex_of(plan),
            "100a180122046670333228808040302839000000000000904049000000000000f03f50015801600168b0ea0170e0d4037803"
            "82010b6665646176673a6c723d318901000000000000f03f9101cdccccccccccec3fa80103b00101c80101d0018827da0108"
            "636f6e74696e7565");
  plan = round::unusual_plan();
  plan.worker.values.erase("batch");  // the order of a map is not fixed
  EXPECT_EQ(hex_of(plan),
            "0a06646967697473101f1811220f746f706b3a726174696f3d302e3035288020302139000000000080304041fca9f1d24d62"
            "503f499a9999999999b93f500458036080808080808080804068d8367090bf0578e80782013f6c6172733a6c723d302e352c"
            "6d6f6d656e74756d3d302e382c7765696768745f64656361793d302c74727573743d302e32352c7363616c655f746f3d3930"
            "308901000000000000e03f91019a9999999999e93f99010000000000000440a0010ca80108b0018180808080808010b80101"
            "c2010d0a026c72119a9999999999b93fd001dc0bda01076465636c696e65e001e121ea01150a066c61796572731004220563"
            "6f6e763122026663ea01160a086e65737465726f7610011a08000000000000f03fea011a0a076e6574776f726b1002220d77"
            "69646520227265736e657422ea011c0a0677696474687310031a1000000000000030400000000000404040f2011174657374"
            "5f61636375726163793a6d6178f8010082022864656c74613a696e74383a626c6f636b3d3531322c726f756e64696e673d73"
            "746f636861737469638a02046e6578749002039902000000000000e83fca02176e6f726d2a2e6d65616e2c2a2e737461"
            "74697374696373");
}

TEST(Plans, BothWays) {
  const auto back = from_proto(to_proto(round::unusual_plan()));
  ASSERT_TRUE(back.ok()) << back.error().to_string();
  EXPECT_EQ(*back, round::unusual_plan());
}

TEST(Plans, EmptyChoiceIsTheDefault) {
  v1::Plan plan = to_proto(round::unusual_plan());
  plan.clear_workers_missing();  // of a sender that does not know the key
  plan.clear_metrics_by_site();
  plan.clear_optimizer_averaged();
  EXPECT_EQ(from_proto(plan)->workers_missing, round::MissingWorkers::kContinue);
  EXPECT_TRUE(from_proto(plan)->metrics_by_site);
  EXPECT_EQ(from_proto(plan)->optimizer.averaged, round::kStatistics);
}

std::string refusal(const std::function<void(v1::Plan&)>& damage) {
  v1::Plan plan = to_proto(round::unusual_plan());
  damage(plan);
  const auto read = from_proto(plan);
  if (read.ok()) return "(read)";
  EXPECT_EQ(read.error().code, Code::kInvalidArgument);
  return read.error().message;
}
#define REFUSAL(change) refusal([](v1::Plan& plan) { change; })

TEST(Plans, RefuseWhatDoesNotHold) {
  EXPECT_EQ(REFUSAL(plan.clear_name()), "name = '': expected 1 to 63 characters");
  EXPECT_EQ(REFUSAL(plan.set_rounds(0)), "rounds = 0: expected 1 to 1000000000");
  EXPECT_EQ(REFUSAL(plan.clear_codec()), "codec: expected a name of 1 to 64 bytes");
  EXPECT_EQ(REFUSAL(plan.set_codec(std::string(65, 'x'))), "codec: expected a name of 1 to 64 bytes");
  EXPECT_EQ(REFUSAL(plan.set_chunk_values(0)), "chunk_values = 0: expected 256 to 1048576");
  EXPECT_EQ(REFUSAL(plan.set_fraction_bits(63)), "fraction_bits = 63: expected 8 to 60");
  EXPECT_EQ(REFUSAL(plan.set_value_abs_max(std::nan(""))), "value_abs_max = nan: expected 0.001 to 1e+09");
  EXPECT_EQ(REFUSAL(plan.set_participants_fraction(1.5)), "participants.fraction = 1.5: expected above 0, at most 1");
  const std::string no_clock = "a deadline that no clock holds";
  EXPECT_EQ(REFUSAL(plan.set_soft_deadline_ms(4'611'686'018'428)), no_clock);
  EXPECT_EQ(REFUSAL(plan.set_hard_deadline_ms(4'611'686'018'428)), no_clock);
  EXPECT_EQ(REFUSAL(plan.set_soft_deadline_min_ms(std::numeric_limits<std::uint64_t>::max())), no_clock);
  EXPECT_EQ(REFUSAL(plan.set_workers_deadline_ms(std::numeric_limits<std::uint64_t>::max())), no_clock);
  EXPECT_EQ(REFUSAL(plan.set_soft_deadline_ms(4'611'686'018'427)),
            "deadlines.soft_ms = 4611686018427: expected 1 to 86400000");
  EXPECT_EQ(REFUSAL(plan.set_hard_deadline_ms(1)), "deadlines.hard_ms = 1: expected at least deadlines.soft_ms = 7000");
  EXPECT_EQ(REFUSAL(plan.set_workers_missing("wait")), "workers.missing: expected continue or decline");
  EXPECT_EQ(
      REFUSAL(plan.set_optimizer("adam")),
      "server optimizer \"adam\": expected one of fedavg, fedavgm, fedadagrad, fedadam, fedyogi, nesterov, "
      "delayed_nesterov, lars, lamb, mean, signsgd, onebit_adam, and its options as in fedavgm:lr=1,momentum=0.9");
  EXPECT_EQ(REFUSAL(plan.set_server_learning_rate(0)), "optimizer.learning_rate = 0: expected 1e-12 to 1e+06");
  EXPECT_EQ(REFUSAL(plan.set_server_momentum(1)), "optimizer.momentum = 1: expected 0 to below 1");
  EXPECT_EQ(REFUSAL((*plan.mutable_worker())["x"] = std::numeric_limits<double>::infinity()),
            "worker.x = inf: expected a finite number");
  EXPECT_EQ(REFUSAL(for (int i = 0; i < 65; ++i)(*plan.mutable_worker())[std::to_string(i)] = 1),
            "worker = (table): expected at most 64 keys");
}

v1::WorkerValue& add(v1::Plan& plan, v1::WorkerValue::Kind kind, int numbers, int texts) {
  v1::WorkerValue& value = *plan.add_worker_values();
  value.set_name("x");
  value.set_kind(kind);
  for (int i = 0; i < numbers; ++i) value.add_numbers(i + 1);
  for (int i = 0; i < texts; ++i) value.add_texts("text");
  return value;
}

TEST(Plans, RefuseValuesForWorkersThatDoNotHold) {
  EXPECT_EQ(REFUSAL(add(plan, v1::WorkerValue::KIND_BOOLEAN, 1, 0)), "(read)");
  EXPECT_EQ(REFUSAL(add(plan, v1::WorkerValue::KIND_NUMBERS, 256, 0)), "(read)");
  const std::string kind = "worker.x: a value of no kind that this version knows";
  EXPECT_EQ(REFUSAL(add(plan, v1::WorkerValue::KIND_UNSPECIFIED, 1, 0)), kind);
  EXPECT_EQ(REFUSAL(add(plan, static_cast<v1::WorkerValue::Kind>(5), 1, 0)), kind);
  EXPECT_EQ(REFUSAL(add(plan, v1::WorkerValue::KIND_BOOLEAN, 0, 0)), kind);
  EXPECT_EQ(REFUSAL(add(plan, v1::WorkerValue::KIND_BOOLEAN, 1, 1)), kind);
  EXPECT_EQ(REFUSAL(add(plan, v1::WorkerValue::KIND_BOOLEAN, 1, 0).set_numbers(0, 2)), kind);
  EXPECT_EQ(REFUSAL(add(plan, v1::WorkerValue::KIND_TEXT, 0, 2)), kind);
  EXPECT_EQ(REFUSAL(add(plan, v1::WorkerValue::KIND_TEXT, 1, 1)), kind);
  EXPECT_EQ(REFUSAL(add(plan, v1::WorkerValue::KIND_NUMBERS, 1, 1)), kind);
  EXPECT_EQ(REFUSAL(add(plan, v1::WorkerValue::KIND_NUMBERS, 257, 0)), "worker.x: a list too long");
  EXPECT_EQ(REFUSAL(add(plan, v1::WorkerValue::KIND_TEXTS, 0, 257)), "worker.x: a list too long");
  EXPECT_EQ(REFUSAL(add(plan, v1::WorkerValue::KIND_TEXTS, 0, 0)),
            "worker.x = (list): expected a list of 1 to 256 numbers or texts");
  EXPECT_EQ(REFUSAL(add(plan, v1::WorkerValue::KIND_TEXT, 0, 1).set_texts(0, "a\nb")),
            "worker.x = 'a b': expected a text of at most 1024 characters, none of them a control character");
  EXPECT_EQ(REFUSAL(add(plan, v1::WorkerValue::KIND_BOOLEAN, 1, 0); add(plan, v1::WorkerValue::KIND_TEXT, 0, 1)),
            "worker.x: stands twice");
  EXPECT_EQ(REFUSAL(add(plan, v1::WorkerValue::KIND_BOOLEAN, 1, 0).set_name("lr")), "worker.lr: stands twice");
  EXPECT_EQ(
      REFUSAL(for (int i = 0; i < 65; ++i) add(plan, v1::WorkerValue::KIND_TEXT, 0, 1).set_name(std::to_string(i))),
      "worker = (table): expected at most 64 keys");
}

TEST(Plans, AnOlderNeighbourReadsTheNumbers) {
  v1::Plan plan = to_proto(round::unusual_plan());
  plan.clear_worker_values();
  EXPECT_EQ(from_proto(plan)->worker.values, (round::WorkerConfig{{"lr", 0.1}, {"batch", 32.0}}));
}

}  // namespace
}  // namespace fluvial::wire
