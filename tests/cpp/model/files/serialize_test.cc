// Covers: model/files/index.cc model/files/log.cc model/files/read.cc model/files/build.cc
// Covers: model/files/build_wires.cc model/files/build_facts.cc model/files/build_merges.cc
// Covers: model/files/write.cc model/files/write_facts.cc model/files/write_history.cc
// Covers: model/files/type.cc model/files/value.cc
// Models to text and back; texts that no model has. Python tests every op and every setter.
#include "model/files/serialize.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "core/tensor_data.h"
#include "infer/relation.h"
#include "model/build.h"
#include "model/files/type.h"
#include "model/files/value.h"

namespace mithril::model {
namespace {

using test::at;
using test::leaf;
using test::linear;

Model network() {
  Model inner("block");
  inner.extend(linear(4, "first"), at({{"input", "x"}, {"weight", "w"}, {"output", "h"}}));
  inner.extend(leaf("relu"), at({{"input", "h"}, {"output", "y"}}));
  inner.expose_keys({"y"});
  Model outer;
  outer.extend(inner, at({{"x", "input"}, {"w", "shared"}, {"y", "hidden"}}));
  outer.extend(linear(4), at({{"input", "hidden"}, {"weight", "shared"}, {"output", "out"}}));
  outer.set_shapes({{"input", {infer::TemplateItem::symbol("n"), infer::TemplateItem::of(4)}}});
  return outer;
}

core::Error error_of(std::string_view text) {
  try {
    from_json(text);
  } catch (const core::ErrorException& failure) {
    return failure.error();
  }
  ADD_FAILURE() << "was read: " << text;
  return {};
}

TEST(Serialize, ReadsWhatItWrote) {
  const Model model = network();
  for (const bool history : {false, true}) {
    const std::string text = to_json(model, history);
    const Loaded loaded = from_json(text);
    EXPECT_TRUE(loaded.notes.empty());
    EXPECT_EQ(to_json(loaded.model, history), text);
    EXPECT_EQ(loaded.model.input_keys(), model.input_keys());
    EXPECT_EQ(test::shape(loaded.model, "out"), test::shape(model, "out"));
  }
}

TEST(Serialize, FreezesWhatIsAPartAsComposingDoes) {
  const Model loaded = from_json(to_json(network())).model;
  EXPECT_FALSE(loaded.is_frozen());
  for (const Model& part : loaded.submodels()) EXPECT_TRUE(part.is_frozen()) << part.name();
}

// A value of every kind, nested.
TEST(Serialize, KeepsEveryValue) {
  auto data = std::make_shared<core::TensorData>();
  data->dtype = core::DType::kFloat32;
  data->shape = {2};
  core::append_element(*data, HostValue(-0.0));
  core::append_element(*data, HostValue(std::nan("")));
  auto large = std::make_shared<core::TensorData>();
  large->dtype = core::DType::kInt64;
  large->shape = {100};
  for (int i = 0; i < 100; ++i) core::append_element(*large, HostValue(i - 50));
  const double infinity = std::numeric_limits<double>::infinity();
  const HostValue value = HostValue::tuple(
      {HostValue(), HostValue(true), HostValue(std::numeric_limits<int64_t>::min()), HostValue(1.0),
       HostValue(0.1), HostValue(infinity), HostValue(-infinity),
       HostValue(std::numeric_limits<double>::quiet_NaN()), HostValue("text\n"),
       HostValue(core::DType::kBFloat16), HostValue(core::EllipsisValue{}),
       HostValue(core::Slice{HostValue(1), HostValue(), HostValue(-1)}),
       HostValue::list({HostValue::tuple({}), HostValue::list({HostValue(2)})}),
       HostValue(std::shared_ptr<const core::TensorData>(data)),
       HostValue(std::shared_ptr<const core::TensorData>(large))});
  core::JsonWriter out;
  write_value(out, value, "x");
  const std::string text = out.take();
  core::JsonReader in(text, "file");
  EXPECT_TRUE(ValueReader(in).read() == value) << text;
  in.finish();
  EXPECT_TRUE(in.status().ok());
}

TEST(Serialize, RefusesValuesOfThisProcess) {
  core::JsonWriter out;
  const HostValue opaque(core::Opaque{std::make_shared<int>(1), "callback"});
  EXPECT_THROW(write_value(out, opaque, "wire 'x'"), core::ErrorException);
}

infer::Type type_of(KindSet kinds, std::vector<infer::Container> containers) {
  infer::Type out(kinds);
  out.containers = std::move(containers);
  return out;
}

// A container of every form, nested.
TEST(Serialize, KeepsWhatContainersHold) {
  const infer::Type pairs =
      type_of(infer::kTupleKind | infer::kNoneKind,
              {{false, false, {infer::kScalarInt, infer::kScalarFloat | infer::kFloating}},
               {false, false, {}},
               {false, true, {type_of(infer::kListKind, {{true, false, {infer::kStrKind}}})}}});
  const infer::Type type = type_of(infer::kSequence | infer::kScalarInt,
                                   {{true, true, {pairs}}, {false, true, {infer::kSequence}}});
  core::JsonWriter out;
  out.begin_object();
  write_type(out, type, "x");
  out.end_object();
  const std::string text = out.take();
  core::JsonReader in(text, "file");
  infer::Type found;
  in.begin_object();
  for (std::string_view key; in.next_key(key);) {
    if (key == "type") {
      found.kinds = ValueReader(in).read_kinds();
    } else {
      found.containers = read_containers(in);
    }
  }
  in.finish();
  EXPECT_TRUE(in.status().ok()) << text;
  EXPECT_TRUE(found == type) << text;
}

TEST(Serialize, RefusesTypesBeyondTheLimitsOfFiles) {
  infer::Type deep = infer::kScalarInt;
  for (int i = 0; i < 65; ++i) deep = type_of(infer::kListKind, {{true, true, {deep}}});
  const infer::Type wide = type_of(
      infer::kTupleKind, {{false, false, std::vector<infer::Type>(1024, infer::kScalarInt)}});
  for (const infer::Type& type : {deep, wide}) {
    core::JsonWriter out;
    out.begin_object();
    EXPECT_THROW(write_type(out, type, "wire 'x'"), core::ErrorException);
  }
  const infer::Type fits = deep.containers[0].items[0];
  core::JsonWriter out;
  out.begin_object();
  write_type(out, fits, "wire 'x'");
}

TEST(Serialize, RefusesSubmodels) {
  const Model model = network();
  EXPECT_THROW(to_json(model.submodels().front()), core::ErrorException);
}

TEST(Serialize, IgnoresWhatALaterMinorVersionAdds) {
  std::string text = to_json(network(), false);
  const auto replace = [&](const std::string& from, const std::string& to) {
    const size_t found = text.find(from);
    ASSERT_NE(found, std::string::npos) << from;
    text.replace(found, from.size(), to);
  };
  replace(fmt::format("\"{}.{}\"", kFileMajor, kFileMinor), "\"1.99\"");
  replace("\"model\": {", "\"new\": [1, {\"a\": []}],\n  \"model\": {\"newer\": null,");
  replace("\"op\": \"relu\"", "\"newest\": 1e5, \"op\": \"relu\"");
  const Loaded loaded = from_json(text);
  ASSERT_EQ(loaded.notes.size(), 3U);
  EXPECT_EQ(loaded.notes[0], "'new' of the file is not known to this release");
  EXPECT_EQ(to_json(loaded.model), to_json(from_json(to_json(network(), false)).model));
}

std::string file(const std::string& model, const std::string& rest = "") {
  return R"({"format": "mithril-model", "version": "1.0", "model": {)" + model + "}" + rest + "}";
}
const char* const kRelu =
    R"("wires": ["x", "y"], "parts": [{"op": "relu", "wires": {"input": "x", "output": "y"}}])";

const char* const kBuffer =
    R"("wires": ["x", "y"], "parts": [{"op": "buffer", "wires": {"input": "x", "output": "y"}}])";

// Something said of a wire that may be anything.
std::string says(const std::string& what) {
  return file(kBuffer, R"(, "facts": [{"says": [{"wire": "x", )" + what + "}]}]");
}

TEST(Serialize, RefusesMalformedTypesAndIntervals) {
  for (const char* what : {
           R"("type": ["list"], "containers": [])",
           R"("type": ["list"], "containers": [{}])",
           R"("type": ["list"], "containers": [[]])",
           R"("type": ["list"], "containers": {"list_of": ["int"]})",
           R"("type": ["list"], "containers": [{"list_of": []}])",
           R"("type": ["list"], "containers": [{"list_of": ["no"]}])",
           R"("type": ["list"], "containers": [{"list_of": [1]}])",
           R"("type": ["list"], "containers": [{"list_of": "int"}])",
           R"("type": ["list"], "containers": [{"list": ["int"]}])",
           R"("type": ["list"], "containers": [{"dict_of": ["int"]}])",
           R"("type": ["list"], "containers": [{"list_of": ["int"], "tuple_of": ["int"]}])",
           R"("type": ["list"], "containers": [{"list_of": ["tuple", {"tuple": []}]}])",
           R"("type": ["list"], "containers": [{"tuple_of": ["int"]}])",
           R"("shape": [1], "containers": [{"tuple_of": ["int"]}])",
           R"("containers": [{"tuple_of": ["int"]}])",
           R"("interval": [0, 1])",
           R"("shape": [1], "interval": [0, 1])",
           R"("type": ["int"], "interval": [])",
           R"("type": ["int"], "interval": [1])",
           R"("type": ["int"], "interval": [1, 2, 3])",
           R"("type": ["int"], "interval": [2, 1])",
           R"("type": ["int"], "interval": [{"float": "inf"}, 1])",
           R"("type": ["int"], "interval": [{"float": "nan"}, null])",
           R"("type": ["int"], "interval": [{"tuple": []}, null])",
           R"("type": ["int"], "interval": ["0", 1])",
           R"("type": ["int"], "interval": [true, 1])",
           R"("type": ["int"], "interval": {"low": 1})",
           R"("type": ["int"], "interval": [0, 100000000000000000000000])",
       }) {
    EXPECT_EQ(error_of(says(what)).code, core::Code::kParse) << what;
  }
  EXPECT_EQ(error_of(says(R"("type": ["str"], "interval": [0, 1])")).kind, core::ErrorKind::kDType);
  EXPECT_EQ(
      error_of(says(R"("value": 3}, {"wire": "x", "type": ["int"], "interval": [0, 2])")).kind,
      core::ErrorKind::kValue);
}

// --- state --------------------------------------------------------------------------------------

std::string stateful(const std::string& fact) {
  return file(R"("wires": ["x", "y", "z"], "parts": [
                {"model": "m", "wires": {"a": "x", "b": "y", "c": "z"}}])",
              R"(, "submodels": {"m": {"wires": ["a", "b", "c", "d"], "outputs": ["b"], "parts": [
                    {"op": "relu", "wires": {"input": "a", "output": "d"}},
                    {"op": "relu", "wires": {"input": "c", "output": "b"}}],
                    "states": [{"input": "a", "output": "b"}]}},
                   "facts": [{"says": [)" +
                  fact + "]}]");
}

// No model that was composed has an outer wire for what carries state.
TEST(Serialize, ClonesStateThatAFileConnects) {
  const Model model = from_json(stateful(R"({"wire": "x", "next": "y"},
                                            {"wire": "y", "shape": [2]})"))
                          .model;
  EXPECT_EQ(test::shape(model.clone(), "x"), "[2]");
}

TEST(Serialize, RefusesStateThatIsNotBound) {
  for (const char* fact :
       {R"({"wire": "y", "next": "x"})", R"({"wire": "x", "next": "x"})",
        R"({"wire": "x", "next": "gone"})", R"({"wire": "x", "next": "y", "next_model": "no"})"}) {
    EXPECT_NE(error_of(stateful(fact)).kind, core::ErrorKind::kInternal) << fact;
  }
  EXPECT_EQ(error_of(says(R"("next": "y")")).code, core::Code::kParse);
}

// --- constraints --------------------------------------------------------------------------------

core::Status tie_rows(infer::Relation& relation) {
  if (!relation.rank(0) || !relation.rank(1)) return {};
  relation.finish();
  return relation.tie(0, 0, 1, 0);
}

infer::RelationFunction find_rows(std::string_view name, int keys) {
  if (name == "rows" && keys == 2) return tie_rows;
  return nullptr;
}

TEST(Serialize, KeepsConstraintsByName) {
  Model model = network();
  const uint32_t first = model.add_constraint({"rows", {"shared", "out"}, {}, tie_rows});
  model.add_constraint({"rows", {"input", "out"}, {first}, tie_rows});
  const std::string text = to_json(model);
  const Loaded loaded = from_json(text, {}, find_rows);
  EXPECT_EQ(to_json(loaded.model), text);
  EXPECT_EQ(loaded.model.constraints().at(1).after, (std::vector<uint32_t>{0}));
  EXPECT_EQ(test::shape(loaded.model, "shared"), test::shape(model, "shared"));
  EXPECT_EQ(error_of(text).code, core::Code::kOpUnknown);
}

TEST(Serialize, RefusesConstraintsWithoutAName) {
  Model model = network();
  model.add_constraint({"", {"shared", "out"}, {}, tie_rows});
  EXPECT_EQ(test::code_of([&] { to_json(model); }), core::Code::kUnsupported);
}

TEST(Serialize, RefusesMalformedConstraints) {
  const std::string good = R"("name": "rows", "keys": ["x", "y"])";
  const auto said = [](const std::string& constraint, const std::string& first = "") {
    return file(kBuffer, R"(, "facts": [)" + first + R"({"by": "add_constraint", "constraint": )" +
                             constraint + "}]");
  };
  const auto code = [](const std::string& text) {
    return test::code_of([&] { from_json(text, {}, find_rows); });
  };
  EXPECT_EQ(from_json(said("{" + good + "}"), {}, find_rows).model.constraints().size(), 1U);
  for (const char* constraint : {
           "[]",
           "{}",
           R"({"name": "rows"})",
           R"({"keys": ["x", "y"]})",
           R"({"name": "rows", "keys": []})",
           R"({"name": "", "keys": ["x", "y"]})",
           R"({"name": 1, "keys": ["x", "y"]})",
           R"({"name": "rows", "keys": "x"})",
           R"({"name": "rows", "keys": [["x"]]})",
           R"({"name": "rows", "keys": ["x", "y"], "after": [0]})",
           R"({"name": "rows", "keys": ["x", "y"], "after": [-1]})",
           R"({"name": "rows", "keys": ["x", "y"], "after": 0})",
           R"({"name": "rows", "keys": ["x", "y"], "model": "gone"})",
           R"({"name": "rows", "keys": ["x", "y"], "part": 1})",
           R"({"name": "rows", "keys": ["x", "y"], "part": -1})",
           R"({"name": "rows", "name": "rows", "keys": ["x", "y"]})",
       }) {
    EXPECT_EQ(code(said(constraint)), core::Code::kParse) << constraint;
  }
  EXPECT_EQ(code(said(R"({"name": "rows", "keys": ["x", "gone"]})")), core::Code::kKeyUnknown);
  EXPECT_EQ(code(said(R"({"name": "rows", "keys": ["x", "y"], "part": 0})")),
            core::Code::kKeyUnknown);
  EXPECT_EQ(code(said(R"({"name": "columns", "keys": ["x", "y"]})")), core::Code::kOpUnknown);
  EXPECT_EQ(code(said(R"({"name": "rows", "keys": ["x"]})")), core::Code::kOpUnknown);
  std::string many = R"({"name": "rows", "keys": ["x")";
  for (int i = 0; i < 1024; ++i) many += R"(, "x")";
  EXPECT_EQ(code(said(many + "]}")), core::Code::kFileLimit);
  EXPECT_EQ(code(said("{" + good + "}",
                      R"({"says": [{"wire": "x", "type": ["tensor_int"]},
                                   {"wire": "x", "shape": [1]}, {"wire": "y", "shape": [2]}]},)")),
            core::Code::kShapeConflict);
}

// --- merges -------------------------------------------------------------------------------------

// Two parts that read 'x', two facts about it, and a history with these merges.
std::string merged(const std::string& merges) {
  return file(R"("wires": ["x", "y", "z"], "parts": [
                {"op": "relu", "wires": {"input": "x", "output": "y"}},
                {"op": "tanh", "wires": {"input": "x", "output": "z"}}])",
              R"(, "facts": [{"says": [{"wire": "x", "shape": [2, null]}]},
                             {"says": [{"wire": "x", "shape": [null, 3]},
                                       {"wire": "y", "shape": [null, null]}]}],
                   "history": {"order": ["ops", 0, 2, "facts", 0, 2], "stops": [1, 5],
                               "models": [0, 1, 0, 1, 0, 1], "ops": [0, 1, 0, 2],
                               "facts": [0, 3, 0, 4], "files": ["a.py"], "merges": )" +
                  merges + "}");
}

TEST(Serialize, MergesWhenTheHistorySaysSo) {
  const Loaded loaded = from_json(merged(
      R"([{"by": "one", "wire": "x", "into": 1, "at": 3, "keys": [0, "input"], "facts": [0, 0],
           "place": [0, 7]},
          {"by": "two", "wire": "x", "at": 4, "keys": [1, "input"], "facts": [], "place": [0, 8]}])"));
  EXPECT_EQ(test::shape(loaded.model, "z"), "[2, 3]");
  std::vector<std::string> by;
  for (const infer::Reason& reason : loaded.model.why("z")) {
    by.push_back(fmt::format("{}:{}", reason.by, reason.location.line));
  }
  for (const char* said : {"one:7", "two:8", ":3", ":4"}) {
    EXPECT_EQ(std::count(by.begin(), by.end(), said), 1) << said;
  }
  EXPECT_EQ(to_json(from_json(to_json(loaded.model)).model), to_json(loaded.model));
}

TEST(Serialize, RefusesMalformedMerges) {
  const std::string rest = R"("at": 1, "keys": [], "facts": [], "place": [0, 1])";
  EXPECT_TRUE(from_json(merged(R"([{"wire": "x", )" + rest + "}]")).notes.empty());
  for (const std::string& merges : std::vector<std::string>{
           "{}",
           "[1]",
           R"([{"wire": "gone", )" + rest + "}]",
           R"([{"wire": "x", "model": "gone", )" + rest + "}]",
           R"([{"wire": "x", "into": 0, )" + rest + "}]",
           R"([{"wire": "x", "into": 1, )" + rest + "}]",
           R"([{"wire": "x", "into": -1, )" + rest + "}]",
           R"([{"wire": "x", "into": 1, )" + rest + R"(}, {"wire": "y", )" + rest + "}]",
           R"([{"wire": "x", )" + rest + R"(}, {"wire": "x", "into": 0, )" + rest + "}]",
           R"([{"wire": "x", "at": -1}])",
           R"([{"wire": "x", "at": "1"}])",
           R"([{"wire": "x", "place": [0]}])",
           R"([{"wire": "x", "place": [1, 1]}])",
           R"([{"wire": "x", "place": [0, 1], "keys": [0]}])",
           R"([{"wire": "x", "place": [0, 1], "keys": ["input", 0]}])",
           R"([{"wire": "x", "place": [0, 1], "keys": [2, "input"]}])",
           R"([{"wire": "x", "place": [0, 1], "keys": [0, "gone"]}])",
           R"([{"wire": "x", "place": [0, 1], "keys": [0, "output"]}])",
           R"([{"wire": "x", "place": [0, 1], "keys": [0, "input", 0, "input"]}])",
           R"([{"wire": "x", "place": [0, 1], "facts": [0]}])",
           R"([{"wire": "x", "place": [0, 1], "facts": [1, 1]}])",
           R"([{"wire": "x", "place": [0, 1], "facts": [0, 0, 0, 0]}])",
       }) {
    const core::Code code = error_of(merged(merges)).code;
    EXPECT_TRUE(code == core::Code::kParse || code == core::Code::kKeyUnknown) << merges;
  }
  EXPECT_EQ(error_of(file(R"("op": "relu", "wires": ["input", "output"])",
                          R"(, "history": {"order": ["ops", 0, 1], "models": [0, 1], "ops": [0, 1],
                               "facts": [], "files": ["a"], "merges": [{"wire": "input",
                               "place": [0, 1], "keys": [0, "input"]}]})"))
                .code,
            core::Code::kParse);
}

TEST(Serialize, LimitsOfTypes) {
  const auto nested = [](int levels) {
    std::string type = R"(["tensor_int"])";
    for (int i = 1; i < levels; ++i) type = R"([{"tuple": [)" + type + "]}]";
    return file(R"("wires": ["x", "y"], "parts": [{"op": "buffer", "wires":
                    {"input": "x", "output": "y"}}])",
                R"(, "facts": [{"says": [{"wire": "x", "type": ["tuple"],
                    "containers": [{"tuple_of": )" +
                    type + "}]}]}]");
  };
  EXPECT_TRUE(from_json(nested(64)).notes.empty());
  EXPECT_EQ(error_of(nested(65)).code, core::Code::kFileLimit);
  std::string wide = R"("type": ["tuple"], "containers": [{"tuple": [["int"])";
  for (int i = 0; i < 1023; ++i) wide += R"(, ["int"])";
  EXPECT_EQ(error_of(says(wide + "]}]")).code, core::Code::kFileLimit);
}

// A fact that says more than one thing of a type; what a later release says of a wire.
TEST(Serialize, ReadsWhatOthersMayWrite) {
  const Model both = from_json(says(R"("type": ["int", "str"], "interval": [0, null])")).model;
  EXPECT_EQ(both.kinds("x"), infer::kScalarInt);
  const Loaded newer = from_json(says(R"("newer": 1)"));
  EXPECT_EQ(newer.notes, test::Strings{"'newer' of a fact is not known to this release"});
}

TEST(Serialize, ReadsAFileWrittenByHand) {
  EXPECT_EQ(from_json(file(kRelu)).model.input_keys(), (std::vector<std::string>{"x"}));
}

TEST(Serialize, RefusesOtherVersionsAndFormats) {
  EXPECT_EQ(error_of(R"({"format": "mithril-model", "version": "2.0", "model": {}})").code,
            core::Code::kFileVersion);
  EXPECT_EQ(error_of(R"({"format": "mithril-model", "version": "2.0", "model": {}})").message,
            "model file, line 1, column 45: version 2.0 of model files is not known, this release "
            "reads version 1");
  for (const char* text :
       {"{}", "[]", "", "null", R"({"format": "other", "version": "1.0", "model": {}})",
        R"({"version": "1.0", "format": "mithril-model", "model": 1})",
        R"({"format": "mithril-model", "version": 1, "model": {}})",
        R"({"format": "mithril-model", "version": "1", "model": {}})",
        R"({"format": "mithril-model", "version": "x.1", "model": {}})",
        R"({"model": {}, "format": "mithril-model", "version": "1.0"})",
        R"({"format": "mithril-model", "version": "1.0"})"}) {
    EXPECT_EQ(error_of(text).code, core::Code::kParse) << text;
  }
}

// Each text says something that no composed model can be.
TEST(Serialize, RefusesWhatNoModelCanBe) {
  const std::string relu = R"({"op": "relu", "wires": {"input": "x", "output": "y"}})";
  const std::string wires = R"("wires": ["x", "y"], )";
  const std::vector<std::string> texts = {
      file(R"("wires": ["x", "x"])"),
      file(R"("wires": [""])"),
      file(R"("wires": ["$"])"),
      file(R"("wires": ["$0"])"),
      file(R"("wires": ["$01"])"),
      file(R"("wires": ["$4294967297"])"),
      file(R"("wires": ["$4000000"])"),
      file(R"("wires": ["$2"], "numbered": 1)"),
      file(R"("wires": [], "numbered": 2000000)"),
      file(wires + R"("parts": [)" + relu + "," + relu + "]"),
      file(wires + R"("parts": [{"op": "no_such_op", "wires": {}}])"),
      file(wires + R"("parts": [{"op": "relu", "wires": {"input": "x"}}])"),
      file(wires + R"("parts": [{"op": "relu", "wires": {"output": "y"}}])"),
      file(wires + R"("parts": [{"op": "relu", "wires": {"input": "z", "output": "y"}}])"),
      file(wires +
           R"("parts": [{"op": "relu", "wires": {"input": "x", "output": "y", "z": "x"}}])"),
      file(wires +
           R"("parts": [{"op": "relu", "wires": {"input": "x", "input": "x", "output": "y"}}])"),
      file(wires + R"("parts": [{"op": "relu", "wires": {"input": null, "output": "y"}}])"),
      file(
          wires +
          R"("parts": [{"op": "relu", "attrs": {"no": 1}, "wires": {"input": "x", "output": "y"}}])"),
      file(R"("wires": ["x", "t", "y"], "parts": [{"op": "squared_error",
                       "attrs": {"reduction": "median"},
                       "wires": {"input": "x", "target": "t", "output": "y"}}])"),
      file(wires + R"("parts": [{"op": "linear", "wires": {"input": "x", "output": "y"}}])"),
      file(wires +
           R"("parts": [{"op": "relu", "items": 2, "wires": {"input": "x", "output": "y"}}])"),
      file(wires + R"("parts": [{"op": "relu", "model": "a", "wires": {}}])"),
      file(wires + R"("parts": [{"wires": {}}])"),
      file(wires + R"("parts": [{"model": "gone", "wires": {}}])"),
      file(R"("wires": ["x"], "parts": [{"op": "relu", "wires": {"input": "x", "output": "x"}}])"),
      file(wires + R"("parts": [{"op": "relu", "wires": {"input": "x", "output": "y"}},
                                {"op": "relu", "wires": {"input": "y", "output": "x"}}])"),
      file(wires + R"("outputs": ["x"], "parts": [)" + relu + "]"),
      file(wires + R"("latent": ["y"], "parts": [)" + relu + "]"),
      file(wires + R"("cins": ["y"], "parts": [)" + relu + "]"),
      file(wires + R"("couts": ["x"], "parts": [)" + relu + "]"),
      file(wires + R"("couts": ["gone"], "parts": [)" + relu + "]"),
      file(wires + R"("states": [{"input": "y", "output": "x"}], "parts": [)" + relu + "]"),
      file(wires + R"("readers": {"x": [7, "input"]}, "parts": [)" + relu + "]"),
      file(wires + R"("readers": {"x": [0, "output"]}, "parts": [)" + relu + "]"),
      file(wires + R"("differentiable": {"gone": true}, "parts": [)" + relu + "]"),
      file(R"("op": "relu", "wires": ["input"])"),
      file(R"("op": "relu", "wires": ["input", "output"], "parts": [)" + relu + "]"),
      file(kRelu, R"(, "submodels": {"a": {"wires": []}})"),
      file(R"("wires": [], "parts": [{"model": "a", "wires": {}}])",
           R"(, "submodels": {"a": {"wires": [], "parts": [{"model": "a", "wires": {}}]}})"),
      file(R"("wires": [], "parts": [{"model": "a", "wires": {}}, {"model": "a", "wires": {}}])",
           R"(, "submodels": {"a": {"wires": []}})"),
      file(R"("wires": [], "parts": [{"model": "a", "wires": {}}])",
           R"(, "submodels": {"a": {"op": "relu", "wires": ["input", "output"]}})"),
      file(R"("wires": [], "parts": [{"model": "a", "wires": {}}])",
           R"(, "submodels": {"a": {"wires": ["x"]}})"),
      file(kRelu, R"(, "facts": [{"says": [{"wire": "gone", "shape": [1]}]}])"),
      file(kRelu, R"(, "facts": [{"says": [{"wire": "x"}]}])"),
      file(kRelu, R"(, "facts": [{"says": [{"wire": "x", "shape": [1], "type": ["int"]}]}])"),
      file(kRelu, R"(, "facts": [{"says": [{"wire": "x", "type": ["no"]}]}])"),
      file(kRelu, R"(, "facts": [{"says": [{"wire": "x", "type": []}]}])"),
      file(kRelu, R"(, "facts": [{"says": [{"wire": "x", "shape": [-1]}]}])"),
      file(kRelu, R"(, "facts": [{"says": [{"wire": "x", "shape":
                                            [{"variadic": "a"}, {"variadic": "b"}]}]}])"),
      file(kRelu,
           R"(, "facts": [{"says": [{"wire": "x", "shape": [1]}, {"wire": "y", "shape": [2]}]}])"),
      file(kRelu, R"(, "facts": [{"says": [{"wire": "y", "value": 1}]}])"),
      file(kRelu, R"(, "facts": [{"says": [{"wire": "x", "value": {"tensor": {"dtype": "float32",
                       "shape": [3], "data": [1.0]}}}]}])"),
      file(kRelu, R"(, "facts": [{"says": [{"wire": "x", "value": {"what": 1}}]}])"),
      file(kRelu, R"(, "facts": [{"says": [{"model": "gone", "wire": "x", "shape": [1]}]}])"),
      file(kRelu, R"(, "history": {"order": []})"),
      file(kRelu, R"(, "history": {"order": ["ops", 0, 2]})"),
      file(kRelu, R"(, "history": {"order": ["ops", 0, 1], "models": [], "ops": [], "facts": [],
                                   "files": []})"),
      file(kRelu, R"(, "history": {"order": ["ops", 0, 1, "ops", 0, 1], "models": [0, 1, 0, 1],
                                   "ops": [0, 1], "facts": [], "files": ["a"]})"),
  };
  for (const std::string& text : texts) {
    const core::Error error = error_of(text);
    EXPECT_NE(error.kind, core::ErrorKind::kInternal) << text << "\n" << error.message;
  }
}

TEST(Serialize, CutAnywhereIsATypedError) {
  const std::string text = to_json(network());
  for (size_t size = 0; size + 1 < text.size(); size += 3) {
    EXPECT_EQ(error_of(std::string_view(text).substr(0, size)).kind, core::ErrorKind::kParse);
  }
}

}  // namespace
}  // namespace mithril::model
