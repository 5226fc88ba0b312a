// What the machine allows for FP8 -> BF16 conversion of files: read only, write only (page cache, fsync, O_DIRECT),
// in-memory conversion with AVX-512, and the whole read + convert + write pipeline in L2-sized tiles. One scale per
// tile: the arithmetic of real layouts, not their bookkeeping. gcc -O3 -march=native -fopenmp convert_bound.c -o
// convert_bound && ./convert_bound THREADS OUTDIR REPS INPUT...
// MODES in the environment names what to run ("rcw,rcw_fsync"; "memory" is the in-memory part); absent: everything.
#define _GNU_SOURCE
#include <fcntl.h>
#include <immintrin.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define TILE (256 << 10)
static void conv(const unsigned char* in, unsigned short* out, long n, float scale) {
  const __m512 s = _mm512_set1_ps(scale * 0x1p120f);
  const __m512i mant = _mm512_set1_epi32(0x7f << 20), sgn = _mm512_set1_epi32((int)0x80000000);
  for (long i = 0; i < n; i += 32) {
    __m512i a = _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)(in + i))), 24);
    __m512i b = _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)(in + i + 16))), 24);
    __m512 x =
        _mm512_castsi512_ps(_mm512_or_si512(_mm512_and_si512(a, sgn), _mm512_and_si512(_mm512_srli_epi32(a, 4), mant)));
    __m512 y =
        _mm512_castsi512_ps(_mm512_or_si512(_mm512_and_si512(b, sgn), _mm512_and_si512(_mm512_srli_epi32(b, 4), mant)));
    _mm512_storeu_si512((void*)(out + i), (__m512i)_mm512_cvtne2ps_pbh(_mm512_mul_ps(y, s), _mm512_mul_ps(x, s)));
  }
}
static void conv_nt(const unsigned char* in, unsigned short* out, long n, float scale) {
  const __m512 s = _mm512_set1_ps(scale * 0x1p120f);
  const __m512i mant = _mm512_set1_epi32(0x7f << 20), sgn = _mm512_set1_epi32((int)0x80000000);
  for (long i = 0; i < n; i += 32) {
    __m512i a = _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)(in + i))), 24);
    __m512i b = _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)(in + i + 16))), 24);
    __m512 x =
        _mm512_castsi512_ps(_mm512_or_si512(_mm512_and_si512(a, sgn), _mm512_and_si512(_mm512_srli_epi32(a, 4), mant)));
    __m512 y =
        _mm512_castsi512_ps(_mm512_or_si512(_mm512_and_si512(b, sgn), _mm512_and_si512(_mm512_srli_epi32(b, 4), mant)));
    _mm512_stream_si512((void*)(out + i), (__m512i)_mm512_cvtne2ps_pbh(_mm512_mul_ps(y, s), _mm512_mul_ps(x, s)));
  }
  _mm_sfence();
}
static int cmp(const void* a, const void* b) {
  double x = *(double*)a, y = *(double*)b;
  return (x > y) - (x < y);
}
static int nf, T;
static char** in;
static long sz[4096], tot;
static const char* od;
static void path(char* p, int i) { sprintf(p, "%s/bound-%05d.bin", od, i); }
static void xw(int fd, const void* b, long n, long off) {
  while (n > 0) {
    long k = pwrite(fd, b, n, off);
    if (k <= 0) {
      perror("pwrite");
      exit(1);
    }
    b = (const char*)b + k;
    n -= k;
    off += k;
  }
}
// modes: 0 read, 1 write buffered, 2 write buffered + fsync, 3 write O_DIRECT, 4 read+convert+write, 5 = 4 + fsync, 6 =
// 4 with O_DIRECT output, 7 mmap in/ftruncate+mmap out
static double run(int mode) {
  char p[4096];
  int direct = mode == 3 || mode == 6;
  for (int i = 0; i < nf; i++) {
    path(p, i);
    unlink(p);
  }
  double t = omp_get_wtime();
  for (int f = 0; f < nf; f++) {
    int fi = mode != 1 && mode != 2 && mode != 3 ? open(in[f], O_RDONLY) : -1, fo = -1;
    if (mode) {
      path(p, f);
      fo = open(p, O_RDWR | O_CREAT | O_TRUNC | (direct ? O_DIRECT : 0), 0644);
      if (fo < 0) {
        perror("open");
        exit(1);
      }
    }
    long n = sz[f] / 4096 * 4096;
    unsigned char* mi = 0;
    unsigned short* mo = 0;
    if (mode == 7) {
      if (ftruncate(fo, n * 2)) exit(1);
      mi = mmap(0, n, PROT_READ, MAP_SHARED | MAP_POPULATE, fi, 0);
      mo = mmap(0, n * 2, PROT_READ | PROT_WRITE, MAP_SHARED, fo, 0);
    }
    long tile = direct ? (4 << 20) : TILE;
#pragma omp parallel num_threads(T)
    {
      static __thread unsigned char* a;
      static __thread unsigned short* b;
      static __thread long have;
      if (have < tile) {
        a = aligned_alloc(4096, tile);
        b = aligned_alloc(4096, tile * 2);
        memset(a, 1, tile);
        memset(b, 1, tile * 2);
        have = tile;
      }
#pragma omp for schedule(dynamic, 4)
      for (long o = 0; o < n; o += tile) {
        long m = n - o < tile ? n - o : tile;
        if (mode == 7) {
          conv(mi + o, mo + o, m, 1e-4f);
          continue;
        }
        if (fi >= 0 && pread(fi, a, m, o) != m) {
          perror("pread");
          exit(1);
        }
        if (mode >= 4) conv(a, b, m, 1e-4f);
        if (mode) xw(fo, b, m * 2, o * 2);
      }
    }
    if (mode == 7) {
      munmap(mi, n);
      munmap(mo, n * 2);
    }
    if (mode == 2 || mode == 5) fsync(fo);
    if (fi >= 0) close(fi);
    if (fo >= 0) close(fo);
  }
  return omp_get_wtime() - t;
}
static int wanted(const char* name) {
  const char *modes = getenv("MODES"), *at = modes;
  size_t n = strlen(name);
  if (!modes) return 1;
  while ((at = strstr(at, name))) {
    if ((at == modes || at[-1] == ',') && (at[n] == 0 || at[n] == ',')) return 1;
    at += n;
  }
  return 0;
}
int main(int c, char** v) {
  T = atoi(v[1]);
  od = v[2];
  int reps = atoi(v[3]);
  in = v + 4;
  nf = c - 4;
  for (int i = 0; i < nf; i++) {
    struct stat s;
    if (stat(in[i], &s)) return 1;
    sz[i] = s.st_size;
    tot += s.st_size;
  }
  printf("{\"bench\":\"convert_bound\",\"threads\":%d,\"in_bytes\":%ld,\"out_bytes\":%ld", T, tot, 2 * tot);
  if (wanted("memory")) {
    long n = 512L << 20;
    unsigned char* a = mmap(0, n, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned short* b = mmap(0, 2 * n, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(a, n, MADV_HUGEPAGE);
    madvise(b, 2 * n, MADV_HUGEPAGE);
    memset(a, 0x33, n);
    memset(b, 0, 2 * n);
    for (int nt = 0; nt < 2; nt++) {
      double best = 1e9;
      for (int r = 0; r < 7; r++) {
        double t = omp_get_wtime();
#pragma omp parallel for num_threads(T)
        for (long o = 0; o < n; o += 1 << 20) (nt ? conv_nt : conv)(a + o, b + o, 1 << 20, 1e-4f);
        t = omp_get_wtime() - t;
        if (t < best) best = t;
      }
      printf(",\"mem_convert%s_out_gbs\":%.2f", nt ? "_nt" : "", 2 * n / best / 1e9);
    }
    munmap(a, n);
    munmap(b, 2 * n);
  }
  const char* nm[] = {"read", "write", "write_fsync", "write_direct", "rcw", "rcw_fsync", "rcw_direct", "rcw_mmap"};
  double* g = malloc(sizeof(double) * reps);
  for (int m = 0; m < 8; m++) {
    if (!wanted(nm[m])) continue;
    run(m);
    for (int r = 0; r < reps; r++) g[r] = run(m);
    qsort(g, reps, sizeof(double), cmp);
    double by = m == 0 ? tot : 2.0 * tot;
    printf(",\"%s\":{\"s_best\":%.3f,\"s_median\":%.3f,\"gbs_best\":%.2f}", nm[m], g[0], g[reps / 2], by / g[0] / 1e9);
    fflush(stdout);
  }
  puts("}");
  char p[4096];
  for (int i = 0; i < nf; i++) {
    path(p, i);
    unlink(p);
  }
}
