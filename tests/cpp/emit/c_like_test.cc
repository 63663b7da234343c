// Covers: emit/c_like_text.cc tile/sections.cc tile/reduction.cc
// Printed kernels, compiled by the system's compiler and run.
#include "emit/c_like.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backends/cpu/random_program.h"
#include "backends/cpu/run_program.h"
#include "emit/cuda.h"
#include "emit/opencl.h"
#include "tile/builder.h"
#include "tile/evaluate.h"

namespace mithril::emit {
namespace {

using core::DType;
using cpu::testing::Bytes;
using tile::Builder;
using tile::Level;

using Function = void (*)(int64_t begin, int64_t end, const int64_t* shape, const double* scalars,
                          void* const* buffers);

/// A source, compiled and loaded.
class Library {
 public:
  explicit Library(const std::string& source) {
    char pattern[] = "/tmp/mithril_c_like_XXXXXX";
    folder_ = mkdtemp(pattern);
    std::ofstream(folder_ / "kernels.c") << source;
    const std::string command = fmt::format(
        "cc -std=c99 -O1 -Werror=implicit-function-declaration -ffp-contract=off -shared -fPIC "
        "-o {0}/kernels.so {0}/kernels.c -lm 2>{0}/errors",
        folder_.string());
    if (std::system(command.c_str()) != 0) {
      std::ifstream errors(folder_ / "errors");
      ADD_FAILURE() << std::string(std::istreambuf_iterator<char>(errors), {});
      return;
    }
    handle_ = dlopen((folder_ / "kernels.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  ~Library() {
    if (handle_ != nullptr) dlclose(handle_);
    std::filesystem::remove_all(folder_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  Function find(const std::string& name) const {
    return handle_ == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(handle_, name.c_str()));
  }

 private:
  std::filesystem::path folder_;
  void* handle_ = nullptr;
};

const std::vector<double> kScalars{1.25};

struct Case {
  tile::Program program;
  int64_t kept = 1, reduced = 1;
  std::vector<Bytes> inputs;
};

// Sizes of one kept and one reduced dim, then the strides of dense operands.
std::vector<int64_t> dense_shape(const Case& of) {
  const tile::Program& program = of.program;
  const bool reducing = is_reducing(program);
  std::vector<int64_t> out{of.kept};
  if (reducing) out.push_back(of.reduced);
  const auto add = [&](Level level) {
    out.push_back(reducing && level != Level::kRow ? of.reduced : 1);
    if (reducing) out.push_back(level == Level::kRow ? 0 : 1);
  };
  for (uint32_t k = 0; k < program.inputs.size(); ++k) add(input_level(program, k));
  for (uint32_t k = 0; k < program.outputs.size(); ++k) add(output_level(program, k));
  return out;
}

int64_t elements(const Case& of, Level level) {
  if (level == Level::kUniform) return 1;
  return level == Level::kRow ? of.kept : of.kept * of.reduced;
}

std::vector<Bytes> empty_outputs(const Case& of) {
  std::vector<Bytes> out;
  for (uint32_t k = 0; k < of.program.outputs.size(); ++k) {
    const auto count = static_cast<size_t>(elements(of, output_level(of.program, k)));
    out.emplace_back(count * core::size_of(of.program.outputs[k]));
  }
  return out;
}

void expect_equal(const Case& of, const std::vector<Bytes>& got, const std::string& where) {
  const auto wanted = tile::evaluate(of.program, of.kept, of.reduced, of.inputs, kScalars);
  for (size_t k = 0; k < wanted.size(); ++k) {
    const int64_t at = cpu::testing::first_difference(of.program.outputs[k], got[k], wanted[k]);
    ASSERT_EQ(at, -1) << where << ", output " << k << "\n" << print(of.program);
  }
}

std::vector<Bytes> run(const Case& of, Function function) {
  std::vector<Bytes> outputs = empty_outputs(of);
  std::vector<void*> buffers;
  std::vector<Bytes> inputs = of.inputs;
  for (Bytes& bytes : inputs) buffers.push_back(bytes.data());
  for (Bytes& bytes : outputs) buffers.push_back(bytes.data());
  const auto shape = dense_shape(of);
  // In two parts: a part is what a thread gets.
  function(of.kept / 2, of.kept, shape.data(), kScalars.data(), buffers.data());
  function(0, of.kept / 2, shape.data(), kScalars.data(), buffers.data());
  return outputs;
}

Case random_case(std::mt19937& rng, bool reducing) {
  Case out;
  do {
    cpu::testing::RandomShape shape;
    shape.reducing = reducing;
    shape.order = rng() % 2 == 0 ? tile::Order::kLanes : tile::Order::kRows;
    shape.instructions = 4 + static_cast<int>(rng() % 28);
    shape.everything = true;
    out.program = cpu::testing::random_program(rng, shape);
  } while (!print_c_like(std::vector{CLikeKernel{"k", out.program}}, Dialect::kC99).ok());
  constexpr int64_t kSizes[] = {0, 1, 2, 15, 16, 17, 63, 64, 65, 130, 600, 4500, 9000};
  const bool reduces = is_reducing(out.program);
  out.kept = 1 + static_cast<int64_t>(rng() % (reduces ? 4 : 60));
  out.reduced = reduces ? kSizes[rng() % std::size(kSizes)] : 1;
  for (uint32_t k = 0; k < out.program.inputs.size(); ++k) {
    const auto count = static_cast<size_t>(elements(out, input_level(out.program, k)));
    out.inputs.push_back(cpu::testing::random_elements(rng, out.program.inputs[k], count));
  }
  return out;
}

CLikeKernel kernel_of(const Case& of, std::string name) {
  return {std::move(name), of.program, 1, is_reducing(of.program) ? size_t{1} : 0};
}

std::vector<Case> random_cases(uint32_t seed, int count) {
  std::mt19937 rng(seed);
  std::vector<Case> out;
  for (int k = 0; k < count; ++k) out.push_back(random_case(rng, k % 2 == 1));
  return out;
}

std::string source_of(const std::vector<Case>& cases, Dialect dialect) {
  std::vector<CLikeKernel> kernels;
  for (const Case& of : cases) kernels.push_back(kernel_of(of, fmt::format("k{}", kernels.size())));
  return print_c_like(kernels, dialect).or_throw();
}

TEST(CLike, Text) {
  Builder t;
  const tile::Reg x = t.load(DType::kFloat32);
  t.store(t.reduce(tile::Opcode::kReduceSum, x * 2.0));
  const CLikeKernel kernel{"doubled_sum", t.finish(), 1, 1};
  const std::string c99 = print_c_like(std::vector{kernel}, Dialect::kC99).or_throw();
  EXPECT_EQ(c99.substr(c99.find("M_REDUCTION(m_")),
            R"(M_REDUCTION(m_reduce_sum_f32, m_f32, m_add_f32, 1)

void doubled_sum(m_i64 begin, m_i64 end, const m_i64* shape, const double* scalars, void* const* buffers) {
  const m_f32* b0 = buffers[0];
  m_f32* b1 = buffers[1];
  const m_i64 count = 1 * shape[1];
  (void)shape, (void)scalars, (void)count;
  const m_f32 v1 = m_of_bits_f32((m_w32)M_U64(0x40000000));
  for (m_i64 k = begin; k < end; ++k) {
    m_i64 o0 = 0, o1 = 0;
    {
      m_i64 rest = k, i;
      i = rest;
      o0 += i * shape[2];
      o1 += i * shape[4];
    }
    m_reduce_sum_f32_state s3;
    m_reduce_sum_f32_begin(&s3);
    {
      for (m_i64 r = 0; r < count; ++r) {
        m_i64 p0 = 0;
        {
          m_i64 rest = r, i;
          i = rest;
          p0 += i * shape[3];
        }
        const m_f32 v0 = b0[o0 + p0];
        const m_f32 v2 = m_mul_f32(v0, v1);
        m_reduce_sum_f32_take(&s3, v2, 16, 4096);
      }
    }
    const m_f32 v3 = m_reduce_sum_f32_end(&s3, 16, 0);
    b1[o1] = v3;
  }
}
)");
  const std::string opencl = print_c_like(std::vector{kernel}, Dialect::kOpenCl).or_throw();
  EXPECT_NE(opencl.find("__kernel void doubled_sum(const m_i64 begin, const m_i64 end, __global "
                        "const m_i64* shape, __global const double* scalars, __global const m_f32* "
                        "b0, __global m_f32* b1) {\n"),
            std::string::npos);
  EXPECT_NE(opencl.find("const m_i64 k = begin + (m_i64)get_global_id(0);"), std::string::npos);
  const std::string cuda = print_c_like(std::vector{kernel}, Dialect::kCuda).or_throw();
  EXPECT_NE(
      cuda.find("extern \"C\" __global__ void doubled_sum(const m_i64 begin, const m_i64 end, "
                "const m_i64* shape, const double* scalars, const m_f32* b0, m_f32* b1) {\n"),
      std::string::npos);
}

TEST(CLike, PowersOfDoubles) {
  Builder t;
  const tile::Reg x = t.load(DType::kFloat64), y = t.load(DType::kFloat64);
  t.store(t.emit(tile::Opcode::kPow, {x, y}));
  Case of{t.finish(), 1, 1, {}};
  const std::vector<double> bases{2,        -2,        0.5, 1e-310, 0,    -0.0,
                                  INFINITY, -INFINITY, NAN, 3.7,    1e300};
  const std::vector<double> exponents{0.3, 3, -2, 0, INFINITY, -INFINITY, NAN, 0.5, 1000, -1000};
  of.inputs.resize(2);
  for (const double base : bases) {
    for (const double exponent : exponents) {
      const double numbers[] = {base, exponent};
      for (size_t k = 0; k < 2; ++k) {
        const auto* const bytes = reinterpret_cast<const std::byte*>(numbers + k);
        of.inputs[k].insert(of.inputs[k].end(), bytes, bytes + sizeof(double));
      }
    }
  }
  of.kept = static_cast<int64_t>(bases.size() * exponents.size());
  const auto text = print_c_like(std::vector{CLikeKernel{"power", of.program}}, Dialect::kC99);
  ASSERT_TRUE(text.ok());
  const Library library(*text);
  expect_equal(of, run(of, library.find("power")), "power");
}

// A counter of 32 bits is the low word of the block, whatever its sign.
TEST(CLike, CountersOfThreefry) {
  Builder t;
  const tile::Reg key = t.load(DType::kInt32), counter = t.load(DType::kInt32);
  t.store(t.threefry(key, key, counter, 0));
  t.store(t.threefry(key, key, counter, 1));
  Case of{t.finish(), 100, 1, {}};
  std::mt19937 rng(7);
  for (int k = 0; k < 2; ++k) {
    of.inputs.push_back(cpu::testing::random_elements(rng, DType::kInt32, 100));
  }
  const Library library(
      print_c_like(std::vector{CLikeKernel{"words", of.program}}, Dialect::kC99).or_throw());
  expect_equal(of, run(of, library.find("words")), "words");
}

// A matrix read by columns, beside a row that is the same for all, of three kept dims.
TEST(CLike, Strides) {
  Builder t;
  const tile::Reg x = t.load(DType::kInt32), y = t.load(DType::kInt32);
  t.store(x * t.constant_int(DType::kInt32, 100) + y);
  t.store(t.position());
  const Library library(
      print_c_like(std::vector{CLikeKernel{"k", t.finish(), 3, 0}}, Dialect::kC99).or_throw());
  const Function function = library.find("k");
  ASSERT_NE(function, nullptr);
  std::vector<int32_t> a{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, b{50, 60}, sums(12);
  std::vector<int64_t> positions(12);
  // Sizes 2 x 3 x 2; a lies as [2, 2, 3] and is turned around in its last dims, b has the last one.
  const std::vector<int64_t> shape{2, 3, 2, 6, 1, 3, 0, 0, 1, 6, 2, 1, 6, 2, 1};
  void* buffers[] = {a.data(), b.data(), sums.data(), positions.data()};
  function(0, 12, shape.data(), nullptr, buffers);
  std::vector<int32_t> wanted;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 2; ++k) {
        wanted.push_back(100 * (6 * i + 3 * k + j) + b[static_cast<size_t>(k)]);
      }
    }
  }
  EXPECT_EQ(sums, wanted);
  EXPECT_EQ(positions, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
}

// Tests of one process share the device, whose compiler takes a second to start.
testing::OpenCl* device(std::string& why) {
  static std::string reason;
  static const std::unique_ptr<testing::OpenCl> opened = testing::OpenCl::open(reason);
  why = reason;
  return opened.get();
}

template <class Program>
void expect_equal(const Program& program, const std::vector<Case>& cases, const char* where) {
  for (size_t k = 0; k < cases.size(); ++k) {
    Bytes shape = cpu::testing::bytes_of(dense_shape(cases[k]));
    Bytes scalars = cpu::testing::bytes_of(kScalars);
    std::vector<Bytes> inputs = cases[k].inputs, outputs = empty_outputs(cases[k]);
    std::vector<Bytes*> arrays{&shape, &scalars};
    for (Bytes& bytes : inputs) arrays.push_back(&bytes);
    for (Bytes& bytes : outputs) arrays.push_back(&bytes);
    ASSERT_TRUE(program.run(fmt::format("k{}", k), 0, cases[k].kept, arrays));
    expect_equal(cases[k], outputs, fmt::format("{} case {}", where, k));
  }
}

void expect_equal_on_device(const std::vector<Case>& cases) {
  std::string why, log;
  const testing::OpenCl* opencl = device(why);
  if (opencl == nullptr) GTEST_SKIP() << "OpenCL: " << why;
  const auto program = opencl->build(source_of(cases, Dialect::kOpenCl), log);
  ASSERT_NE(program, nullptr) << log;
  expect_equal(*program, cases, "OpenCL");
}

// A test double: CUDA C as C++ on this machine.
void expect_equal_in_cuda(const std::vector<Case>& cases) {
  std::string log;
  const testing::CudaText program(source_of(cases, Dialect::kCuda), log);
  ASSERT_EQ(log, "");
  expect_equal(program, cases, "CUDA");
}

// ---- every instruction on the edges of its types

Bytes edges(DType dtype) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  std::vector<double> values{0, 1, -1, 2, -2, 5, -7, 31, 32, 63, 64, 127, -128, 255, 256};
  if (core::is_float(dtype)) {
    // Just above the middle of two halves.
    const std::vector<double> middles{1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-8 + 0x1p-40};
    values.insert(values.end(), middles.begin(), middles.end());
    for (const double x : {-0.0,
                           0.5,
                           -0.5,
                           1.5,
                           2.5,
                           -2.5,
                           1e-7,
                           1e-40,
                           -1e-40,
                           65504.0,
                           1e10,
                           2147483648.0,
                           -2147483648.0,
                           9223372036854775808.0,
                           1e38,
                           -1e300,
                           131072.0,
                           200000.3,
                           8388608.0,
                           1e22,
                           inf,
                           -inf,
                           std::numeric_limits<double>::quiet_NaN()}) {
      values.push_back(x);
    }
  } else {
    // The smallest, the largest, just above the middle of two halves.
    values.insert(values.end(), {-inf, inf, 0x40400001p0, 0x10100000001p0});
  }
  return cpu::testing::encode(dtype, values);
}

// Operands such that the points are all combinations of edges.
Case on_edges(tile::Program program) {
  Case out{std::move(program), 1, 1, {}};
  std::vector<Bytes> each;
  for (const DType dtype : out.program.inputs) {
    each.push_back(edges(dtype));
    out.kept *= static_cast<int64_t>(each.back().size() / core::size_of(dtype));
  }
  int64_t step = out.kept;
  for (size_t k = 0; k < each.size(); ++k) {
    const size_t size = core::size_of(out.program.inputs[k]);
    const auto count = static_cast<int64_t>(each[k].size() / size);
    step /= count;
    Bytes& all = out.inputs.emplace_back();
    for (int64_t at = 0; at < out.kept; ++at) {
      const auto* from = each[k].data() + static_cast<size_t>(at / step % count) * size;
      all.insert(all.end(), from, from + size);
    }
  }
  return out;
}

constexpr DType kTypes[] = {DType::kBool,    DType::kUInt8,  DType::kInt8,    DType::kInt16,
                            DType::kInt32,   DType::kInt64,  DType::kFloat16, DType::kBFloat16,
                            DType::kFloat32, DType::kFloat64};

void add_if_printed(std::vector<Case>& cases, Builder& t, tile::Reg result) {
  t.store(result);
  tile::Program program = t.finish();
  if (print_c_like(std::vector{CLikeKernel{"k", program}}, Dialect::kC99).ok()) {
    cases.push_back(on_edges(std::move(program)));
  }
}

std::vector<Case> every_instruction() {
  std::vector<Case> out;
  for (int k = 0; k < tile::kOpcodeCount; ++k) {
    const auto opcode = static_cast<tile::Opcode>(k);
    const tile::OpcodeInfo& op = tile::info(opcode);
    const bool plain = op.rule == tile::Rule::kSame || op.rule == tile::Rule::kCompare;
    const bool lane = op.family == tile::Family::kPointwise || op.family == tile::Family::kMacro;
    for (const DType dtype : kTypes) {
      if (!lane || !plain || !tile::accepts(op.domain, dtype)) continue;
      Builder t;
      std::vector<tile::Reg> operands;
      for (int n = 0; n < op.arity; ++n) operands.push_back(t.load(dtype));
      add_if_printed(out, t, t.emit(opcode, operands));
    }
  }
  for (const auto table : {tile::Table::kGelu, tile::Table::kGeluTanh}) {
    Builder t;
    add_if_printed(out, t, t.lookup(t.load(DType::kInt32), table));
  }
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      Builder t;
      add_if_printed(out, t, t.cast(t.load(from), to));
      Builder u;
      const tile::Reg bits = u.load(from);
      // Which NaN a float is, is not defined.
      if (!core::is_float(from) && core::size_of(from) == core::size_of(to)) {
        add_if_printed(out, u, u.bitcast(bits, to));
      }
    }
  }
  return out;
}

TEST(CLike, EveryInstructionOnEdgesInC99) {
  const std::vector<Case> cases = every_instruction();
  EXPECT_GT(cases.size(), 350u);
  const Library library(source_of(cases, Dialect::kC99));
  for (size_t k = 0; k < cases.size(); ++k) {
    const Function function = library.find(fmt::format("k{}", k));
    ASSERT_NE(function, nullptr);
    expect_equal(cases[k], run(cases[k], function), "C99");
  }
}

TEST(CLike, EveryInstructionOnEdgesInCuda) { expect_equal_in_cuda(every_instruction()); }

TEST(CLike, EveryInstructionOnEdgesInOpenCl) { expect_equal_on_device(every_instruction()); }

std::vector<Case> sums_of_blocks() {
  std::vector<Case> out;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const int64_t n : cpu::testing::kHardSizes) {
      Builder t;
      const tile::Reg x = t.load(dtype);
      t.store(reduce_sum(x, tile::Order::kRows));
      t.store(reduce_sum(x, tile::Order::kLanes));
      out.push_back({t.finish(),
                     cpu::testing::kHardSums,
                     n,
                     {cpu::testing::encode(dtype, cpu::testing::hard_sums(n))}});
    }
  }
  return out;
}

TEST(CLike, SumsOfBlocksKeepTheirRests) {
  const std::vector<Case> cases = sums_of_blocks();
  const Library library(source_of(cases, Dialect::kC99));
  for (size_t k = 0; k < cases.size(); ++k) {
    expect_equal(cases[k], run(cases[k], library.find(fmt::format("k{}", k))), "C99");
  }
}

TEST(CLike, SumsOfBlocksKeepTheirRestsInCuda) { expect_equal_in_cuda(sums_of_blocks()); }

TEST(CLike, SumsOfBlocksKeepTheirRestsInOpenCl) { expect_equal_on_device(sums_of_blocks()); }

// Compilers fold what they know; fmod of two NaNs was 0 in one.
TEST(CLike, ConstantNansStayNans) {
  for (const auto opcode : {tile::Opcode::kFloorDiv, tile::Opcode::kMod}) {
    Builder t;
    const tile::Reg x = t.load(DType::kFloat32), zero = t.constant(DType::kFloat32, 0);
    const tile::Reg same = t.select(t.cast(x, DType::kBool), zero, zero);
    const tile::Reg nan = t.div(same, same);
    t.store(t.emit(opcode, {nan, nan}));
    std::vector<Case> cases;
    cases.push_back(on_edges(t.finish()));
    expect_equal_on_device(cases);
    const Library library(source_of(cases, Dialect::kC99));
    expect_equal(cases[0], run(cases[0], library.find("k0")), "C99");
  }
}

// ---- random programs

class RandomPrograms : public ::testing::TestWithParam<uint32_t> {};

TEST_P(RandomPrograms, InC99EqualTheEvaluator) {
  const std::vector<Case> cases = random_cases(GetParam(), 100);
  const Library library(source_of(cases, Dialect::kC99));
  for (size_t k = 0; k < cases.size(); ++k) {
    const Function function = library.find(fmt::format("k{}", k));
    ASSERT_NE(function, nullptr);
    expect_equal(cases[k], run(cases[k], function), fmt::format("seed {} case {}", GetParam(), k));
  }
}
INSTANTIATE_TEST_SUITE_P(CLike, RandomPrograms, ::testing::Range(0u, 10u));

class RandomCuda : public ::testing::TestWithParam<uint32_t> {};

TEST_P(RandomCuda, EqualsTheEvaluator) {
  SCOPED_TRACE(GetParam());
  expect_equal_in_cuda(random_cases(GetParam(), 100));
}
INSTANTIATE_TEST_SUITE_P(CLike, RandomCuda, ::testing::Range(200u, 203u));

class RandomOpenCl : public ::testing::TestWithParam<uint32_t> {};

TEST_P(RandomOpenCl, EqualsTheEvaluator) {
  SCOPED_TRACE(GetParam());
  expect_equal_on_device(random_cases(GetParam(), 40));
}
INSTANTIATE_TEST_SUITE_P(CLike, RandomOpenCl, ::testing::Range(100u, 103u));

}  // namespace
}  // namespace mithril::emit
