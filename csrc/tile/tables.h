// Tables that `lookup` reads: 32 numbers each, two registers of AVX-512.
#pragma once
#include <cstdint>

namespace mithril::tile {

enum class Table : uint8_t {
  kGeluNode,
  kGelu0,
  kGelu1,
  kGelu2,
  kGelu3,
  kGelu4,
  kGelu5,
  kGelu6,
};
inline constexpr uint32_t kTableCount = 8, kTableSize = 32;

// kGelu…: Q(a) = erfc(a / sqrt 2) / 2 around node n, which is within 2^-8 of 11/64 n and where Q is
// a binary32 number but for 2^-10 of its last place (Gal & Bachelis, An accurate elementary
// mathematical library, 1991): Q = c0 + d (c1 + d (... + d c6)), d = a - node, for a nearest to
// 11/64 n. Fits of least error relative to Q, coefficients rounded one by one; that of the formula
// is at most 2^-27.
inline constexpr float kTables[kTableCount][kTableSize] = {
    {0,
     0x1.60538p-3f,
     0x1.5f73cp-2f,
     0x1.0a93p-1f,
     0x1.60e24p-1f,
     0x1.b749p-1f,
     0x1.092ep+0f,
     0x1.33d05p+0f,
     0x1.5f3d6p+0f,
     0x1.8cf57p+0f,
     0x1.b7c86p+0f,
     0x1.e557fp+0f,
     0x1.089418p+1f,
     0x1.1e0b9p+1f,
     0x1.346f2p+1f,
     0x1.4a95p+1f,
     0x1.5fa758p+1f,
     0x1.7652bp+1f,
     0x1.8bf778p+1f,
     0x1.a1c3f8p+1f,
     0x1.b8a56p+1f,
     0x1.ce7f88p+1f,
     0x1.e3e09p+1f,
     0x1.f95758p+1f,
     0x1.07df68p+2f,
     0x1.131628p+2f,
     0x1.1e0184p+2f,
     0x1.291cf8p+2f,
     0x1.3456dp+2f,
     0x1.3f148p+2f,
     0x1.49f2bp+2f,
     0x1.551eccp+2f},
    {0x1p-1f,         0x1.ba10f4p-2f,  0x1.767eep-2f,   0x1.34892p-2f,   0x1.f67512p-3f,
     0x1.90492ep-3f,  0x1.33798ap-3f,  0x1.d56bdap-4f,  0x1.5c4548p-4f,  0x1.ef961ap-5f,
     0x1.5f7f2ap-5f,  0x1.daf23ap-6f,  0x1.3d4b9p-6f,   0x1.a0bb0cp-7f,  0x1.059f8ap-7f,
     0x1.41409cp-8f,  0x1.89cce4p-9f,  0x1.c45bf6p-10f, 0x1.034886p-10f, 0x1.202dcp-11f,
     0x1.2e20dap-12f, 0x1.3d0cfcp-13f, 0x1.48825ep-14f, 0x1.4a91eep-15f, 0x1.39b1acp-16f,
     0x1.20da42p-17f, 0x1.07e2bp-18f,  0x1.ce3dd8p-20f, 0x1.85a2d8p-21f, 0x1.4b9448p-22f,
     0x1.0fb2f6p-23f, 0x1.a5cf4ap-25f},
    {-0x1.988454p-2f,  -0x1.928426p-2f,  -0x1.81269cp-2f,  -0x1.64bc32p-2f,  -0x1.42266p-2f,
     -0x1.1ab938p-2f,  -0x1.ddcb3ap-3f,  -0x1.8c8caap-3f,  -0x1.3ec34p-3f,   -0x1.eb15a6p-4f,
     -0x1.759e58p-4f,  -0x1.0ee032p-4f,  -0x1.81f172p-5f,  -0x1.0d11d8p-5f,  -0x1.6680b8p-6f,
     -0x1.d18716p-7f,  -0x1.2c33bcp-7f,  -0x1.6b594cp-8f,  -0x1.b4e8a6p-9f,  -0x1.fc8986p-10f,
     -0x1.1742c8p-10f, -0x1.31d2ep-11f,  -0x1.49df64p-12f, -0x1.591e44p-13f, -0x1.54981p-14f,
     -0x1.45bac8p-15f, -0x1.34600cp-16f, -0x1.17bb8cp-17f, -0x1.e81006p-19f, -0x1.acc824p-20f,
     -0x1.6a837cp-21f, -0x1.225346p-22f},
    {0x1.386edep-26f, 0x1.14fc7ap-5f,  0x1.086106p-4f,  0x1.73786ap-4f,  0x1.bc117cp-4f,
     0x1.e5243ap-4f,  0x1.eeed3ep-4f,  0x1.dccf64p-4f,  0x1.b55a1ep-4f,  0x1.7cbe28p-4f,
     0x1.40eb7cp-4f,  0x1.00c5e6p-4f,  0x1.8ee042p-5f,  0x1.2ca614p-5f,  0x1.afee7cp-6f,
     0x1.2c938ap-6f,  0x1.9c5f3p-7f,   0x1.09a4e8p-7f,  0x1.51e4a8p-8f,  0x1.9ef0a6p-9f,
     0x1.e0af2ep-10f, 0x1.144176p-10f, 0x1.37c0ecp-11f, 0x1.54a138p-12f, 0x1.5f1174p-13f,
     0x1.5e03d4p-14f, 0x1.58852p-15f,  0x1.44a83ep-16f, 0x1.25ec66p-17f, 0x1.0b37dap-18f,
     0x1.d33a98p-20f, 0x1.82dbd4p-21f},
    {0x1.105d52p-4f,   0x1.04630ap-4f,   0x1.c5054p-5f,    0x1.5aae08p-5f,   0x1.c31412p-6f,
     0x1.8dd00ap-7f,   -0x1.74603ap-9f,  -0x1.d747c8p-7f,  -0x1.771452p-6f,  -0x1.cbc61cp-6f,
     -0x1.e601a8p-6f,  -0x1.d47fccp-6f,  -0x1.a503b2p-6f,  -0x1.663bdep-6f,  -0x1.1f2e62p-6f,
     -0x1.b7ef62p-7f,  -0x1.47991ap-7f,  -0x1.c9571ep-8f,  -0x1.38039ap-8f,  -0x1.990c4cp-9f,
     -0x1.f90c26p-10f, -0x1.333e3p-10f,  -0x1.6d591cp-11f, -0x1.a3816ap-12f, -0x1.c6192ep-13f,
     -0x1.da5582p-14f, -0x1.e77fa8p-15f, -0x1.df136ap-16f, -0x1.c3ada4p-17f, -0x1.aa35fcp-18f,
     -0x1.82597ap-19f, -0x1.4b8e0ap-20f},
    {-0x1.07c1a8p-17f, -0x1.1217fep-7f, -0x1.fbbd9ep-7f, -0x1.521f88p-6f, -0x1.75c862p-6f,
     -0x1.6df706p-6f,  -0x1.3e0cb4p-6f, -0x1.ee704cp-7f, -0x1.45a2e4p-7f, -0x1.2e5aa6p-8f,
     -0x1.4ced74p-12f, 0x1.96d444p-9f,  0x1.525c36p-8f,  0x1.8fd7b6p-8f,  0x1.940d4p-8f,
     0x1.6fbfcap-8f,   0x1.387ab2p-8f,  0x1.eba496p-9f,  0x1.71fb94p-9f,  0x1.089b6ep-9f,
     0x1.628d5cp-10f,  0x1.cefad8p-11f, 0x1.2550cap-11f, 0x1.654b26p-12f, 0x1.998b32p-13f,
     0x1.c35f9ep-14f,  0x1.e7390ep-15f, 0x1.f5e4d8p-16f, 0x1.ef0528p-17f, 0x1.e6b794p-18f,
     0x1.cb0e3cp-19f,  0x1.9992dap-20f},
    {-0x1.55e19cp-7f,  -0x1.22db4cp-7f,  -0x1.c8f868p-8f,  -0x1.f71a92p-9f,  -0x1.97d65cp-10f,
     0x1.226ec4p-9f,   0x1.332ccep-8f,   0x1.682c82p-8f,   0x1.99e85ap-8f,   0x1.69b5acp-8f,
     0x1.2d7dfap-8f,   0x1.9b5dfep-9f,   0x1.cc7f94p-10f,  0x1.4769dcp-11f,  -0x1.6efaa2p-12f,
     -0x1.d497dap-11f, -0x1.288986p-10f, -0x1.2ce68cp-10f, -0x1.0e70ccp-10f, -0x1.bd6a7ap-11f,
     -0x1.51225ep-11f, -0x1.e528ccp-12f, -0x1.4ea2a2p-12f, -0x1.b6fcp-13f,   -0x1.0e70fp-13f,
     -0x1.3db58p-14f,  -0x1.6b953ap-15f, -0x1.8be532p-16f, -0x1.9b04ap-17f,  -0x1.a748eep-18f,
     -0x1.a17388p-19f, -0x1.8519fp-20f},
    {0x1.8da2d2p-11f,  0x1.dabbep-11f,   0x1.be367cp-10f,  0x1.3f3a56p-8f,   0x1.9181acp-9f,
     0x1.d8e976p-10f,  0x1.82b20ep-9f,   0x1.0c2d92p-9f,   -0x1.8f45c4p-11f, -0x1.f58c92p-11f,
     -0x1.6e3fd8p-10f, -0x1.4c73aap-10f, -0x1.368022p-10f, -0x1.4f2606p-10f, -0x1.6b8f42p-11f,
     -0x1.b65226p-12f, -0x1.aa3bd4p-18f, 0x1.8af35p-15f,   0x1.3b5502p-13f,  0x1.9207eep-13f,
     0x1.872d8cp-13f,  0x1.55182cp-13f,  0x1.0b9fa8p-13f,  0x1.7c02fp-14f,   0x1.0815cp-14f,
     0x1.4cc436p-15f,  0x1.9a99a6p-16f,  0x1.e0e41ep-17f,  0x1.0a08dep-17f,  0x1.1cb79p-18f,
     0x1.251cdcp-19f,  0x1.21b6cep-20f},
};

constexpr float look_up(Table table, uint32_t index) {
  return kTables[static_cast<uint32_t>(table)][index % kTableSize];
}

}  // namespace mithril::tile
