#include "select/printed_loop.h"

#include <algorithm>

#include "tile/expand.h"
#include "tile/sections.h"

namespace mithril::select {
namespace {

class PrintedLoop final : public LoopKernel {
 public:
  explicit PrintedLoop(const tile::Program& program)
      : program_(program), section_(tile::sections_of(program)) {}

  // Each section loads again what it reads of lanes, so an output may be written in the last
  // section that reads the input, or later. In a section loads come before stores, element by
  // element.
  bool can_alias(uint32_t input, uint32_t output) const override {
    if (input_level(program_, input) != output_level(program_, output)) return false;
    int32_t stored = 0, read = 0;
    std::vector<bool> reads(program_.code.size(), false);
    for (size_t at = 0; at < program_.code.size(); ++at) {
      const tile::Instruction& i = program_.code[at];
      if (i.opcode == tile::Opcode::kStore && i.index == output) stored = section_[at];
      reads[at] = i.opcode == tile::Opcode::kLoad && i.index == input;
      for (const tile::RegId r : i.operands) {
        if (r != tile::kNoReg && reads[r] && program_.code[r].level == tile::Level::kLane) {
          reads[at] = true;
        }
      }
      if (reads[at]) read = std::max(read, section_[at]);
    }
    return stored >= read;
  }

  plan::Step bind(const LoopDomain& domain, std::string&) const override {
    const auto copied = [](const auto& span) { return std::vector(span.begin(), span.end()); };
    plan::Step step;
    step.call = std::make_shared<const plan::Call>(
        plan::LoopCall{program_, copied(domain.kept), copied(domain.reduced),
                       copied(domain.kept_strides), copied(domain.reduced_strides)});
    return step;
  }

 private:
  tile::Program program_;
  std::vector<int32_t> section_;
};

}  // namespace

core::Result<std::unique_ptr<const LoopKernel>> printed_loop(const tile::Program& program) {
  MITHRIL_RETURN_IF_ERROR(tile::verify(program));
  return std::unique_ptr<const LoopKernel>(new PrintedLoop(program));
}

}  // namespace mithril::select
