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
  // (a + 2) e^.. erfc tail = 1.125 + -0.75 u + R(u), u = (a - 2) / (a + 2), a in [0, 10.3]; degree
  // 13, relative error 2^-29.2
  static constexpr float erfc_h[] = {
      -0x1.a798e4p-4f,  0x1.0163c8p-4f,   0x1.1e2ddap-2f,   -0x1.2a8764p-5f,  -0x1.605402p-6f,
      0x1.a81d7ap-8f,   0x1.8ebefp-9f,    -0x1.a8bee6p-11f, -0x1.fe5648p-12f, 0x1.66459ap-16f,
      -0x1.54198ap-13f, -0x1.d261aep-15f, 0x1.80dc2ap-13f,  0x1.abf8dcp-14f};
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
  // (a + 2) e^.. gelu tail = 0.6875 + -0.3125 u + R(u), u = (a - 2) / (a + 2), a in [0, 39]; degree
  // 31, relative error 2^-59.0
  static constexpr double gelu_h[] = {
      -0x1.ee88d4b56ac63p-7,  -0x1.35bafa73c584fp-6,  0x1.d7d0e2393eb3cp-6,
      0x1.2ccbfbf0c68d1p-5,   -0x1.ec6870b98164ap-12, -0x1.b8b937f80fbeep-8,
      -0x1.ff79b9f0ab009p-10, 0x1.9ba0c662d805dp-11,  0x1.b1b0c67ffa5eap-11,
      0x1.b217da058ff15p-13,  -0x1.e5410b2c0cc3ep-14, -0x1.0d97e0d9348fap-13,
      -0x1.824df83f173f2p-15, 0x1.44e59f30cbe22p-17,  0x1.6bde1c1dc53cbp-16,
      0x1.a5a16ff810c57p-17,  0x1.17e495e2e3ff5p-19,  -0x1.7c20f97e2c824p-19,
      -0x1.a243e4c17d1e4p-19, -0x1.7d54766dbe3e7p-20, 0x1.1c8e3992159b7p-23,
      0x1.d650cd58434fcp-22,  0x1.be941426bb6bp-24,   0x1.e47e2bd2a5eebp-23,
      0x1.a5d955c8ccd04p-22,  -0x1.2158e9183fff3p-25, -0x1.765aa1020ad01p-22,
      -0x1.ac1cfd2c277fp-24,  0x1.012c26abcd6ap-23,   0x1.d1c1bca63b1fep-25,
      -0x1.14cb00bf7bfb6p-26, -0x1.3923384cdd701p-27};
  // (a + 2) e^.. erfc tail = 1.0625 + -0.625 u + R(u), u = (a - 2) / (a + 2), a in [0, 27.5];
  // degree 29, relative error 2^-57.7
  static constexpr double erfc_h[] = {
      -0x1.4f31c95a71142p-5,  -0x1.fd386754eff8cp-5,  0x1.1e2deea6b1159p-2,
      -0x1.2a88e6107d5d9p-5,  -0x1.606e415521835p-6,  0x1.a89eaff86f08dp-8,
      0x1.9517bb6881d1bp-9,   -0x1.b6fbf9973b28ep-11, -0x1.5ba436437881ap-11,
      0x1.20540d1e1f26p-15,   0x1.2ef9d974e4861p-13,  0x1.1e7688110434fp-15,
      -0x1.6bf12750e849ap-16, -0x1.0e7939b959142p-16, -0x1.3284a59aeedaap-20,
      0x1.e91be28e8250ap-19,  0x1.13b1c7610b98p-19,   0x1.fdb72427a4b53p-28,
      -0x1.71c7b618f7c1p-21,  -0x1.76fae13872db4p-22, 0x1.867e7f5050497p-23,
      0x1.65e72d769d13p-23,   -0x1.3056418adb76dp-23, -0x1.75733dc77c3e5p-24,
      0x1.0484dff298941p-23,  0x1.064e1c5ae2e2ap-24,  -0x1.e12a26701d219p-25,
      -0x1.fe27a4ebd7087p-26, 0x1.7417316542cedp-27,  0x1.af6fd84d8a19cp-28};
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
  // Nodes per unit, where the last one ends, and above what they serve.
  static constexpr float gelu_nodes = 64.0f / 11, gelu_last = 5.41f, gelu_near = -5,
                         gelu_tanh_near = -4.25f;
  // tails: c, b0, b1 of tail_factor, and its slope H'(u) as s0 + s1 u
  static constexpr float gelu_tail[] = {2, 0.6875f, -0.3125f, -0.3125f, 0},
                         erfc_tail[] = {2, 1.125f, -0.75f, -0.75f, 0.5f};
};
template <>
struct Limits<double> {
  static constexpr double exp_lo = -746, exp_hi = 710, exp2_lo = -1076, exp2_hi = 1025,
                          expm1_lo = -40, tanh_hi = 20, silu_lo = -760, gelu_hi = 39,
                          gelu_tanh_hi = 22, erf_hi = 5.95, erfc_hi = 27.3, trig_hi = 8388608,
                          gelu_near = -5, gelu_tanh_near = -4.25;
  static constexpr double gelu_tail[] = {2, 0.6875, -0.3125, -0.3125, 0},
                          erfc_tail[] = {2, 1.0625, -0.625, -0.75, 0.5};
};

}  // namespace mithril::tile::math
