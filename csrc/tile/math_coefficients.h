// Constants of tile/math.h: formats, minimax coefficients, and where each function reaches its
// limit. The polynomials are our own minimax fits (Remez exchange, coefficients rounded one by
// one); each says what it approximates, where, and how well.
#pragma once
#include <cstdint>

namespace mithril::tile::math {

// What differs between binary32 and binary64.
template <class T>
struct Format;
template <>
struct Format<float> {
  using Bits = uint32_t;
  static constexpr int mantissa = 23, bias = 127;
  static constexpr float magic = 0x1.8p23f, min_normal = 0x1p-126f, infinity = __builtin_inff(),
                         nan = __builtin_nanf("");
  static constexpr Bits sign = 0x80000000u, mantissa_mask = 0x007fffffu, one = 0x3f800000u,
                        two_thirds = 0x3f2aaaabu;
};
template <>
struct Format<double> {
  using Bits = uint64_t;
  static constexpr int mantissa = 52, bias = 1023;
  static constexpr double magic = 0x1.8p52, min_normal = 0x1p-1022, infinity = __builtin_inf(),
                          nan = __builtin_nan("");
  static constexpr Bits sign = 0x8000000000000000u, mantissa_mask = 0x000fffffffffffffu,
                        one = 0x3ff0000000000000u, two_thirds = 0x3fe5555555555555u;
};

template <class T>
struct Coefficients;
template <>
struct Coefficients<float> {
  static constexpr float log2e = 0x1.715476p+0f;
  static constexpr float ln2_hi = 0x1.62e43p-1f;
  static constexpr float ln2_lo = -0x1.05c61p-29f;
  static constexpr float ln2_short = 0x1.62e4p-1f;
  static constexpr float ln2_rest = 0x1.7f7d1cp-20f;
  static constexpr float log2e_hi = 0x1.715476p+0f;
  static constexpr float log2e_lo = 0x1.4ae0cp-26f;
  static constexpr float two_over_pi = 0x1.45f306p-1f;
  static constexpr float half_pi_1 = 0x1.921fb4p+0f;
  static constexpr float half_pi_2 = 0x1.4442dp-24f;
  static constexpr float half_pi_3 = 0x1.84698ap-48f;
  static constexpr float gelu_c1 = 0x1.988454p+0f;
  static constexpr float gelu_c1_lo = -0x1.857936p-25f;
  static constexpr float gelu_c2 = 0x1.2444f2p-4f;
  static constexpr float gelu_c2_lo = 0x1.49b16ap-29f;
  // (e^r - 1 - r) / r^2, |r| <= 0.3475, error relative to e^r; degree 5, minimax error 2^-31.2
  static constexpr float exp_q[] = {
      0x1p-1f, 0x1.55553cp-3f, 0x1.5554f2p-5f, 0x1.113708p-7f, 0x1.6d4178p-10f, 0x1.6be734p-13f,
  };
  // (log1p(f) - f + f^2/2) / f^3, |f| <= 1/3, error relative to log1p(f); degree 8, minimax error
  // 2^-30.0
  static constexpr float log_p[] = {
      0x1.555556p-2f, -0x1.ffff02p-3f, 0x1.99985ep-3f,  -0x1.559bbcp-3f, 0x1.24d78cp-3f,
      -0x1.f3361p-4f, 0x1.bb4ecap-4f,  -0x1.07d556p-3f, 0x1.e02c76p-4f,
  };
  // erf(x)/x - 1 + 5/16 x^2 in x^2, |x| <= 1, relative error; degree 7, minimax error 2^-30.1
  static constexpr float erf_small[] = {
      0x1.06eba8p-3f, -0x1.049d02p-4f,  0x1.ce2d9cp-4f,  -0x1.b80872p-6f,
      0x1.54b578p-8f, -0x1.ac082ep-11f, 0x1.788108p-14f, -0x1.b09bdp-19f,
  };
  // (sin(r)/r - 1) / r^2 in r^2, |r| <= 0.81; degree 3, minimax error 2^-32.4
  static constexpr float sin_s[] = {
      -0x1.555556p-3f,
      0x1.11116ep-7f,
      -0x1.a0513p-13f,
      0x1.79ae1cp-19f,
  };
  // (cos(r) - 1 + r^2/2) / r^4 in r^2, |r| <= 0.81; degree 2, minimax error 2^-32.5
  static constexpr float cos_c[] = {
      0x1.555548p-5f,
      -0x1.6c0aecp-10f,
      0x1.998d66p-16f,
  };
  // 1 - erf(2.25 + v), v in [-1.25, 1.68], error relative to erf; degree 15, minimax error 2^-30.6
  static constexpr float erf_large[] = {
      0x1.7f713ap-10f,  -0x1.d41452p-8f, 0x1.074b78p-6f,  -0x1.63eeeap-6f,
      0x1.38a87p-6f,    -0x1.5d4066p-7f, 0x1.7cd83p-9f,   0x1.604d28p-11f,
      -0x1.06d2fep-10f, 0x1.81a736p-12f, 0x1.06a53cp-16f, -0x1.0f70f8p-14f,
      0x1.4832c2p-16f,  0x1.fde3c4p-20f, -0x1.2b6b6p-19f, 0x1.83e1bp-22f,
  };
  // (a + 2) e^.. gelu tail = 0.6875 + -0.3125 u + R(u), u = (a - 2) / (a + 2), a in [0, 15]; degree
  // 12, relative error 2^-28.9
  static constexpr float gelu_h[] = {
      -0x1.ee88d6p-7f,  -0x1.35bbp-6f,    0x1.d7d126p-6f,   0x1.2ccc44p-5f,  -0x1.ed7de4p-12f,
      -0x1.b8ce52p-8f,  -0x1.fdedd6p-10f, 0x1.9f73aap-11f,  0x1.aaccb2p-11f, 0x1.81832ep-13f,
      -0x1.d23998p-14f, -0x1.91cbb4p-14f, -0x1.9522d8p-16f,
  };
  // (a + 2) e^.. erfc tail = 1.0 + -0.75 u + R(u), u = (a - 2) / (a + 2), a in [0, 10.3]; degree
  // 12, relative error 2^-29.1
  static constexpr float erfc_h[] = {
      0x1.619c6ep-6f,  0x1.0163d2p-4f,  0x1.1e2deap-2f,   -0x1.2a8a1cp-5f,  -0x1.6069cap-6f,
      0x1.a8ebfcp-8f,  0x1.94568p-9f,   -0x1.bfa38cp-11f, -0x1.543b0cp-11f, 0x1.118eb2p-14f,
      0x1.0c57c6p-13f, 0x1.93d814p-19f, -0x1.de3a32p-17f,
  };
};
template <>
struct Coefficients<double> {
  static constexpr double log2e = 0x1.71547652b82fep+0;
  static constexpr double ln2_hi = 0x1.62e42fefa39efp-1;
  static constexpr double ln2_lo = 0x1.abc9e3b39803fp-56;
  static constexpr double ln2_short = 0x1.62e42fefa3p-1;
  static constexpr double ln2_rest = 0x1.3de6af278ece6p-42;
  static constexpr double log2e_hi = 0x1.71547652b82fep+0;
  static constexpr double log2e_lo = 0x1.777d0ffda0d24p-56;
  static constexpr double two_over_pi = 0x1.45f306dc9c883p-1;
  static constexpr double half_pi_1 = 0x1.921fb54442d18p+0;
  static constexpr double half_pi_2 = 0x1.1a62633145c06p-54;
  static constexpr double half_pi_3 = 0x1.c1cd129024e09p-107;
  static constexpr double gelu_c1 = 0x1.9884533d43651p+0;
  static constexpr double gelu_c1_lo = -0x1.cbc0d30ebfd15p-54;
  static constexpr double gelu_c2 = 0x1.2444f2a4d8b4bp-4;
  static constexpr double gelu_c2_lo = -0x1.6c843a29d1c7p-61;
  // (e^r - 1 - r) / r^2, |r| <= 0.3475, error relative to e^r; degree 11, minimax error 2^-67.1
  static constexpr double exp_q[] = {
      0x1p-1,
      0x1.5555555555556p-3,
      0x1.5555555555558p-5,
      0x1.1111111110d5ep-7,
      0x1.6c16c16c14e67p-10,
      0x1.a01a01a1e260ap-13,
      0x1.a01a01ae7860cp-16,
      0x1.71de341e50bfep-19,
      0x1.27e4c910aa639p-22,
      0x1.ae78652a335dep-26,
      0x1.1f91bbc6b49cp-29,
      0x1.48ff997cfcf96p-33,
  };
  // (log1p(f) - f + f^2/2) / f^3, |f| <= 1/3, error relative to log1p(f); degree 19, minimax error
  // 2^-57.6
  static constexpr double log_p[] = {
      0x1.5555555555538p-2, -0x1.fffffffffff33p-3, 0x1.99999999a00cep-3, -0x1.555555556542cp-3,
      0x1.24924920b7027p-3, -0x1.fffffff0dbb6dp-4, 0x1.c71c740a6918ep-4, -0x1.99999d5d0d13p-4,
      0x1.745cb63b75749p-4, -0x1.5554c753b46cep-4, 0x1.3b1dafcbf2bbp-4,  -0x1.249f7c4dc4853p-4,
      0x1.1069d9b16edap-4,  -0x1.fe69eb774457dp-5, 0x1.efb98989bd26ep-5, -0x1.d6c86eb5359a4p-5,
      0x1.562eb5cb70c2ep-5, -0x1.3aa9ab6a0ff8ep-5, 0x1.5c0c5bace888cp-4, -0x1.5526a5867ae86p-4,
  };
  // erf(x)/x - 1 in x^2, |x| <= 1, relative error; degree 13, minimax error 2^-56.3
  static constexpr double erf_small[] = {
      0x1.06eba8214db69p-3,  -0x1.812746b037a31p-2,  0x1.ce2f21a046ba4p-4,  -0x1.b82ce313e1aa4p-6,
      0x1.565bcd4b225ecp-8,  -0x1.c02dc0bdb7c49p-11, 0x1.f9a4debd99efp-14,  -0x1.f4fa20ee5648bp-17,
      0x1.bc5d546c6e128p-20, -0x1.7a46c9267e32bp-23, 0x1.c3a575e95172ep-26, -0x1.1439f41bd6c0ep-27,
      0x1.5028573fc0fddp-29, -0x1.916f80f7eecb3p-32,
  };
  // (sin(r)/r - 1) / r^2 in r^2, |r| <= 0.81; degree 6, minimax error 2^-63.1
  static constexpr double sin_s[] = {
      -0x1.5555555555555p-3,  0x1.1111111111072p-7,  -0x1.a01a01a0012c8p-13, 0x1.71de3a389f121p-19,
      -0x1.ae64341e5ad23p-26, 0x1.610f6276f318fp-33, -0x1.a30f5cc02e64p-41,
  };
  // (cos(r) - 1 + r^2/2) / r^4 in r^2, |r| <= 0.81; degree 5, minimax error 2^-63.2
  static constexpr double cos_c[] = {
      0x1.5555555555546p-5,   -0x1.6c16c16c14555p-10, 0x1.a01a019b8491ap-16,
      -0x1.27e4f73296125p-22, 0x1.1ee95b264e4cdp-29,  -0x1.8f6489210183p-37,
  };
  // (a + 4) e^.. gelu tail = 0.75 + -0.75 u + R(u), u = (a - 4) / (a + 4), a in [0, 39]; degree 25,
  // relative error 2^-60.4
  static constexpr double gelu_h[] = {
      0x1.5a5dc64a6e6e6p-8,  0x1.230715db0f5d7p-3,   0x1.8c6dbf2cfc2b1p-2,   -0x1.7dff2bff68351p-3,
      0x1.eec4cc3e4d87p-5,   -0x1.ee27610494c81p-8,  -0x1.c81719d5d5a8ep-9,  0x1.ab825fc6cfce7p-10,
      0x1.17a4aea0b7cep-13,  -0x1.e4a4272729e59p-13, -0x1.001f2c73023cfp-19, 0x1.26d0c0a5f1b8cp-15,
      0x1.80c35767d1de4p-21, -0x1.8d4f844542459p-18, -0x1.52213c739328p-21,  0x1.125ef4c5050d6p-20,
      0x1.245844e05c80bp-22, -0x1.4eb2bced771a1p-23, -0x1.7312a8e713de9p-24, 0x1.e40d83eb9a883p-27,
      0x1.662ab7cebb1eep-26, 0x1.c11ab025cee1ap-30,  -0x1.cd303ff163113p-29, -0x1.c71ab7f811b61p-31,
      0x1.072c0e5c53764p-32, 0x1.7539d0724ee96p-34,
  };
  // (a + 4) e^.. erfc tail = 1.125 + -1.125 u + R(u), u = (a - 4) / (a + 4), a in [0, 27.5]; degree
  // 23, relative error 2^-56.0
  static constexpr double erfc_h[] = {
      -0x1.db3503dc7aafp-6,   0x1.3007384d2d905p-3,   0x1.8be202d26c70cp-1,   -0x1.14eacb1ad0372p-1,
      0x1.52cac2370fe15p-2,   -0x1.645fd8a4baa5p-3,   0x1.38dbd2c8f8afcp-4,   -0x1.b00c052c9885fp-6,
      0x1.908f47101cddcp-8,   -0x1.269b520d53241p-12, -0x1.dd283aea319c3p-12, 0x1.72cdaf13bb103p-13,
      -0x1.e802c646cbd79p-19, -0x1.3c70808f4ffd1p-16, 0x1.3b31f4bb961bdp-18,  0x1.7eab093ff4399p-20,
      -0x1.c8ad5623e703cp-21, -0x1.5033553c115a3p-24, 0x1.159a3522cfe38p-23,  0x1.16d80185eda0ep-28,
      -0x1.4301bd77b6c97p-26, -0x1.f7ea55df25587p-30, 0x1.0a68e25179ad1p-29,  0x1.12098342819fp-31,
  };
};

struct PowCoefficients {
  // (log1p(f) - f + f^2/2) / f^3, |f| <= 1/3; degree 12, minimax relative error 2^-40.8
  static constexpr double log_p[] = {
      0x1.55555555d1fcbp-2, -0x1.ffffffa0e16c1p-3, 0x1.9999987e232fap-3, -0x1.55558927ab571p-3,
      0x1.2492a91b2532ep-3, -0x1.ffebdda0a5724p-4, 0x1.c6ff32a6aeb07p-4, -0x1.9b7554e6cb2d1p-4,
      0x1.76ac7948f435p-4,  -0x1.3ee7076b0c456p-4, 0x1.22235f3994f5fp-4, -0x1.a71de144296b1p-4,
      0x1.9621698777cd8p-4,
  };
  // 2^g, |g| <= 1/2; degree 8, minimax relative error 2^-40.2
  static constexpr double exp2_p[] = {
      0x1.ffffffffff7a2p-1,  0x1.62e42fef86169p-1,  0x1.ebfbdff931af4p-3,
      0x1.c6b08dd46c0dfp-5,  0x1.3b2ab5c519e06p-7,  0x1.5d874838f585fp-10,
      0x1.430accb3e5ca1p-13, 0x1.00dad24242b2dp-16, 0x1.61afc4e6ba1ddp-20,
  };
};

// Where each function has reached its limit, by format.
template <class T>
struct Limits;
template <>
struct Limits<float> {
  static constexpr float exp_lo = -104, exp_hi = 89, exp2_lo = -151, exp2_hi = 129, expm1_lo = -18,
                         tanh_hi = 9.5f, silu_lo = -110, gelu_hi = 15, gelu_tanh_hi = 11,
                         erf_hi = 3.95f, erfc_hi = 10.2f, trig_hi = 131072;
  // tails: c, b0, b1 of tail_factor, and its slope H'(u) as s0 + s1 u
  static constexpr float gelu_tail[] = {2, 0.6875f, -0.3125f, -0.3125f, 0},
                         erfc_tail[] = {2, 1, -0.75f, -0.75f, 0.5f};
};
template <>
struct Limits<double> {
  static constexpr double exp_lo = -746, exp_hi = 710, exp2_lo = -1076, exp2_hi = 1025,
                          expm1_lo = -40, tanh_hi = 20, silu_lo = -760, gelu_hi = 39,
                          gelu_tanh_hi = 22, erf_hi = 5.95, erfc_hi = 27.3, trig_hi = 8388608;
  static constexpr double gelu_tail[] = {4, 0.75, -0.75, -1.0, 1.1},
                          erfc_tail[] = {4, 1.125, -1.125, -2.5, 4.5};
};

}  // namespace mithril::tile::math
